"""Delivers into BigQuery: options of :mod:`spark_sink.sinks.bigquery.source`, and the driver's work after its tasks.

Where rows are appended, the driver commits the tasks' streams, each table's together. Where they are loaded and merged,
it merges the staging tables, in the order of the parts. Their names depend only on the spool and the epoch, so that a
micro-batch which is repeated does nothing twice.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.core.timestamps import SECOND
from connector.spool.backfill.records import unfinished_tables
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.bigquery import source as bigquery_source
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.merging.loads import from_text
from spark_sink.sinks.bigquery.merging.staged import StagedRows, drop_notes, has_notes
from spark_sink.sinks.bigquery.pacing.pace import loaded, release
from spark_sink.sinks.bigquery.pacing.quotas import Pacing
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, BigQueryTable, bigquery_table
from spark_sink.sinks.bigquery.writing.parts import PinnedOptions, dead_letter_prefix
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.delivery import Delivered, is_behind, own_checkpoint_of, report
from spark_sink.sinks.shared.replayed_spools import stream_spool

_PART_BYTES, _PART_BYTES_OF_A_LOAD = 32 * 1024 * 1024, 128 * 1024 * 1024
"""Bytes of segments in a part. Loads are divided by table instead, so that each table is merged once."""

_AT_A_TIME = 8
"""Tables whose streams are committed, or into which rows are merged, at the same time."""

_REPORTED_GATHERING = 10
"""Seconds: a shorter time for which changes gather is not reported."""

_CLEANUP_INTERVAL = 100
"""Micro-batches between two removals of old entries from the commit log."""


class BigQueryDelivery:
    """Delivers into tables of BigQuery.

    Args:
        config: the configuration.
        sink: its sink.

    Attributes:
        consumer: the sink's name.
    """

    def __init__(self, config: Config, sink: BigQueryConfig) -> None:
        self.consumer = sink.name
        self._config = config
        self._sink = sink
        self._pinned = options_of(config, sink)
        self._target = sink.target(config.source)
        self._spool = Spool.at(absolute(config.spool.path))
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._stream = stream_spool(self._spool)
        self._is_backfill = self._stream is not self._spool
        self._pacing = Pacing.of(sink.mode, 0 if self._is_backfill else sink.max_staleness)
        self._gathering = 0
        self._delivered = 0
        self._last: int | None = None
        self._reported: dict[str, str] = {}

    @property
    def destination(self) -> str:
        """Project, dataset and mode, and the time for which changes gather in any case."""
        gathering = f", merged every {self._pacing.gather // SECOND} s" if self._pacing.gather else ""
        return f"BigQuery, {self._target.project}.{self._sink.dataset}, mode {self._sink.mode}{gathering}"

    @property
    def checkpoint(self) -> str:
        """A folder of its own: another sink's checkpoint counts epochs as done that are not done here."""
        return own_checkpoint_of(self._config, self._sink)

    @property
    def source(self) -> type[DataSource]:
        """The Spark source whose tasks write the rows."""
        return bigquery_source.BigQuerySinkSource

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.bigquery.source.BigQuerySinkSource`."""
        completion = Completion.of(self._config.source)
        return {
            "spool": absolute(self._config.spool.path),
            "consumer": self.consumer,
            "pinned": self._pinned.to_text(),
            "dead_letters": absolute(self._sink.dead_letters),
            "endpoint": self._target.endpoint,
            "grpc_endpoint": self._target.grpc_endpoint,
            "location": self._sink.location or "",
            "max_staleness": str(self._sink.max_staleness),
            "max_bytes": str(self._config.spool.max_bytes),
            "completion": completion.to_text() if completion else "",
        }

    def run(self, reports: DataFrame) -> str:
        """Runs the tasks, and makes their rows visible; returns a line for the log."""
        rows = sorted(reports.collect(), key=attrgetter("table", "part"))
        if not rows:
            return ""
        options = PinnedOptions.from_text(rows[0].options)
        tables = [list(of_table) for _, of_table in groupby(rows, attrgetter("table"))]
        if options.table_options.mode == MERGE_LOAD:
            loads = sum(len(from_text(row.wrote)) for row in rows)
            loaded(self._spool, rows[0].first, loads, name=self.consumer)
            self._merge(options, tables)
        elif options.table_options.mode != MERGE:
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                list(threads.map(lambda of_table: self._commit(options, of_table), tables))
        self._forget()
        rejected = sum(row.rejected for row in rows)
        dead_letters = f", {rejected} to the dead letters at {self._sink.dead_letters}" if rejected else ""
        incomplete = sum(row.incomplete for row in rows)
        lacking = f", {incomplete} without columns that Spanner no longer keeps" if incomplete else ""
        summary = f"{sum(row.rows for row in rows)} rows to {len(tables)} tables{lacking}{dead_letters}"
        return "; ".join(
            [
                summary,
                *self._paced(len(tables)),
                *self._report(
                    Delivered(
                        rows[0].first,
                        sum(row.rows for row in rows),
                        rejected,
                        incomplete,
                        {row.table: row.stopped for row in rows},
                    )
                ),
            ]
        )

    def drain(self) -> None:
        """Has everything delivered that is sealed by now."""
        self._last = release(self._spool, name=self.consumer)

    def waiting(self) -> bool:
        """True if an epoch that was sealed before the drain is not recorded as done."""
        return is_behind(self._spool, self.consumer, self._last)

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """True if there are notes of changes for a backfill that is done."""
        return not self._is_backfill and has_notes(self._stream, unfinished)

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        """Drops their tables."""
        del spark
        drop_notes(self._stream, self._target, unfinished)

    def _paced(self, tables: int) -> list[str]:
        """The time for which the quotas make changes gather, if it changed by half or more since it was reported."""
        seconds = self._pacing.interval(tables) // SECOND
        is_reported = self._gathering <= 1.5 * seconds <= 2.25 * self._gathering
        if seconds < _REPORTED_GATHERING or seconds <= self._pacing.gather // SECOND or is_reported:
            return []
        self._gathering = seconds
        return [f"with {tables} tables changes gather for up to {seconds} s, for BigQuery's quotas (bigquery-costs.md)"]

    def _report(self, found: Delivered) -> list[str]:
        """Records the result of a micro-batch; returns why tables are stopped, each reason once."""
        report(self._spool, self.consumer, self._keeps, found)
        news = [why for table, why in found.stopped.items() if why and why != self._reported.get(table)]
        self._reported |= found.stopped
        return [f"{why}, and replay its dead letters" for why in news]

    def _forget(self) -> None:
        """Removes old entries at intervals, because that lists all entries."""
        self._delivered += 1
        if self._delivered % _CLEANUP_INTERVAL == 0:
            CommitLog(self._spool, self.consumer).forget()

    def _commit(self, options: PinnedOptions, rows: Sequence[Row]) -> None:
        """Makes a table's rows of the micro-batch visible, all at once."""
        first, table = rows[0].first, rows[0].table
        commit_log = CommitLog(self._spool, self.consumer)
        at = next(self._spool.manifests(first, first)).identity
        entry = commit_log.find(first, table, at)
        streams = tuple(row.wrote for row in rows if row.wrote)
        if entry is None:
            batch = dead_letter_prefix(self._spool.header().spool_id, first)
            store = DeadLetters(absolute(self._sink.dead_letters))
            store.discard(table, batch, but={row.dead_letters for row in rows})  # of attempts that do not count
        if entry is None and streams:
            entry = commit_log.enter(first, table, streams, at)
        if entry is not None and not entry.committed:
            target = replace(self._target, project=options.project)
            BigQueryWriter(target, self._table(options, rows)).commit(
                entry.streams, entry=commit_log.path(first, table)
            )
            commit_log.committed(first, entry)

    def _merge(self, options: PinnedOptions, tables: Sequence[Sequence[Row]]) -> None:
        """Merges the loads of tables, each table's one after the other."""
        target = replace(self._target, project=options.project)
        unfinished = unfinished_tables(self._stream)  # after the rows were sealed, as StagedRows wants it
        staged = StagedRows(
            self._stream, target, unfinished, of_backfill=self._is_backfill, prunes=self._sink.prune_by_keys
        )

        def merge(rows: Sequence[Row]) -> None:
            loads = [load for row in rows for load in from_text(row.wrote)]
            for load in loads:
                staged.merge(self._table(options, rows), load)

        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            list(threads.map(merge, tables))

    def _table(self, options: PinnedOptions, rows: Sequence[Row]) -> BigQueryTable:
        return bigquery_table(self._spool.schema(rows[0].schema_key), options.table_options)


def options_of(config: Config, sink: BigQueryConfig) -> PinnedOptions:
    """The options that decide what is written."""
    part_bytes = _PART_BYTES_OF_A_LOAD if sink.mode == MERGE_LOAD else _PART_BYTES
    return PinnedOptions(sink.target(config.source).project, sink.table_options(), part_bytes)
