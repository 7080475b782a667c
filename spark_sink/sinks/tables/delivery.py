"""Delivers into tables: Spark reads the events, and merges them itself.

While a backfill of a table is not done, its deleted rows are kept with ``_is_deleted``: else a row of the backfill that
comes after its DELETE would be there again. They are removed once the backfill is done, also where no change follows
(:mod:`spark_sink.settling`); the spool records which tables have some (:mod:`spark_sink.sinks.tables.kept_rows`). The
same goes for what rows that are updated meanwhile note (:mod:`spark_sink.sinks.tables.lake_table`).

A start that finds none of the sink's dead letters, as on a volume that is not mounted, does not know the rows that a
replay may bring later: it keeps every deleted row, and removes none.

One table that cannot be written stops no other (:mod:`spark_sink.sinks.tables.stopped_tables`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from connector import log
from connector.config.loading import Config
from connector.spool.backfill.records import RecordedBackfill, backfills, unfinished_among, unfinished_tables
from connector.spool.sink_report import SinkReport, report_of, write_report
from spark_sink.errors import SinkError, TableError
from spark_sink.sinks.shared.dead_letters import folder_of
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore
from spark_sink.sinks.shared.replayed_spools import not_found
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.formats.session import writing
from spark_sink.sinks.tables.kept_rows import KeptRows
from spark_sink.sinks.tables.lake_table import CUTS, table_name
from spark_sink.sinks.tables.libraries import missing_library
from spark_sink.sinks.tables.losses.written_tables import TableNow, WrittenTables
from spark_sink.sinks.tables.maintenance.maintenance import Maintenance, forget_failures
from spark_sink.sinks.tables.maintenance.upkeeps import upkeep_of
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.rejected.rejected_rows import RejectedRows
from spark_sink.sinks.tables.source import TablesSource
from spark_sink.sinks.tables.stopped_tables import ROWS_KEPT, StoppedTables, with_dead_letters


class TablesDelivery(Delivery):
    """Delivers into the tables of ``sink.path`` or ``sink.database``.

    Raises:
        SinkError: Spark lacks the format's library.
    """

    source = TablesSource

    def __init__(self, config: Config, sink: TablesConfig, feed: Feed) -> None:
        if missing := missing_library(sink, config.spark.config):
            raise SinkError(missing)
        super().__init__(config, feed)
        self._sink = sink
        self._writer: TablesWriter | None = None
        self._removes = not feed.is_backfill and sink.mode != "append"
        self._stopped: StoppedTables | None = None
        self._rejected = RejectedRows(feed, self.dead_letters, sink.mode)
        self._searched: tuple[int, frozenset[str]] | None = None
        self._unsettled: dict[str, str] = {}
        self._tables = WrittenTables(feed, self.consumer)
        self._written: Mapping[str, TableNow] = {}
        self._later = frozenset[str]()
        self._is_lacking: bool | None = None
        self._maintenance = None
        self._forgets_failures = sink.maintenance == "none" and not feed.is_backfill
        if sink.maintenance != "none" and sink.format != "parquet" and not feed.is_backfill:
            all_tables = sink.maintenance == "all"
            self._maintenance = Maintenance(feed.stream, sink.name, sink.cuts.keep, all_tables=all_tables)
        self._kept = KeptRows(feed.stream, sink.name, lambda: self._made_writer().tables())

    @property
    def destination(self) -> str:
        """The format, the place and the mode."""
        return f"{self._sink.format} tables in {self._sink.options.where}, mode {self._sink.mode}"

    def run(self, reports: DataFrame) -> str:
        """Brings the events of a micro-batch, which are its rows, into their tables.

        The events of a table that is stopped, or that cannot be written, become dead letters.
        """
        known = backfills(self.feed.stream)  # after the rows were sealed: one recorded later has them
        unfinished = unfinished_among(self.feed.stream, known)
        writer, stopped = self._made_writer(), self._stopped_tables()
        if self._removes:
            self._record_kept(known, unfinished)
        # a backfill that is done may have left dead letters
        keeps = unfinished | self._kept.tables() if self._removes else unfinished
        written = writer.write(
            reports,
            tombstones=keeps,
            of_backfill=self.feed.is_backfill,
            is_stopped=stopped.has,
            met=self._tables.met,
        )
        found, self._written = written.merged, written.tables
        if not found.events:
            return ""
        stopped.record(self.feed.stream, found.first)
        stopped.stop(written.stopped)
        waiting = stopped.put(found.events, found.first, found.last)
        found_of_tables = []
        for table, events in found.events.items():
            rows = [] if stopped.has(table) else self._rejected.rejected(table, found.first, found.last)
            rejected = waiting[table] + len(rows)
            why = next((one.reason for one in rows), "")
            found_of_tables.append(TaskReport(found.first, table, events - rejected, rejected, why))
        tables = [table for table in found.events if not stopped.has(table)]
        if self._maintenance is not None:
            self._maintenance.written(map(table_name, tables))
        return self._record(
            found_of_tables, [f"{sum(one.events for one in found_of_tables)} events to {len(tables)} tables"]
        )

    def _states(self, reports: Sequence[TaskReport]) -> Mapping[str, str]:
        """Also of tables that no event is of."""
        stopped = self._stopped_tables()
        return {**dict.fromkeys(stopped.resumed, ""), **super()._states(reports), **self._unsettled, **stopped.reasons}

    def _with_tables(self, report: SinkReport) -> SinkReport:
        return self._tables.after(report, self._written)

    def keep_deleted(self, table: str, unfinished: frozenset[str]) -> frozenset[str]:
        """Has the deleted rows of a table kept, where a backfill may have left dead letters of it.

        Returns:
            The tables whose deleted rows are kept.
        """
        if not self._removes or not backfills(self.feed.stream):
            return unfinished
        self._kept.add(unfinished | {table})
        return unfinished | self._kept.tables()

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """True if a table whose backfill is done may have deleted rows."""
        return self._removes and not self._kept.tables() <= unfinished | self._later

    def settle(self, spark: SparkSession, unfinished: frozenset[str], *, is_replay: bool = False) -> None:
        """Removes the deleted rows of tables whose backfill is done.

        A table with dead letters keeps them, because rows of the backfill may be among those, and so does a table whose
        kept rows cannot be removed: it is reported as stopped, and the next start tries again. While dead letters are
        not found, they may be of any table; only a replay knows that there are none.
        """
        due = self._kept.tables() - unfinished
        is_lacking = not is_replay and self._lacks_dead_letters()
        later = due if is_lacking else with_dead_letters(self.dead_letters, due)
        failed: dict[str, str] = {}
        for table in sorted(due - later):
            try:
                if self._sink.deletes == "apply":
                    self._made_writer().remove_deleted(spark, table)
                else:
                    self._made_writer().remove_notes(spark, table)
            except TableError as error:
                failed[table] = f"{ROWS_KEPT}: {error}"
        self._later = later | failed.keys()
        if due - self._later:
            self._kept.remove(due - self._later)
        self._report_unsettled(failed, due - later)

    def unsettled(self) -> frozenset[str]:
        """The tables with deleted rows that are kept."""
        return self._kept.tables() if self._removes and self._sink.deletes == "apply" else frozenset()

    def cut_store(self, spark: SparkSession) -> CutStore | None:
        """The table of cuts beside the tables; Parquet has no versions."""
        if self._sink.format == "parquet":
            return None
        spool_id = self.feed.spool.header().spool_id
        return CutRecords(spark, self._sink.options, spool_id, self.consumer, self._sink.cuts.keep)

    def maintain(self, spark: SparkSession, check: Callable[[], None]) -> None:
        """Makes the files of a table fewer, and removes its old versions, where that is due; also of the table of cuts.

        A table whose backfill is not done is left out: another process writes it, too.
        """
        if self._maintenance is None:
            if self._forgets_failures:
                self._forgets_failures = False
                check()
                forget_failures(self._spool, self.consumer)
            return
        if self._sink.format == "delta":  # that of Iceberg expires as it is compacted
            self._maintenance.written([CUTS])
        table = self._maintenance.next_table(self._filled)
        if table is not None:
            check()
            with writing(spark):
                self._maintenance.look(table, upkeep_of(spark, self._sink.options))

    def _filled(self) -> frozenset[str]:
        """The tables whose backfill is not done, also one that began after the last micro-batch."""
        return frozenset(map(table_name, unfinished_tables(self.feed.stream)))

    def _record_kept(self, known: Sequence[RecordedBackfill], unfinished: frozenset[str]) -> None:
        """Records the tables whose deleted rows are kept from now on: rows of a backfill may come after their DELETE.

        These are also in its dead letters. The store is searched when a backfill was recorded, or is done with a table,
        since it was searched last. Where dead letters are not found, they may be of any table.
        """
        tables, state = set(unfinished), (len(known), unfinished)
        if known and state != self._searched:
            folders = self.dead_letters.folders(*(f"{one.spool.header().spool_id}_" for one in known))
            of_backfills = {table.table for one in known for table in one.document.tables}
            tables |= {table for table in of_backfills if folder_of(table) in folders}
        if self._lacks_dead_letters():
            tables |= {table for table in self._made_writer().tables() if self.keeps(table)}
        self._kept.add(frozenset(tables))
        self._searched = state

    def _lacks_dead_letters(self) -> bool:
        """True if the store had none of the sink's dead letters when this process looked first."""
        if self._is_lacking is None:
            stream = self.feed.stream
            report = report_of(stream, self.consumer)
            self._is_lacking = not_found(self.consumer, self.dead_letters, report, backfills(stream)) > 0
        return self._is_lacking

    def _report_unsettled(self, failed: Mapping[str, str], due: frozenset[str]) -> None:
        """Reports the tables whose deleted rows could not be removed, and those whose rows are removed now."""
        before = report_of(self.feed.stream, self.consumer)
        states = {table: failed.get(table, "") for table in due}
        self._unsettled = {**{table: why for table, why in self._unsettled.items() if table not in due}, **failed}
        after = before.after(0, 0, states)
        if after != before:
            write_report(self.feed.stream, self.consumer, after)
        for table, why in failed.items():
            log.say("spark_sink", f"table {table}: {why}", action="rows_not_removed", level=logging.ERROR, table=table)

    def _stopped_tables(self) -> StoppedTables:
        self._stopped = self._stopped or StoppedTables(self._spool, self.consumer, self.dead_letters)
        return self._stopped

    def _made_writer(self) -> TablesWriter:
        self._writer = self._writer or TablesWriter(
            self.feed,
            self._sink.options,
            self.consumer,
            self.keeps,
            rejected=self._rejected,
            check=lambda: self.check(),
        )
        return self._writer
