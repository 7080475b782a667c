"""Delivers into another Spanner database: configures :mod:`spark_sink.sinks.spanner.source`, and reports its writes."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.log import Log
from connector.spool.backfill.records import unfinished_tables
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.delivery import Delivered, is_behind, new_reasons, own_checkpoint_of, report, stopped_of
from spark_sink.sinks.shared.replayed_spools import stream_spool
from spark_sink.sinks.shared.sink_stream import reporting_of
from spark_sink.sinks.spanner.config import Applying, SpannerConfig, Target
from spark_sink.sinks.spanner.creation import Creation, create_missing, prepare
from spark_sink.sinks.spanner.destination_tables import (
    IN_ORDER,
    Destination,
    awaited_destination,
    circular_references,
)
from spark_sink.sinks.spanner.source import SpannerPlace, SpannerSinkSource
from spark_sink.sources.changes.known_tables import KnownTables

_log = Log(__name__)


class SpannerDelivery:
    """Delivers to ``sink.database``.

    Args:
        config: the configuration.
        sink: its sink.

    Attributes:
        consumer: the sink's name.

    Raises:
        SpannerCdcError: the database cannot be used, or cannot take the backfill whose spool it is.
    """

    def __init__(self, config: Config, sink: SpannerConfig) -> None:
        self.consumer = sink.name
        self._config = config
        self._sink = sink
        self._target = Target.of(sink, config.source)
        self._applying = Applying.of(sink)
        self._creation = Creation.of(config, sink)
        self._spool = Spool.at(absolute(config.spool.path))
        self._is_of_backfill = stream_spool(self._spool) is not self._spool
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._dead_letters = absolute(sink.dead_letters)
        self._tables = KnownTables(self._spool)
        self._created: Mapping[str, frozenset[str]] = {}
        self._reported: dict[str, str] = {}
        self._last: int | None = None
        with reporting_of(self._spool, self.consumer):
            found = prepare(self._target)
        if self._is_of_backfill:
            self._check_order(found)

    @property
    def destination(self) -> str:
        """The database and the mode."""
        return f"{self._target.path}, mode {self._sink.mode}"

    @property
    def checkpoint(self) -> str:
        """A folder of its own: another sink's checkpoint counts epochs as done that are not done here."""
        return own_checkpoint_of(self._config, self._sink)

    @property
    def source(self) -> type[DataSource]:
        """Applies the epochs."""
        return SpannerSinkSource

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.spanner.source.SpannerSinkSource`."""
        source = Target.of_source(self._config.source)
        place = SpannerPlace(self._target, self._sink.transaction_tag, self._dead_letters, source, self._creation)
        return {
            "spool": self._spool.path,
            "consumer": self.consumer,
            "place": place.to_text(),
            "applying": self._applying.to_text(),
        }

    def run(self, reports: DataFrame) -> str:
        """Applies a micro-batch and reports its events and what was rejected."""
        created = self._create(self._creation) if self._creation else []
        rows = reports.collect()
        if not rows:
            return ""
        events, refused = sum(row.events for row in rows), sum(row.refused for row in rows)
        rejected = f", {refused} to the dead letters at {self._dead_letters}" if refused else ""
        made = [f"created {', '.join(created)}"] if created else []
        return "; ".join([f"{events} events{rejected}", *made, *self._report(rows, events, refused)])

    def drain(self) -> None:
        """Bounds the delivery by the newest epoch of now."""
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """True if an epoch that was sealed before the drain is not recorded as done, and does not wait for more."""
        if not self._is_of_backfill and unfinished_tables(self._spool):
            return False
        return is_behind(self._spool, self.consumer, self._last)

    def _create(self, creation: Creation) -> list[str]:
        """Creates what the destination lacks of the spool's tables; each column is looked for once.

        The task looks for what was not there then, and is in the source by the time that a change has it.
        """
        wanted = creation.wanted(self._tables)
        if wanted == self._created:
            return []
        created = create_missing(wanted, creation.source, self._target)
        self._created = wanted
        if self._is_of_backfill:
            self._check_order(awaited_destination(self._target))
        return created

    def _check_order(self, there: Destination) -> None:
        """Checks that a backfill's rows, which are read table by table, can be written in that order.

        Raises:
            SinkError: a row may refer to one that comes later.
        """
        written = {self._applying.table(name) for name in self._tables.names()}
        for why in circular_references(there.relations, written):
            raise SinkError(why, hint=f"{IN_ORDER[0].upper()}{IN_ORDER[1:]}.")

    def _report(self, rows: Sequence[Row], events: int, refused: int) -> list[str]:
        """Writes the sink's report; returns each table's new reason for rejected events."""
        first = min(row.first for row in rows)
        report(self._spool, self.consumer, self._keeps, Delivered(first, events, refused, 0, stopped_of(rows)))
        return [*new_reasons(rows, self._reported), *_omitted(rows)]


def _omitted(rows: Sequence[Row]) -> list[str]:
    """Warnings about the parts of changes that were omitted, because the source no longer has them."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.omitted:
            counts[row.table, row.column] += row.omitted
    found = []
    for (table, column), count in sorted(counts.items()):
        what = f"without column {column}" if column else "left out"
        line = f"{count} changes of {table} {what}: the source no longer has {'it' if column else 'that table'}"
        _log.warning(
            "changes are applied without what the source no longer has", table=table, column=column, changes=count
        )
        found.append(line)
    return found
