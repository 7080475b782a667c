"""Delivers into another Spanner database: configures :mod:`spark_sink.sinks.spanner.source`, and reports its writes."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from connector.config.loading import Config
from connector.log import Log
from connector.spool.backfill.records import document_of, unfinished_tables
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sinks.spanner.config import Applying, SpannerConfig
from spark_sink.sinks.spanner.connection import key_of
from spark_sink.sinks.spanner.creation import Creation, create_missing, prepare
from spark_sink.sinks.spanner.destination_tables import (
    IN_ORDER,
    DestinationDatabase,
    awaited_destination,
    circular_references,
    late_parents,
)
from spark_sink.sinks.spanner.source import SpannerPlace, SpannerSinkSource, are_held, omitted_of
from spark_sink.sinks.spanner.writing.cut_store import SpannerCutStore
from spark_sink.sinks.spanner.writing.destination_names import DestinationNames
from spark_sink.sinks.spanner.writing.former_progress import contradiction_at_start
from spark_sink.sources.changes.admission import EpochWeight
from spark_sink.sources.changes.known_tables import KnownTables

_log = Log(__name__)


class SpannerDelivery(Delivery):
    """Delivers to ``sink.database``.

    Raises:
        SpannerCdcError: the database cannot be used, or cannot take the backfill that is delivered.
    """

    source = SpannerSinkSource

    def __init__(self, config: Config, sink: SpannerConfig, feed: Feed) -> None:
        super().__init__(config, feed)
        self._sink = sink
        self._target = sink.address(config.source)
        self._applying = Applying.of(sink)
        self._creation = Creation.of(config, sink)
        self._tables = KnownTables(self._spool)
        self._created: Mapping[str, frozenset[str]] = {}
        self._new: list[str] = []
        with feed.reporting_retries(self.consumer):
            found = prepare(self._target)
        self._dialect = found.dialect.name
        self._is_ordered = feed.is_backfill and not feed.is_repair
        if self._is_ordered:
            self._check_order(found)
        if feed.is_backfill and config.source.skip_transaction_tags:
            _log.warning(
                "a backfill overwrites rows that the destination's own users have changed since its timestamp",
                action="backfill_overwrites",
                database=self._target.path,
            )

    @property
    def destination(self) -> str:
        """The database and the mode."""
        return f"{self._target.path}, mode {self._sink.mode}"

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.spanner.source.SpannerSinkSource`."""
        source = self._config.source.address
        place = SpannerPlace(self._target, self._sink.transaction_tag, self.dead_letters.root, source, self._creation)
        return {**super().options, "place": place.to_text(), "applying": self._applying.to_text()}

    def warning_at_start(self) -> str:
        """Says where the bookkeeping table has applied epochs that the spool does not know of."""
        if self.feed.is_backfill:
            return ""
        with self.feed.reporting_retries(self.consumer):
            key = key_of(self._spool, self.consumer)
            return contradiction_at_start(self._spool, self.consumer, key, self._target)

    def run(self, reports: DataFrame) -> str:
        """Creates what the destination lacks, and applies a micro-batch."""
        self._new = self._create(self._creation) if self._creation else []
        return super().run(reports)

    def finish(self, reports: Sequence[TaskReport]) -> list[str]:
        """Says what was created, and what was left out of changes."""
        created = [f"created {', '.join(self._new)}"] if self._new else []
        return [*super().finish(reports), *created, *_omitted(reports)]

    def cut_store(self, spark: SparkSession) -> CutStore:
        """The sink's row in the destination."""
        del spark
        key = key_of(self._spool, self.consumer)
        return SpannerCutStore(self._target, self._sink.transaction_tag, self._dialect, key)

    def waiting(self) -> bool:
        """Nothing while a backfill is not done: changes wait for it. Epochs that are held are left for the next run."""
        if self.feed.is_backfill or not super().waiting():
            return super().waiting()
        first = self._next_epoch()
        if unfinished_tables(self._spool, self.consumer):
            return False
        if StartedBatches(self._spool, self.consumer).at(first) is not None:
            return True
        epochs = self._spool.summaries(first, self._last_epoch())
        return not are_held(self._spool, [EpochWeight.of(epoch, bool) for epoch in epochs], time.time_ns())

    def _create(self, creation: Creation) -> list[str]:
        """Creates what the destination lacks of the spool's tables; each column is looked for once.

        The task looks for what was not there then, and is in the source by the time that a change has it.
        """
        wanted = creation.wanted(self._tables)
        if wanted == self._created:
            return []
        created = create_missing(
            wanted, creation.source, self._target, creation.creates, with_metadata=creation.with_metadata
        )
        self._created = wanted
        if self._is_ordered:
            self._check_order(awaited_destination(self._target))
        return created

    def _check_order(self, there: DestinationDatabase) -> None:
        """Checks that a backfill's rows can be written in the order in which its tables are read.

        The rows of a repair are few: those that have to come together are written together.

        Raises:
            SinkError: a row may refer to one that comes later.
        """
        names = DestinationNames(self._applying, there.tables)
        written = {names.table(name) for name in self._tables.names()}
        read = [names.table(table.table) for table in document_of(self._spool).tables]
        for why in (*circular_references(there.relations, written), *late_parents(there.relations, read)):
            raise SinkError(why, hint=f"{IN_ORDER[0].upper()}{IN_ORDER[1:]}.")


def _omitted(reports: Sequence[TaskReport]) -> list[str]:
    """Warnings about the parts of changes that were omitted, because the source no longer has them."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in reports:
        if one.own:
            column, count = omitted_of(one)
            counts[one.table, column] += count
    found = []
    for (table, column), count in sorted(counts.items()):
        what = f"without column {column}" if column else "left out"
        line = f"{count} changes of {table} {what}: the source no longer has {'it' if column else 'that table'}"
        _log.warning(
            "changes are applied without what the source no longer has", table=table, column=column, changes=count
        )
        found.append(line)
    return found
