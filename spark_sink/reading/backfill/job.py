"""Reads a backfill: plans the tables, reads their partitions in waves of tasks, and seals what was read.

A wave is a Spark job with a task for each of some partitions. Once it has ended, its partitions are sealed. So a
driver that is killed has to read one wave again. The next wave waits while the spool is full. Between
and during waves the segments that all consumers have read are deleted, and the progress is reported.
"""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from pyspark.sql import Row, SparkSession

from connector.config.sections import SourceConfig
from connector.envelope.envelope import Source
from connector.errors import SpoolInUseError, VersionRetentionError
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spool import consumers
from connector.spool.backfill.documents import Backfill, BackfillProgress
from connector.spool.backfill.records import progress_of, write_progress
from connector.spool.backfill.requests import Request, requests_of, withdraw_requests
from connector.spool.backfill.sealing import BackfillWriter, Remaining, progress, remaining
from connector.spool.manifest import BackfillPart
from spark_sink.errors import clear_line
from spark_sink.failures import JOB_ERRORS, SPARK_ERRORS, meaning_of
from spark_sink.reading.backfill.partitions import (
    FORMAT,
    SETUP,
    BackfillPartitions,
    PartitionSetup,
    Task,
    from_text,
)
from spark_sink.reading.backfill.planning import TablePlans
from spark_sink.run import say
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes.cores import cores_of

_POLL = 0.25
"""Seconds between two looks at what was delivered."""

_REPORT_INTERVAL = 1.0
"""Seconds between two reports of the progress."""

_WARN_INTERVAL = 60.0
"""Seconds between two warnings of a consumer that the next wave waits for."""

_WAVES = 2
"""Tasks of a wave for each core: more would be repeated by a restart, fewer leave cores idle at its end."""

_ATTEMPTS = 3
"""Times that a wave is tried before an error of Spark ends the process; a new one continues."""

_POOL = "backfill"
"""The scheduler's pool of the waves; the sink's jobs are in another, so that neither waits for the other."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options for reading Spanner: ``rpc_priority`` is low, medium or high."""

    rpc_priority: str
    data_boost: bool


class BackfillJob:
    """Reads the partitions of a backfill into its spool.

    Args:
        spark: a session.
        source: the change stream.
        stream_name: the configured stream name, or None.
        max_bytes: of segments that a consumer has not read, from which on no wave is started.
        document: the backfill.
        feed: its spool, whose lock is held.
        consumer: the sink's name in that spool: what it is done with is delivered, whoever else reads the spool.
        options: how Spanner is read.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: SourceConfig,
        stream_name: str | None,
        max_bytes: int,
        document: Backfill,
        feed: Feed,
        consumer: str,
        options: ReadOptions,
    ) -> None:
        self._spark = spark
        self._max_bytes = max_bytes
        self._document = document
        self._own = own = feed.spool
        self._consumer = consumer
        header, rules = own.header(), source.backfill
        max_tasks = rules.max_tasks if rules is not None else None
        self._writer = BackfillWriter(own, header, document)
        self._plans = TablePlans(own, document, source.address, data_boost=options.data_boost)
        self._setup = PartitionSetup(
            own.path,
            feed.stream.path,
            source.address,
            Source(**source.name.model_dump(), default_schema=header.default_schema or source.database),
            stream_name,
            document.timestamp,
            options.rpc_priority,
            options.data_boost,
        )
        self._cores = max(1, cores_of(spark))
        self._most_tasks = self._cores * _WAVES if max_tasks is None else min(self._cores * _WAVES, max_tasks)
        self._parts: list[BackfillPart] = []
        self._largest = max((one.bytes for one in self._writer.sealed), default=0)
        self._written: BackfillProgress | None = None
        self._written_at = self._pruned_at = 0.0
        self._failure = ""
        self._failing: Sequence[str] | None = None
        self._stream = feed.stream
        self._restarted = set[str]()
        self._is_lost = False
        spark.dataSource.register(BackfillPartitions)

    def run(self, stopping: threading.Event) -> None:
        """Reads until everything is in the spool, or until ``stopping``.

        Raises:
            VersionRetentionError: the timestamp is no longer retained; tables that are not read are reported as failed.
            SpannerCdcError, PySparkException, Py4JError: one clear line; the next process continues.
        """
        try:
            while not stopping.is_set() and (left := self._left()):
                if self._has_room(stopping):
                    self._read(self._wave(left), stopping)
        except VersionRetentionError as error:
            self._failure, self._failing, self._is_lost = str(error), None, True
            raise
        except JOB_ERRORS as error:
            self._failure = clear_line(error)
            raise
        finally:
            self.report(now=True)

    def report(self, *, now: bool = False) -> None:
        """Deletes what was delivered, and reports the progress if it has changed; at intervals unless ``now``."""
        clock, pause = time.monotonic(), self._own.storage.rewrite_interval
        if not now and clock - self._pruned_at < max(_POLL, pause):
            return
        self._writer.prune(self._consumer)
        self._pruned_at = clock
        if not now and clock - self._written_at < max(_REPORT_INTERVAL, pause):
            return
        sink = consumers.find(self._own, self._consumer)
        state = progress(
            self._document,
            self._plans.by_table,
            self._writer.sealed,
            delivered=sink.epoch if sink else 0,
            now=time.time_ns(),
            failure=self._failure,
            failing=self._failing,
            lost=self._is_lost,
        )
        self._written_at = clock
        if self._written is None or (state.tables, state.lost) != (self._written.tables, self._written.lost):
            if state.is_done:
                self._writer.sweep()  # no process will start again that would do it
            write_progress(self._own, state)
            self._written = state

    def _left(self) -> list[Remaining]:
        """The partitions that are to be read now: of tables that no user has stopped, each of which has a plan then."""
        requests = self._requests()
        stopped = {table for table, request in requests.items() if request == "stop"}
        self._restart([table for table, request in requests.items() if request == "restart"])
        tables = self._document.tables
        unplanned = [index for index in self._remaining()[0] if tables[index].table not in stopped]
        if unplanned:
            self._plan(unplanned)
        return [one for one in self._remaining()[1] if one.part.table not in stopped]

    def _plan(self, indexes: Sequence[int]) -> None:
        """Plans tables; an error is the one of the table that it is about, or of all."""
        try:
            self._plans.make(indexes)
        except Exception:
            self._failing = [self._plans.table] if self._plans.table else None
            raise

    def _remaining(self) -> tuple[list[int], list[Remaining]]:
        return remaining(self._document, self._plans.by_table, self._writer.sealed)

    def _restart(self, names: Sequence[str]) -> None:
        """Plans tables again, at the same timestamp, that users want to have read from their first row.

        Not one that is done: sinks may have forgotten which of its rows were deleted since. That request, and those for
        other tables, are for other backfills.
        """
        left = set(progress_of(self._own, self._document).unfinished)
        for index, table in enumerate(self._document.tables):
            if table.table in names and table.table in left and table.table not in self._restarted:
                say(f"table {table.table} is read again from its first row", action="table_restarted")
                self._plan([index])
                self._restarted.add(table.table)
        for name in left.intersection(names):
            with suppress(SpoolInUseError):  # while another request is written; the next wave deletes it
                withdraw_requests(self._stream, [name], only="restart")
                self._restarted.discard(name)

    def _plan_again(self, why: str, lost: str) -> None:
        """Plans a table that cannot be read any more once more, at the same timestamp, with those of its session.

        Not tables that users have stopped: once they are resumed, their own partitions say whether it must be.
        """
        stopped, session = self._stopped(), self._session_of(lost)
        left = {self._document.tables[one.table].table: one.table for one in self._remaining()[1]}
        again = {name: left[name] for name in left if name not in stopped and self._session_of(name) == session}
        if again:
            how = "read again from their first row, and delivered rows again with the same uuid"
            say(f"{why}; {how}: {', '.join(again)}", action="tables_read_again")
            self._plan(list(again.values()))

    def _stopped(self) -> set[str]:
        return {table for table, request in self._requests().items() if request == "stop"}

    def _requests(self) -> dict[str, Request]:
        return {} if self._document.is_repair else requests_of(self._stream)

    def _session_of(self, table: str) -> str:
        """The session of a table's plan, of which some partition is left."""
        return SnapshotPartition.from_json(self._plans.by_table[table].partitions[0].encode()).session

    def _has_room(self, stopping: threading.Event) -> bool:
        """Waits until all consumers have read enough; False if ``stopping`` was set before."""
        since = time.monotonic()
        while (left := self._writer.undelivered_bytes) and left + self._largest >= self._max_bytes:
            if stopping.wait(_POLL):
                return False
            self.report()
            if time.monotonic() - since >= _WARN_INTERVAL:
                since = time.monotonic()
                self._warn_of_slower_consumer()
        return True

    def _warn_of_slower_consumer(self) -> None:
        """Logs which query of a user's own is behind the sink, if one is: it may have ended for good."""
        known = {one.consumer: one.epoch for one in consumers.consumers(self._own)}
        slowest = min(known, key=lambda name: known[name], default=self._consumer)
        if known.get(slowest, 0) < known.get(self._consumer, 0):
            say(
                f"the backfill waits for room in {self._own.path}: consumer {slowest} is at epoch {known[slowest]},"
                f" the sink at epoch {known[self._consumer]}. If it will not return: `spanner-cdc spool"
                f" {self._own.path} --forget {slowest}`",
                action="backfill_waits_for_a_consumer",
                level=logging.WARNING,
            )

    def _wave(self, left: Sequence[Remaining]) -> list[Task]:
        """The tasks of the next wave: as many as there is room for, judged by the largest partition so far."""
        room = self._max_bytes - self._writer.undelivered_bytes
        fitting = room // self._largest if self._largest else self._cores
        first = self._writer.epoch + 1
        self._parts = [one.part for one in left[: max(1, min(self._most_tasks, fitting))]]
        self._failing = [part.table for part in self._parts]
        keys = {table.table: table.schema_key for table in self._document.tables}
        return [
            Task(index, first + index, keys[part.table], self._plans.by_table[part.table].partitions[part.partition])
            for index, part in enumerate(self._parts)
        ]

    def _read(self, wave: list[Task], stopping: threading.Event) -> None:
        """Reads a wave and seals it, or plans again what cannot be read any more.

        Raises:
            VersionRetentionError: the timestamp is no longer retained.
        """
        reports = self._collected(wave, stopping)
        lost = table = ""
        for report in reports:
            if report.expired:
                raise VersionRetentionError(report.expired)
            if report.lost and not lost:
                lost, table = report.lost, self._parts[report.place].table
            if not lost:
                files = from_text(report.files)
                self._largest = max(self._largest, sum(file.bytes for file in files))
                self._writer.seal(self._parts[report.place], files, now=time.time_ns())
        if lost:
            self._plan_again(lost, table)
        self.report()

    def _collected(self, wave: list[Task], stopping: threading.Event) -> list[Row]:
        """The reports of the tasks, in their order; none if ``stopping`` was set meanwhile."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._tried(wave, stopping)
            except SPARK_ERRORS as error:
                if stopping.is_set():
                    return []  # its job was cancelled
                if not meaning_of(error).is_worth_another_attempt or attempt == _ATTEMPTS:
                    raise
                say(f"a wave of {len(wave)} partitions is read again after an error of Spark", action="wave_read_again")
        raise AssertionError

    def _tried(self, wave: list[Task], stopping: threading.Event) -> list[Row]:
        group = f"backfill {self._document.number}, from epoch {wave[0].epoch}"
        with ThreadPoolExecutor(1, thread_name_prefix="wave") as thread:
            running: Future[list[Row]] = thread.submit(self._job, wave, group)
            while not running.done():
                if stopping.is_set():
                    self._spark.sparkContext.cancelJobGroup(group)
                wait([running], _POLL)
                self.report()
            return running.result()

    def _job(self, wave: list[Task], group: str) -> list[Row]:
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.setJobGroup(group, group, interruptOnCancel=True)
        reader = self._spark.read.format(FORMAT).options(
            **{SETUP: msgspec.json.encode(self._setup).decode()}, wave=msgspec.json.encode(wave).decode()
        )
        return sorted(reader.load().collect(), key=lambda row: row.place)
