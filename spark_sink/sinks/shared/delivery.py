"""Deliveries of the built-in sinks: the source whose tasks write, and the run of a micro-batch.

The events never enter the JVM: a task gets the names of segments, reads the Arrow files itself, and writes to the
destination; its rows report what it wrote. What differs between destinations is a :class:`Delivery`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.config.sinks import SinkConfig
from connector.spool.consumers import find
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from connector.spool.storage.locations import absolute
from spark_sink.sinks.shared.started_batches import StartedBatches


class Delivery(Protocol):
    """The delivery of a sink."""

    @property
    def consumer(self) -> str:
        """The name under which the sink is known to the spool."""

    @property
    def destination(self) -> str:
        """The destination as the line ``ready`` names it."""

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of the query."""

    @property
    def source(self) -> type[DataSource]:
        """The source whose tasks write."""

    @property
    def options(self) -> Mapping[str, str]:
        """The source's options."""

    def run(self, reports: DataFrame) -> str:
        """Runs a micro-batch: collecting the reports of its tasks makes them write.

        Returns:
            A line for the log, or an empty one.

        Raises:
            SpannerCdcError, PySparkException: it is not done; the next run repeats it.
        """

    def drain(self) -> None:
        """Prepares for the end of the service: epochs that are ready no longer wait to be delivered with later ones.

        Epochs that are sealed after this are for the next run of the sink.

        Raises:
            SpoolError: it cannot be recorded.
        """

    def waiting(self) -> bool:
        """True if there are epochs that can be delivered and are not recorded as done.

        After :meth:`drain`, of those that were sealed before it.
        """


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a micro-batch.

    Attributes:
        first: its first epoch with events.
        events: the events.
        refused: events that became dead letters.
        incomplete: events that were delivered without columns that could not be read.
        stopped: why each of its tables is stopped; empty if it is not.
    """

    first: int
    events: int
    refused: int
    incomplete: int
    stopped: Mapping[str, str]


def report(spool: Spool, consumer: str, keeps: Callable[[str], bool], found: Delivered) -> None:
    """Adds a micro-batch to the sink's report in the spool.

    Args:
        spool: the spool.
        consumer: the sink's name.
        keeps: whether the configuration still has a table.
        found: the micro-batch.

    Raises:
        SpoolError: it cannot be read or written.
    """
    before = report_of(spool, consumer)
    left_out = {table: "" for table in before.stopped if not keeps(table)}
    after = before.after(found.first, found.refused, {**left_out, **found.stopped}, found.incomplete)
    batch = StartedBatches(spool, consumer).at(found.first)
    if batch is not None:
        after = after.delivered(batch.last, found.events, time.time_ns())
    if after != before:
        write_report(spool, consumer, after)


def checkpoint_of(config: Config, sink: SinkConfig) -> str:
    """The checkpoint of a sink whose type keeps its own at ``spark.checkpoint``; below it if the sink has a name.

    Two sinks must not share one: each would take what the other has delivered for its own.
    """
    root = absolute(config.spark.checkpoint)
    return root if sink.has_default_name else f"{root}/sinks/{sink.name}"


def own_checkpoint_of(config: Config, sink: SinkConfig) -> str:
    """The checkpoint of a sink of any other type: always a folder of its own, with or without a name."""
    root = checkpoint_of(config, sink)
    return f"{root}/{sink.name}" if sink.has_default_name else root


def last_of(spool: Spool, drained: int | None) -> int:
    """The last epoch to deliver: the newest, or, if the sink drains, the newest when that started."""
    latest = spool.latest()
    return latest if drained is None else min(latest, drained)


def is_behind(spool: Spool, consumer: str, drained: int | None) -> bool:
    """True if an epoch up to :func:`last_of` is not recorded as done."""
    known = find(spool, consumer)
    return (known.epoch if known else spool.floor() - 1) < last_of(spool, drained)


def stopped_of(rows: Sequence[Row]) -> dict[str, str]:
    """The reason why each table is stopped, empty if it is not, from the rows that tasks return."""
    return {row.table: "" for row in rows} | {row.table: row.why for row in rows if row.stopped}


def new_reasons(rows: Sequence[Row], reported: dict[str, str]) -> list[str]:
    """The new reasons why events were rejected, by table, of the tasks' rows; records them as reported."""
    reasons = {row.table: row.why for row in rows if row.refused}
    news = [f"{table}: {why}" for table, why in reasons.items() if why != reported.get(table)]
    reported |= reasons
    return news
