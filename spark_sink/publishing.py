"""Publishes cuts of a destination: after each micro-batch, and while none comes.

The process that holds the sink's lock publishes, one cut an epoch, in order, after everything up to the epoch is
committed (:mod:`spark_sink.sinks.shared.published_cut`). If it was killed before that, the micro-batch is repeated, or
the spool's record of the sink proves that it is done: then the cut is published at the next look.

A micro-batch without events has no rows that name its epochs, so that its cut is published at a look: between
micro-batches everything up to the sink's recorded epoch is committed, and nothing after it.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from connector.config.backfill_rules import BackfillRules
from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolInUseError
from connector.spool.backfill.completeness import (
    complete_as_of,
    tables_to_fill,
    tables_without_backfill,
    with_later_rows,
)
from connector.spool.backfill.excluded_tables import ExcludedRange, excluded_ranges
from connector.spool.backfill.records import RecordedBackfill, backfills, unfinished_among, unfinished_tables
from connector.spool.consumers import find, sink_lock
from connector.spool.gaps import gaps
from connector.spool.late_store import LateRange, LateRanges
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from connector.spool.sink_report import CutReport, SinkReport, report_of, write_report
from connector.spool.sink_start import SinkStart, start_of_sink
from spark_sink.idling import interval_of
from spark_sink.sinks.shared.dead_letters import folder_of
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.published_cut import HAS_REJECTED, CutStore, PublishedCut, TableAtCut
from spark_sink.sinks.shared.replayed_spools import not_found
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sources.changes.known_tables import KnownTables


class Publication:
    """Publishes the cuts of a sink.

    Args:
        delivery: of the change stream; of a backfill nothing is published.
        check: raises SpoolInUseError if another sink has taken over.
        now: Unix nanoseconds.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        delivery: Delivery,
        check: Callable[[], None] = lambda: None,
        *,
        now: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delivery = delivery
        self._spool = delivery.feed.stream
        self._check = check
        self._now = now
        self._clock = clock
        self._late = LateRanges(self._spool)
        self._interval = interval_of(self._spool.storage)
        self._next = -math.inf
        self._store: CutStore | None = None
        self._published: int | None = None
        self._unfinished = frozenset[str]()

    def before_batch(self) -> None:
        """Is called before a micro-batch: a backfill that is not done by then may write during all of it.

        Raises:
            SpoolError: the spool cannot be read.
        """
        if not self._delivery.feed.is_backfill:
            self._unfinished = unfinished_tables(self._spool, _sink_of(self._delivery))

    def after_batch(self, spark: SparkSession) -> None:
        """Publishes the cut at the end of the micro-batch that the delivery has done.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: it is not published; the micro-batch is repeated.
        """
        if self._delivery.feed.is_backfill:
            return
        if (epoch := self._delivery.done) > self._newest(spark):
            self._publish(spark, epoch, self._spool.manifest(epoch).watermark_high)

    def look(self, spark: SparkSession) -> None:
        """Publishes the cut at the sink's recorded epoch, if nothing after it is started. No micro-batch runs.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: it is not published; the next look tries again.
        """
        if self._clock() < self._next or self._delivery.feed.is_backfill:
            return
        self._next = self._clock() + self._interval
        done = find(self._spool, self._delivery.consumer)
        if done is not None and done.at and done.epoch > self._newest(spark) and not self._is_started(done.epoch + 1):
            self.before_batch()
            self._publish(spark, done.epoch, watermark_of(done.at))

    def complete(self, spark: SparkSession) -> None:
        """Publishes the newest cut again if tables have become complete since, and no epoch will follow.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: it is not published.
        """
        self._next = -math.inf
        self.look(spark)
        store = self._store_in(spark)
        newest = store.newest() if store is not None else None
        if newest is None or not newest.incomplete or self._is_behind(newest.epoch):
            return
        found = _Incompleteness.now(self._delivery, self._late)
        if found.of(newest.tables, newest.timestamp).keys() < newest.incomplete.keys():
            self.before_batch()
            self._publish(spark, newest.epoch, newest.timestamp)

    def _publish(self, spark: SparkSession, epoch: int, timestamp: int) -> None:
        store = self._store_in(spark)
        tables = [name for name in KnownTables(self._spool).names() if self._delivery.keeps(name)]
        versions = store.versions(tables) if store is not None else {}
        tables_at_cut = {name: TableAtCut(version=versions.get(name, "")) for name in tables}
        facts = self._facts()
        self._check()  # a sink that has taken over may have committed a part of a later epoch before they were read
        cut = self._with_reasons(
            PublishedCut(
                timestamp=timestamp,
                epoch=epoch,
                spool_id=self._spool.header().spool_id,
                published_at=self._now(),
                tables=tables_at_cut,
            ),
            facts,
        )
        if store is not None:
            cut = self._publish_in(store, cut, facts)
        report = CutReport(
            timestamp=cut.timestamp, epoch=epoch, published_at=cut.published_at, incomplete=dict(cut.incomplete)
        )
        consumer = self._delivery.consumer
        newest = report_of(self._spool, consumer)  # other processes have written it while the cut was published
        write_report(self._spool, consumer, newest.model_copy(update={"cut": report}))
        self._published = epoch

    def _publish_in(self, store: CutStore, cut: PublishedCut, facts: "_Incompleteness") -> PublishedCut:
        """Publishes a cut, and again if a backfill may have written before the store noted the versions."""
        store.publish_up_to(cut, facts.by_timestamp(cut.tables))
        if store.notes_versions_last:
            later = self._facts()
            again = self._with_reasons(cut, later)
            if again.incomplete.keys() > cut.incomplete.keys():
                return self._publish_in(store, again, later)
        return cut

    def _facts(self) -> "_Incompleteness":
        return _Incompleteness.now(self._delivery, self._late, self._unfinished)

    def _with_reasons(self, cut: PublishedCut, facts: "_Incompleteness") -> PublishedCut:
        """The cut with the tables that are incomplete now, and those that were.

        Some versions have the rows of a backfill that started or ended in the meantime.
        """
        reasons = {**facts.of(cut.tables, cut.timestamp), **cut.incomplete}
        tables = {
            name: table.model_copy(update={"incomplete": reasons.get(name, "")}) for name, table in cut.tables.items()
        }
        return cut.model_copy(update={"published_at": self._now(), "tables": tables})

    def _newest(self, spark: SparkSession) -> int:
        """The epoch of the newest published cut; 0 if there is none."""
        if self._published is None:
            store = self._store_in(spark)
            newest = store.newest() if store is not None else report_of(self._spool, self._delivery.consumer).cut
            self._published = newest.epoch if newest is not None else 0
        return self._published

    def _store_in(self, spark: SparkSession) -> CutStore | None:
        self._store = self._store or self._delivery.cut_store(spark)
        return self._store

    def _is_behind(self, epoch: int) -> bool:
        """True if tables may have changes of epochs after this one."""
        done = find(self._spool, self._delivery.consumer)
        return done is None or done.epoch > epoch or self._is_started(epoch + 1)

    def _is_started(self, epoch: int) -> bool:
        batch = StartedBatches(self._spool, self._delivery.consumer).at(epoch)
        return batch is not None and bool(batch.pinned)


def _sink_of(delivery: Delivery) -> str:
    """The sink, so that backfills of others are omitted; empty if it has ``source.backfill`` and should have them."""
    return delivery.consumer if delivery.backfill is None else ""


@dataclass(frozen=True)
class _Incompleteness:
    """The facts by which tables are incomplete; ``report`` and ``start`` are the sink's.

    ``not_found`` is the number of its dead letters if its store has none at all, and no replay has recorded that.
    ``begins`` says whether its cuts begin with that start, so that they lack nothing from before.
    """

    spool: Spool
    sink: str
    report: SinkReport
    start: SinkStart | None
    begins: bool
    late: Sequence[LateRange]
    excluded: Sequence[ExcludedRange]
    rules: BackfillRules | None
    backfills: Sequence[RecordedBackfill]
    unfinished: frozenset[str]
    unsettled: frozenset[str]
    folders: frozenset[str]
    not_found: int

    @classmethod
    def now(cls, delivery: Delivery, late: LateRanges, before: frozenset[str] = frozenset()) -> "_Incompleteness":
        """The facts of now; the backfills of the tables ``before`` were not done earlier."""
        spool = delivery.feed.stream
        known = backfills(spool)
        report = report_of(spool, delivery.consumer)
        folders = delivery.dead_letters.folders()
        return cls(
            spool,
            delivery.consumer,
            report,
            start_of_sink(spool, delivery.consumer),
            delivery.begins_with_its_start,
            late.now(),
            excluded_ranges(spool),
            delivery.backfill,
            known,
            before | unfinished_among(spool, known, _sink_of(delivery)),
            delivery.unsettled(),
            folders,
            0 if folders else not_found(delivery.consumer, delivery.dead_letters, report, known),
        )

    def by_timestamp(self, tables: Collection[str]) -> Callable[[int], Mapping[str, str]]:
        """The reasons of some tables as of any commit timestamp; each that differs is made once."""
        changes = sorted(
            {
                *(loss.since for loss in self._losses),
                *(one.document.timestamp for one in self.backfills),
                *self._complete.values(),
            }
        )
        made: dict[int, Mapping[str, str]] = {}

        def at(timestamp: int) -> Mapping[str, str]:
            known = bisect_right(changes, timestamp)
            if known not in made:
                made[known] = self.of(tables, timestamp)
            return made[known]

        return at

    def of(self, tables: Collection[str], timestamp: int) -> Mapping[str, str]:
        """The reasons of those of some tables that are incomplete as of a commit timestamp."""
        lost = self._lost(tables, timestamp)
        later = with_later_rows(self.backfills, timestamp)
        unfinished = self.unfinished | self._to_come(tables)
        reasons = {name: self._reason(name, unfinished) or lost.get(name, "") or later.get(name, "") for name in tables}
        return {name: why for name, why in reasons.items() if why}

    def _reason(self, table: str, unfinished: Collection[str]) -> str:
        if table in self.report.stopped:
            return f"it is stopped: {self.report.stopped[table]}"
        if table in unfinished:
            return "its backfill is not done"
        if folder_of(table) in self.folders:
            return HAS_REJECTED
        if self.not_found:
            return f"dead letters of its sink are not found ({self.not_found}): they may be of it"
        if table in self.unsettled:
            return "deleted rows that were kept for a backfill or for dead letters are not removed yet"
        return ""

    def _to_come(self, tables: Collection[str]) -> frozenset[str]:
        """Those of some tables of which the next look for new tables records a backfill."""
        if self.rules is None or not self.rules.new_tables:
            return frozenset()
        new = tables_without_backfill(tables, self.spool.header(), self.backfills)
        return frozenset(table for table in new if not self.rules.excludes(table))

    def _lost(self, tables: Collection[str], timestamp: int) -> Mapping[str, str]:
        """Those of some tables that lack changes which were not delivered, unless they are complete since.

        Args:
            tables: by their names in the source.
            timestamp: of the cut, as of which they are complete; what was lost after it is of no account.
        """
        complete, found = self._complete, dict[str, str]()
        for loss in self._losses:
            if loss.since <= timestamp:
                of = filter(loss.lacks, tables)
                lacking = (one for one in of if not loss.up_to <= complete.get(one, 0) <= timestamp)
                found |= dict.fromkeys(lacking, loss.why)
        return found

    @cached_property
    def _complete(self) -> Mapping[str, int]:
        """The timestamps as of which tables are complete; empty if nothing was lost."""
        return complete_as_of(self.spool, self.sink, self.backfills) if self._losses else {}

    @cached_property
    def _losses(self) -> Sequence["_Loss"]:
        return [
            *self._before_start(),
            *self._gaps(),
            *self._were_excluded(),
            *self._came_late(),
            *self._without_dead_letters(),
            *self._at_destination(),
        ]

    def _before_start(self) -> Iterator["_Loss"]:
        """The loss of what was committed before the sink's start."""
        start = None if self.begins else self.start
        if start and (to_fill := tables_to_fill(start, self.backfills, is_backfilled=self.rules is not None)):
            why = f"what was committed up to {format_rfc3339(start.after)} is missing"
            yield _Loss(to_fill.__contains__, 0, start.after, why)

    def _gaps(self) -> Iterator["_Loss"]:
        """The gaps."""
        first = self.start.epoch if self.begins and self.start else 0
        for gap in gaps(self.spool, self.spool.manifest(self.spool.latest())):
            if first < gap.epoch:
                low, high = format_rfc3339(gap.watermark_low), format_rfc3339(gap.watermark_high)
                why = f"changes between {low} and {high} were not read"
                yield _Loss(lambda _: True, gap.watermark_low + 1, gap.watermark_high + 1, why)

    def _were_excluded(self) -> Iterator["_Loss"]:
        """The tables that the reader has left out for a while."""
        after = self.start.after if self.begins and self.start else 0
        for one in self.excluded:
            if after < one.up_to:
                low, high = format_rfc3339(one.after + 1), format_rfc3339(one.up_to)
                why = f"changes between {low} and {high} were not read: source.tables excluded it"
                yield _Loss(one.lacks, one.after + 1, one.up_to, why)

    def _came_late(self) -> Iterator["_Loss"]:
        """The records that came too late for their epochs."""
        after = self.start.after if self.begins and self.start else 0
        for late in self.late:
            if after < late.last:
                low, high = format_rfc3339(late.first), format_rfc3339(late.last)
                yield _Loss(
                    (lambda _: True) if late.table is None else {late.table}.__contains__,
                    late.first,
                    late.last + 1,
                    f"changes between {low} and {high} came late or never: they were not delivered",
                )

    def _without_dead_letters(self) -> Iterator["_Loss"]:
        """The changes of tables that were stopped, and continue without their dead letters."""
        for table, up_to in self.report.lacking.items():
            yield _Loss(
                {table}.__contains__, 0, up_to + 1, "it was stopped, and continues without its dead letters of then"
            )

    def _at_destination(self) -> Iterator["_Loss"]:
        """The rows of tables that somebody has dropped, or set back to an older state."""
        for table, up_to in self.report.lost.items():
            why = "it was dropped or set back to an older state at the destination, and lacks rows"
            yield _Loss({table}.__contains__, 0, up_to, why)


@dataclass(frozen=True, slots=True)
class _Loss:
    """Changes that were not delivered.

    Attributes:
        lacks: whether they may be of a table.
        since: the first commit timestamp that they may have.
        up_to: a table that is complete as of this timestamp or a later one has them.
        why: the reason.
    """

    lacks: Callable[[str], bool]
    since: int
    up_to: int
    why: str


def publish_without_sink(delivery: Delivery, spark: SparkSession) -> None:
    """Publishes the newest cut again, as :meth:`Publication.complete` does, unless the sink runs.

    Raises:
        SpannerCdcError, PySparkException, Py4JError: it is not published.
    """
    spool = delivery.feed.stream
    try:
        with spool.storage.locked(sink_lock(delivery.consumer), "the sink runs"):
            Publication(delivery).complete(spark)
    except SpoolInUseError:
        return
