"""Delivers into tables: Spark reads the events, and merges them itself.

While a backfill of a table is not done, its deleted rows are kept with ``_is_deleted``: else a row of the backfill that
comes after its DELETE would be there again. They are removed once the backfill is done, also where no change follows
(:mod:`spark_sink.settling`); the spool records which tables have some (:mod:`spark_sink.tables.kept_rows`).
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from connector.backfill.records import unfinished_tables
from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.spool.reading import Spool
from connector.storage.locations import absolute
from spark_sink.errors import SinkError
from spark_sink.sink.delivery import Delivered, is_behind, own_checkpoint_of, report
from spark_sink.sink.replayed_spools import stream_spool
from spark_sink.tables.config import TablesConfig
from spark_sink.tables.kept_rows import KeptRows
from spark_sink.tables.libraries import missing_library
from spark_sink.tables.merge_into import TablesWriter
from spark_sink.tables.source import TablesSource


class TablesDelivery:
    """Delivers into the tables of ``sink.path`` or ``sink.database``.

    Args:
        config: the configuration.
        sink: its sink.

    Attributes:
        consumer: the sink's name.

    Raises:
        SinkError: Spark lacks the format's library.
    """

    def __init__(self, config: Config, sink: TablesConfig) -> None:
        if missing := missing_library(sink, config.spark.config):
            raise SinkError(missing)
        self.consumer = sink.name
        self._config = config
        self._sink = sink
        self._options = sink.options
        self._spool = Spool.at(absolute(config.spool.path))
        self._stream = stream_spool(self._spool)
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._writer: TablesWriter | None = None
        self._of_backfill = self._stream is not self._spool
        self._removes = not self._of_backfill and sink.mode == "merge" and sink.deletes == "apply"
        self._kept = KeptRows(self._stream, sink.name, lambda: self._made_writer().tables())
        self._last: int | None = None

    @property
    def destination(self) -> str:
        """The format, the place and the mode."""
        return f"{self._sink.format} tables in {self._options.where}, mode {self._sink.mode}"

    @property
    def checkpoint(self) -> str:
        """A folder of its own: another sink's checkpoint counts epochs as done that are not done here."""
        return own_checkpoint_of(self._config, self._sink)

    @property
    def source(self) -> type[DataSource]:
        """Reads the events."""
        return TablesSource

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.tables.source.TablesSource`."""
        return {"spool": self._spool.path, "consumer": self.consumer}

    def run(self, reports: DataFrame) -> str:
        """Brings the events of a micro-batch into their tables; returns a line for the log."""
        unfinished = unfinished_tables(self._stream)  # after the rows were sealed: a backfill recorded later has them
        writer = self._made_writer()
        if self._removes and unfinished:
            self._kept.add(unfinished)
        found = writer.write(reports, tombstones=unfinished, of_backfill=self._of_backfill)
        if not found.events:
            return ""
        events = sum(found.events.values())
        report(self._spool, self.consumer, self._keeps, Delivered(found.first, events, 0, 0, {}))
        return f"{events} events to {len(found.events)} tables"

    def drain(self) -> None:
        """Bounds the delivery by the newest epoch of now."""
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """Whether an epoch that was sealed before the drain is not recorded as done."""
        return is_behind(self._spool, self.consumer, self._last)

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """Whether a table whose backfill is done may have deleted rows."""
        return self._removes and not self._kept.tables() <= unfinished

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        """Removes the deleted rows of tables whose backfill is done."""
        due = self._kept.tables() - unfinished
        for table in sorted(due):
            self._made_writer().remove_deleted(spark, table)
        self._kept.remove(due)

    def _made_writer(self) -> TablesWriter:
        self._writer = self._writer or TablesWriter(self._spool, self._options, self.consumer, self._keeps)
        return self._writer
