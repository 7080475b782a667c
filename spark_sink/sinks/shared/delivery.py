"""Deliveries of sinks: the source whose tasks write, and the run of a micro-batch.

The events never enter the JVM: a task gets the names of segments, reads the Arrow files itself, and writes to the
destination; its rows report what it wrote. What differs between destinations is a subclass of :class:`Delivery`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.config.spark_checkpoint import sink_checkpoint
from connector.core.filters import RecordFilter
from connector.spool.consumers import find
from connector.spool.sink_report import SinkReport, report_of, write_report
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.started_batches import StartedBatches


class Delivery(ABC):
    """The delivery of a feed by a sink; each destination derives its own.

    Args:
        config: the configuration.
        feed: the spool to deliver.

    Attributes:
        source: the source whose tasks write.
        consumer: the name under which the sink is known to the spool.
        checkpoint: Spark's checkpoint of the query.
        feed: the spool to deliver.
        dead_letters: the sink's dead-letter store.
        keeps: whether the events of a table, by its name in the source, are delivered.
        backfill: ``source.backfill``; None if it is false.
        done: the last epoch of the newest micro-batch with events that :meth:`run` has done; 0 before there was one.
        check: raises SpoolInUseError if another sink has taken over; whoever holds the sink's lock sets it.
    """

    source: ClassVar[type[DataSource]]
    begins_with_its_start: ClassVar[bool] = False
    """True if its cuts promise nothing from before the sink's start, as documents of minutes."""

    def __init__(self, config: Config, feed: Feed) -> None:
        self.consumer = config.sink.name
        self.checkpoint = sink_checkpoint(config)
        self.dead_letters = DeadLetters.of(sink_type(config.sink.type), config.sink)
        self._config = config
        self.feed = feed
        self._spool = feed.spool
        tables = config.source.tables
        self.keeps = RecordFilter(tables.include, tables.exclude).keeps
        self.backfill = config.source.backfill
        self.done = 0
        self.check: Callable[[], None] = lambda: None
        self._reported: dict[str, str] = {}
        self._last: int | None = None

    @property
    @abstractmethod
    def destination(self) -> str:
        """The destination as the line ``ready`` names it."""

    @property
    def options(self) -> Mapping[str, str]:
        """The source's options."""
        return {
            **self.feed.options,
            "consumer": self.consumer,
            "dead_letters": self.dead_letters.root,
        }

    def warning_at_start(self) -> str:
        """A warning about what the destination has of earlier runs; empty if it has nothing that the spool lacks.

        It is asked once, after the sink is registered in the spool and before its first micro-batch.

        Raises:
            SpannerCdcError: the destination cannot be read, or cannot be continued.
        """
        return ""

    def run(self, reports: DataFrame) -> str:
        """Runs a micro-batch: collecting the reports of its tasks makes them write.

        Returns:
            A line for the log, or an empty one.

        Raises:
            SpannerCdcError, PySparkException: it is not done; the next run repeats it.
        """
        found = [TaskReport.of(row) for row in reports.collect()]
        return self._record(found, self.finish(found)) if found else ""

    def finish(self, reports: Sequence[TaskReport]) -> list[str]:
        """Does the driver's work once the tasks have written.

        Returns:
            Phrases for the log; the first says what was delivered.
        """
        return [f"{sum(one.events for one in reports)} events"]

    def cut_store(self, spark: SparkSession) -> CutStore | None:
        """The published cuts of the destination; None if it keeps none, and only the spool has the newest.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: the destination refuses.
        """
        del spark
        return None

    def maintain(self, spark: SparkSession, check: Callable[[], None]) -> None:
        """Does a part of the work at the destination that can wait; no micro-batch writes meanwhile.

        Args:
            spark: a session.
            check: raises SpoolInUseError if another sink has taken over.

        Raises:
            SpoolError: the spool cannot be read or written; or from ``check``.
        """
        del spark, check

    def unsettled(self) -> frozenset[str]:
        """The tables that hold rows beyond those of the source until they are settled, by their names there."""
        return frozenset()

    def drain(self) -> None:
        """Prepares for the end of the service: epochs that are ready no longer wait to be delivered with later ones.

        Epochs that are sealed after this are for the next run of the sink.

        Raises:
            SpoolError: it cannot be recorded.
        """
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """True if there are epochs that can be delivered and are not recorded as done.

        After :meth:`drain`, of those that were sealed before it. The sink records a micro-batch as done when Spark
        requests the next, so this is False only after that.
        """
        return self._next_epoch() <= self._last_epoch()

    def _next_epoch(self) -> int:
        """The first epoch that is not recorded as done."""
        known = find(self._spool, self.consumer)
        return known.epoch + 1 if known else self._spool.floor()

    def _last_epoch(self) -> int:
        """The last epoch to deliver: the newest, or, if the sink drains, the newest when that started."""
        latest = self._spool.latest()
        return latest if self._last is None else min(latest, self._last)

    def _record(self, reports: Sequence[TaskReport], phrases: Sequence[str]) -> str:
        """Adds a micro-batch to the sink's report in the spool; returns the line for the log.

        Raises:
            SpoolError: it cannot be read or written.
        """
        first = min(one.first for one in reports)
        events = sum(one.events for one in reports)
        rejected = sum(one.rejected for one in reports)
        incomplete = sum(one.incomplete for one in reports)
        before = report_of(self._spool, self.consumer)
        left_out = {table: "" for table in before.stopped if not self.keeps(table)}
        after = before.after(first, rejected, {**left_out, **self._states(reports)}, incomplete)
        batch = StartedBatches(self._spool, self.consumer).at(first)
        if batch is not None:
            after = after.delivered(batch.last, events, time.time_ns())
            self.done = batch.last
        after = self._with_tables(after)
        if after != before:
            write_report(self._spool, self.consumer, after)
        what, *more = phrases
        lacking = f", {incomplete} without columns that Spanner no longer keeps" if incomplete else ""
        dead_letters = f", {rejected} to the dead letters at {self.dead_letters.root}" if rejected else ""
        return "; ".join([f"{what}{lacking}{dead_letters}", *more, *self._news(reports)])

    def _with_tables(self, report: SinkReport) -> SinkReport:
        """The report with the tables at the destination, if the sink keeps them there."""
        return report

    def _states(self, reports: Sequence[TaskReport]) -> Mapping[str, str]:
        """The reason why each table is stopped; empty if it is not."""
        stopped = {one.table: one.why for one in reports if one.stopped}
        return {one.table: "" for one in reports if one.table} | stopped

    def _news(self, reports: Sequence[TaskReport]) -> list[str]:
        """The new reasons why events were rejected, by table; records them as reported."""
        reasons = {one.table: one.why for one in reports if one.rejected and one.why}
        news = [self._reason(table, why) for table, why in reasons.items() if why != self._reported.get(table)]
        self._reported |= reasons
        return news

    def _reason(self, table: str, why: str) -> str:
        """A reason as the log names it."""
        return f"{table}: {why}"
