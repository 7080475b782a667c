"""Delivers into tables: Spark reads the events, and merges them itself.

While a backfill of a table is not done, its deleted rows are kept with ``_is_deleted``: else a row of the backfill that
comes after its DELETE would be there again. They are removed once the backfill is done, also where no change follows
(:mod:`spark_sink.settling`); the spool records which tables have some (:mod:`spark_sink.sinks.tables.kept_rows`).

One table that cannot be written stops no other (:mod:`spark_sink.sinks.tables.stopped_tables`).
"""

import logging
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from connector import log
from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.spool.backfill.records import backfills, unfinished_tables
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from connector.spool.storage.locations import absolute
from spark_sink.errors import SinkError, TableError
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.delivery import Delivered, is_behind, own_checkpoint_of, report
from spark_sink.sinks.shared.replayed_spools import stream_spool
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.kept_rows import KeptRows
from spark_sink.sinks.tables.libraries import missing_library
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.source import TablesSource
from spark_sink.sinks.tables.stopped_tables import ROWS_KEPT, StoppedTables, with_dead_letters


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
        self._dead_letters = DeadLetters(absolute(sink.dead_letters))
        self._stopped: StoppedTables | None = None
        self._unsettled: dict[str, str] = {}
        self._later = frozenset[str]()
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
        """The options of :class:`spark_sink.sinks.tables.source.TablesSource`."""
        return {"spool": self._spool.path, "consumer": self.consumer}

    def run(self, reports: DataFrame) -> str:
        """Brings the events of a micro-batch into their tables; returns a line for the log.

        The events of a table that is stopped, or that cannot be written, become dead letters.
        """
        unfinished = unfinished_tables(self._stream)  # after the rows were sealed: a backfill recorded later has them
        writer, stopped = self._made_writer(), self._stopped_tables()
        if self._removes and unfinished:
            self._kept.add(unfinished)
        # a backfill that is done may have left dead letters
        keeps = unfinished | self._kept.tables() if self._removes else unfinished
        written = writer.write(reports, tombstones=keeps, of_backfill=self._of_backfill, is_stopped=stopped.has)
        found = written.merged
        if not found.events:
            return ""
        stopped.stop(written.stopped)
        refused = stopped.put(found.events, found.first, found.last)
        events = sum(found.events.values()) - refused
        tables = [table for table in found.events if not stopped.has(table)]
        states = {**dict.fromkeys([*stopped.resumed, *found.events], ""), **self._unsettled, **stopped.reasons}
        report(self._spool, self.consumer, self._keeps, Delivered(found.first, events, refused, 0, states))
        rejected = f", {refused} to the dead letters at {self._dead_letters.root}" if refused else ""
        return f"{events} events to {len(tables)} tables{rejected}"

    def drain(self) -> None:
        """Bounds the delivery by the newest epoch of now."""
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """True if an epoch that was sealed before the drain is not recorded as done."""
        return is_behind(self._spool, self.consumer, self._last)

    def keep_deleted(self, table: str, unfinished: frozenset[str]) -> frozenset[str]:
        """Has the deleted rows of a table kept, where a backfill may have left dead letters of it.

        Returns:
            The tables whose deleted rows are kept.
        """
        if not self._removes or not backfills(self._stream):
            return unfinished
        self._kept.add(unfinished | {table})
        return unfinished | self._kept.tables()

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """True if a table whose backfill is done may have deleted rows."""
        return self._removes and not self._kept.tables() <= unfinished | self._later

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        """Removes the deleted rows of tables whose backfill is done.

        A table with dead letters keeps them, for rows of the backfill may be among those, and so does one of which they
        cannot be removed, which is reported as stopped: the next start tries it again.
        """
        due = self._kept.tables() - unfinished
        later = with_dead_letters(self._dead_letters, due)
        failed: dict[str, str] = {}
        for table in sorted(due - later):
            try:
                self._made_writer().remove_deleted(spark, table)
            except TableError as error:
                failed[table] = f"{ROWS_KEPT}: {error}"
        self._later = later | failed.keys()
        if due - self._later:
            self._kept.remove(due - self._later)
        self._report_unsettled(failed, due - later)

    def _report_unsettled(self, failed: Mapping[str, str], due: frozenset[str]) -> None:
        """Reports the tables whose deleted rows could not be removed, and those whose rows are removed now."""
        before = report_of(self._stream, self.consumer)
        states = {table: failed.get(table, "") for table in due}
        self._unsettled = {**{table: why for table, why in self._unsettled.items() if table not in due}, **failed}
        after = before.after(0, 0, states)
        if after != before:
            write_report(self._stream, self.consumer, after)
        for table, why in failed.items():
            log.say("spark_sink", f"table {table}: {why}", action="rows_not_removed", level=logging.ERROR, table=table)

    def _stopped_tables(self) -> StoppedTables:
        self._stopped = self._stopped or StoppedTables(self._spool, self.consumer, self._dead_letters)
        return self._stopped

    def _made_writer(self) -> TablesWriter:
        self._writer = self._writer or TablesWriter(self._spool, self._options, self.consumer, self._keeps)
        return self._writer
