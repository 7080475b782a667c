"""The Spanner sink's own stream: one task applies the epochs of a micro-batch, and its rows report what it did.

One task, because the order of tables and of transactions is one: it commits several times at once in mode ``rows``. A
micro-batch that is repeated begins where the bookkeeping row says, and reports the dead letters of what was before.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby

import msgspec
import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connector.config.address import DatabaseAddress
from connector.core.epoch import minute_end
from connector.core.timestamps import MINUTE, parse
from connector.errors import SpoolError
from connector.spool.backfill.completeness import with_later_rows
from connector.spool.backfill.records import backfills
from connector.spool.consumers import find
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.reports import TaskReport, as_rows
from spark_sink.sinks.shared.sink_stream import SinkSource, SinkStreamReader
from spark_sink.sinks.spanner.awaited_backfills import AwaitedBackfills
from spark_sink.sinks.spanner.changes import EventsByPlace, changes_of
from spark_sink.sinks.spanner.config import FORMER_NAMES, Applying
from spark_sink.sinks.spanner.connection import connected, key_of
from spark_sink.sinks.spanner.creation import Creation
from spark_sink.sinks.spanner.destination_tables import PATIENCE
from spark_sink.sinks.spanner.gone import omissions_of
from spark_sink.sinks.spanner.writing.cut_store import SpannerCutStore
from spark_sink.sinks.spanner.writing.planning import WritePlanner
from spark_sink.sinks.spanner.writing.progress import CONTINUES_ELSEWHERE, STARTS_OVER, TABLE
from spark_sink.sinks.spanner.writing.units import UnitPosition, units
from spark_sink.sinks.spanner.writing.writer import MOST_BYTES, MOST_CHANGES, Rejection, UnitWriter, WrittenUnits
from spark_sink.sources.changes.admission import EpochWeight, Group
from spark_sink.sources.changes.known_tables import KnownTables
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.spool_copies import check_copy

_BATCH_BYTES = 64 * 1024 * 1024
"""Bytes of segments in a micro-batch; the sink's metrics advance with each."""


@dataclass(frozen=True, slots=True)
class SpannerPlace:
    """The place where a sink writes: the database, the tag of its transactions, and the dead letters.

    Attributes:
        source: the database that the changes are of; None: nothing of a change is left out.
        creation: what may be created in the destination; None: nothing.
    """

    target: DatabaseAddress
    tag: str
    dead_letters: str
    source: DatabaseAddress | None = None
    creation: Creation | None = None

    def to_text(self) -> str:
        """As text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "SpannerPlace":
        """Of :meth:`to_text`."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True)
class EpochsToApply(InputPartition):
    """The epochs that the task of a micro-batch applies."""

    spool: str
    consumer: str
    place: SpannerPlace
    applying: Applying
    manifests: tuple[Manifest, ...]


class SpannerSinkSource(SinkSource):
    """Applies a spool's epochs; internal to the sink.

    Options: ``place`` and ``applying``, a :class:`SpannerPlace` and an
    :class:`spark_sink.sinks.spanner.config.Applying` as text.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "spanner-change-stream-spanner"

    def streamReader(self, schema: object) -> "SpannerSinkReader":  # noqa: N802
        """Applies every epoch once."""
        options = self.options
        place = SpannerPlace.from_text(options["place"])
        return SpannerSinkReader(Feed.of_options(options), options["consumer"], place, options["applying"])


class SpannerSinkReader(SinkStreamReader):
    """Plans a spool's epochs for the one task that applies them."""

    def __init__(self, feed: Feed, consumer: str, place: SpannerPlace, applying: str) -> None:
        super().__init__(feed, consumer, applying, batch_bytes=_BATCH_BYTES)
        self._place = place
        self._applying = applying
        self._backfills = None if feed.is_backfill else AwaitedBackfills(feed.stream, consumer)

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        """All epochs, or none while a backfill is not done: its rows would overwrite what later changes have written.

        A backfill that is recorded after this look has a timestamp after these epochs.
        """
        if self._backfills is None:
            return super().ready(epochs)
        if self._backfills.are_awaited():
            return []
        left, first = iter(epochs), list[EpochWeight]()
        for epoch in left:
            first.append(epoch)
            if epoch.rows:
                break
        return [] if are_held(self._spool, first, self._clock()) else super().ready(chain(first, left))

    def start_over(self, done: Offset) -> str:
        """The destination's own row says what is applied, so that without a checkpoint nothing would be repeated."""
        del done
        return STARTS_OVER

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """One task; none without epochs, as in the first micro-batch of a query that finds nothing new."""
        applying, manifests = Applying.from_text(pinned or self._applying), tuple(epochs)
        if not manifests:
            return []
        return [EpochsToApply(self._spool.path, self._consumer, self._place, applying, manifests)]

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Applies the epochs of the task and reports each unit."""
        assert isinstance(partition, EpochsToApply)
        for written in applied(partition):
            yield as_rows(_reports(partition.manifests[0].epoch, written))


def are_held(spool: Spool, epochs: Sequence[EpochWeight], now: int) -> bool:
    """True if epochs wait for the end of their minute, because none has rows; a minute at most if none follows.

    Such an epoch may be of nothing but this sink's own writes, which a stream back has skipped. Writing the bookkeeping
    row for it makes the next one there, and two databases that replicate to each other would never be idle.
    """
    if not epochs or any(epoch.rows for epoch in epochs):
        return False
    first, newest = (spool.manifest(one.epoch) for one in (epochs[0], epochs[-1]))
    ends = newest.final or newest.watermark_high >= minute_end(first.watermark_low + 1)
    return not ends and now < first.sealed_at + MINUTE


def applied(partition: EpochsToApply) -> Iterator[WrittenUnits]:
    """Applies the rest of a micro-batch and yields the results; rejected rows are stored as dead letters first.

    Raises:
        SpannerCdcError: the destination, the spool or the dead letters refuse.
    """
    spool = Spool.at(partition.spool)
    place, manifests = partition.place, partition.manifests
    identities = {manifest.epoch: manifest.identity for manifest in manifests}
    is_backfill = any(manifest.backfill for manifest in manifests)
    with connected(
        place.target, place.tag, spool, partition.consumer, identities, patience=PATIENCE, is_backfill=is_backfill
    ) as connection:
        there, progress = connection
        consumer = find(spool, partition.consumer)
        has_applied = consumer is not None and consumer.at != ""
        claimed = progress.claim(None if has_applied else UnitPosition(manifests[0].epoch, 0))
        done = Offset(claimed.epoch, at=claimed.identity)
        check_copy(spool, "what the destination has applied", done, STARTS_OVER)
        position = claimed.position
        check_continues(position, manifests[0].epoch)
        begin, end = UnitPosition(manifests[0].epoch, 0), UnitPosition(manifests[-1].epoch + 1, 0)
        dead_letters = DeadLetters(place.dead_letters, former=FORMER_NAMES)
        if position > begin:
            before = min(position, end)
            if stored := stored_before(before, begin.epoch, spool, partition.consumer, dead_letters):
                yield WrittenUnits(stored=stored)
        if position >= end:
            return
        feed = Feed.at(partition.spool)
        if later := _with_later_rows(feed, claimed.complete):
            key = key_of(feed.stream, partition.consumer)
            SpannerCutStore(place.target, place.tag, there.dialect.name, key).lacks(later)
        known = KnownTables(spool)
        now = known.read_once()
        tables = {name: now.newest(name) for name in now.names()}
        keys = {name: schema.primary_keys for name, schema in tables.items()}
        columns = {name: [column.name for column in schema.columns] for name, schema in tables.items()}
        events = EventsByPlace(spool, manifests)
        mode = partition.applying.mode
        omissions = omissions_of(place.source, place.creation, place.target, known, partition.applying, there)
        planner = WritePlanner(partition.applying, there.tables, keys, omissions, columns)
        at = position
        with closing(UnitWriter(planner, progress, partition.applying)) as writer:
            for unit in units(
                changes_of(spool, manifests, position),
                start=position,
                end=end,
                most=MOST_CHANGES[mode],
                most_bytes=MOST_BYTES[mode],
            ):
                for written in writer.write(unit):
                    _put(dead_letters, spool, partition.consumer, events, written.rejected)
                    yield written
                at = unit.end
            if at != end:
                progress.advance(at, end)


def _with_later_rows(feed: Feed, complete: str) -> dict[str, str]:
    """The tables that are in no state of the source while a micro-batch is applied, and the reasons.

    Args:
        feed: of the micro-batch: a backfill writes rows that are later than what the change stream has applied.
        complete: the commit timestamp up to which its changes are applied; empty if it is not known.
    """
    known = backfills(feed.stream)
    if feed.is_backfill:
        known = [one for one in known if one.spool.path == feed.spool.path]
    return with_later_rows(known, parse(complete) if complete and not feed.is_backfill else 0)


def dead_letter_prefix(spool: Spool, consumer: str, epoch: int) -> str:
    """The beginning of the names of an epoch's files of dead letters; the place of the first event follows.

    So a repeated micro-batch has the same names.
    """
    return f"{spool.header().spool_id}_spanner.{consumer}_{epoch}_"


def stored_before(position: UnitPosition, first: int, spool: Spool, consumer: str, dead_letters: DeadLetters) -> int:
    """The dead letters of a micro-batch from epoch ``first`` on that are of events before a position."""
    prefixes = [dead_letter_prefix(spool, consumer, epoch) for epoch in range(first, position.epoch)]
    last = dead_letter_prefix(spool, consumer, position.epoch)

    def is_before(name: str) -> bool:
        place = name.removeprefix(last) if name.startswith(last) else ""
        return not place.isdecimal() or int(place) < position.events

    return sum(file.count for file in dead_letters.files(None, *prefixes, last) if is_before(file.name))


def check_continues(position: UnitPosition, first: int) -> None:
    """Checks that no events lie between the applied ones and the next ones.

    Raises:
        SpoolError: the destination is older than the spool's record of this sink.
    """
    if position.epoch < first:
        raise SpoolError(
            f"the destination has the changes of the epochs before {position.epoch} (table {TABLE}), and the sink"
            f" continues with epoch {first}: the destination was restored, or that row was removed",
            hint=CONTINUES_ELSEWHERE,
        )


def _put(
    dead_letters: DeadLetters, spool: Spool, consumer: str, events: EventsByPlace, rejected: list[Rejection]
) -> None:
    """Writes rejected changes as dead letters, under names that a repeated micro-batch writes again."""
    ordered = sorted(rejected, key=lambda one: (one.change.table, one.change.at))
    for (table, epoch), found in groupby(ordered, key=lambda one: (one.change.table, one.change.at[0])):
        held = list(found)
        rows = events.at(epoch, [one.change.at[1] for one in held])
        name = f"{dead_letter_prefix(spool, consumer, epoch)}{held[0].change.at[1]}"
        dead_letters.put(table, name, rows, [one.why for one in held])


def _reports(first: int, written: WrittenUnits) -> Iterator[TaskReport]:
    for table, count in written.applied.items():
        yield TaskReport(first, table, events=count)
    ordered = sorted(written.rejected, key=lambda one: one.change.table)
    for table, found in groupby(ordered, key=lambda one: one.change.table):
        reasons = [one.brief for one in found]
        why = written.stopped.get(table, reasons[0])
        yield TaskReport(first, table, rejected=len(reasons), why=why, stopped=table in written.stopped)
    if written.stored:
        yield TaskReport(first, rejected=written.stored)
    for (table, column), count in written.omitted.items():
        yield TaskReport(first, table, own=orjson.dumps((column, count)).decode())


def omitted_of(report: TaskReport) -> tuple[str, int]:
    """The column that was omitted, empty for whole changes, and of how many changes, by a report."""
    column, count = orjson.loads(report.own)
    return column, count
