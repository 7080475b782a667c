"""Delivers into BigQuery: options of :mod:`spark_sink.sinks.bigquery.source`, and the driver's work after its tasks.

Where rows are appended, the driver commits the tasks' streams, each table's together. Where they are loaded and merged,
it merges the staging tables, in the order of the parts. Their names depend only on the spool and the epoch, so that a
micro-batch which is repeated does nothing twice.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.core.timestamps import SECOND
from connector.spool.backfill.records import unfinished_tables
from spark_sink.sinks.bigquery import source as bigquery_source
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.cuts.store import BigQueryCuts
from spark_sink.sinks.bigquery.merging.loads import from_text
from spark_sink.sinks.bigquery.merging.staged import StagedRows, drop_notes, has_notes
from spark_sink.sinks.bigquery.pacing.pace import loaded, release
from spark_sink.sinks.bigquery.pacing.quotas import Pacing
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, SCHEMA_IN_DATASET, BigQueryTable, bigquery_table
from spark_sink.sinks.bigquery.writing.parts import PinnedOptions, WrittenPart, dead_letter_prefix
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore
from spark_sink.sinks.shared.reports import TaskReport

_PART_BYTES, _PART_BYTES_OF_A_LOAD = 32 * 1024 * 1024, 128 * 1024 * 1024
"""Bytes of segments in a part. Loads are divided by table instead, so that each table is merged once."""

_AT_A_TIME = 8
"""Tables whose streams are committed, or into which rows are merged, at the same time."""

_REPORTED_GATHERING = 10
"""Seconds: a shorter time for which changes gather is not reported."""

_CLEANUP_INTERVAL = 100
"""Micro-batches between two removals of old entries from the commit log."""


class BigQueryDelivery(Delivery):
    """Delivers into tables of BigQuery."""

    source = bigquery_source.BigQuerySinkSource

    def __init__(self, config: Config, sink: BigQueryConfig, feed: Feed) -> None:
        super().__init__(config, feed)
        self._sink = sink
        self._target = sink.target(config.source)
        part_bytes = _PART_BYTES_OF_A_LOAD if sink.mode == MERGE_LOAD else _PART_BYTES
        self._pinned = PinnedOptions(self._target.project, sink.table_options(), part_bytes)
        self._pacing = Pacing.of(sink.mode, 0 if feed.is_backfill else sink.max_staleness)
        self._gathering = 0
        self._delivered = 0

    @property
    def destination(self) -> str:
        """Project, dataset and mode, and the time for which changes gather in any case."""
        gathering = f", merged every {self._pacing.gather // SECOND} s" if self._pacing.gather else ""
        return f"BigQuery, {self._target.project}.{self._sink.dataset}, mode {self._sink.mode}{gathering}"

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.bigquery.source.BigQuerySinkSource`."""
        return {
            **super().options,
            "pinned": self._pinned.to_text(),
            "completion": Completion.text_of(self._config.source, deletes=not self._pinned.table_options.merges),
            "target": self._target.to_text(),
            "location": self._sink.location or "",
            "max_staleness": str(self._sink.max_staleness),
            "max_bytes": str(self._config.spool.max_bytes),
        }

    def finish(self, reports: Sequence[TaskReport]) -> list[str]:
        """Makes the rows that the tasks have written visible."""
        parts = sorted(
            (WrittenPart.of(one) for one in reports), key=lambda written: (written.report.table, written.part)
        )
        options = PinnedOptions.from_text(parts[0].options)
        tables = [list(of_table) for _, of_table in groupby(parts, lambda written: written.report.table)]
        if options.table_options.mode == MERGE_LOAD:
            loads = sum(len(from_text(part.wrote)) for part in parts)
            loaded(self._spool, parts[0].report.first, loads, name=self.consumer)
            self._merge(options, tables)
        elif options.table_options.mode != MERGE:
            with ThreadPoolExecutor(_AT_A_TIME) as threads:
                list(threads.map(lambda of_table: self._commit(options, of_table), tables))
        self._forget()
        rows = sum(one.events for one in reports)
        return [f"{rows} rows to {len(tables)} tables", *self._paced(len(tables))]

    def drain(self) -> None:
        """Has everything delivered that is sealed by now."""
        self._last = release(self._spool, name=self.consumer)

    def cut_store(self, spark: SparkSession) -> CutStore | None:
        """The table ``_cuts``; None where tables have a dataset for each schema, and none is known for those without.

        That is the case of a spool that an older program has made.
        """
        del spark
        if SCHEMA_IN_DATASET in self._sink.dataset and not self.feed.stream.header().default_schema:
            return None
        return BigQueryCuts(
            self.feed.stream,
            self._target,
            self._pinned.table_options,
            sink=self.consumer,
            location=self._sink.location or "",
            has_views=self._sink.views,
        )

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """True if there are notes of changes for a backfill that is done."""
        return not self.feed.is_backfill and has_notes(self.feed.stream, unfinished)

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        """Drops their tables."""
        del spark
        drop_notes(self.feed.stream, self._target, unfinished)

    def _paced(self, tables: int) -> list[str]:
        """The time for which the quotas make changes gather, if it changed by half or more since it was reported."""
        seconds = self._pacing.interval(tables) // SECOND
        is_reported = self._gathering <= 1.5 * seconds <= 2.25 * self._gathering
        if seconds < _REPORTED_GATHERING or seconds <= self._pacing.gather // SECOND or is_reported:
            return []
        self._gathering = seconds
        return [f"with {tables} tables changes gather for up to {seconds} s, for BigQuery's quotas (bigquery-costs.md)"]

    def _reason(self, table: str, why: str) -> str:
        del table  # the reason names it
        return f"{why}, and replay its dead letters"

    def _forget(self) -> None:
        """Removes old entries at intervals, because that lists all entries."""
        self._delivered += 1
        if self._delivered % _CLEANUP_INTERVAL == 0:
            CommitLog(self._spool, self.consumer).forget()

    def _commit(self, options: PinnedOptions, parts: Sequence[WrittenPart]) -> None:
        """Makes a table's rows of the micro-batch visible, all at once."""
        first, table = parts[0].report.first, parts[0].report.table
        commit_log = CommitLog(self._spool, self.consumer)
        at = next(self._spool.manifests(first, first)).identity
        entry = commit_log.find(first, table, at)
        streams = tuple(part.wrote for part in parts if part.wrote)
        counting: tuple[str, ...] | None = tuple(sorted({part.dead_letters for part in parts}))
        if entry is None and streams:
            entry = commit_log.enter(first, table, streams, at, counting)
        if entry is not None:
            counting = entry.dead_letters  # another driver's, if it was faster
        if counting is not None:
            batch = dead_letter_prefix(self._spool.header().spool_id, first)
            self.dead_letters.discard(table, batch, but=set(counting))  # of attempts that do not count
        if entry is not None and not entry.committed:
            target = replace(self._target, project=options.project)
            BigQueryWriter(target, self._table(options, parts)).commit(
                entry.streams, entry=commit_log.path(first, table)
            )
            commit_log.committed(first, entry)

    def _merge(self, options: PinnedOptions, tables: Sequence[Sequence[WrittenPart]]) -> None:
        """Merges the loads of tables, each table's one after the other."""
        target = replace(self._target, project=options.project)
        unfinished = unfinished_tables(self.feed.stream)  # after the rows were sealed, as StagedRows wants it
        staged = StagedRows(
            self.feed.stream, target, unfinished, of_backfill=self.feed.is_backfill, prunes=self._sink.prune_by_keys
        )

        def merge(parts: Sequence[WrittenPart]) -> None:
            loads = [load for part in parts for load in from_text(part.wrote)]
            for load in loads:
                staged.merge(self._table(options, parts), load)

        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            list(threads.map(merge, tables))

    def _table(self, options: PinnedOptions, parts: Sequence[WrittenPart]) -> BigQueryTable:
        return bigquery_table(self._spool.schema(parts[0].schema_key), options.table_options)
