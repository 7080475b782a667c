"""Runs of the BigQuery sink without Spark: the calls that Spark makes to its source, and the delivery."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Self, cast

from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition

from connector.config import Config, validated
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.delivery import BigQueryDelivery
from spark_sink.sinks.bigquery.source import BigQuerySinkReader
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes.read_limits import ReadLimit, ReadMaxBytes

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}


def configured(spool: str, **sink: object) -> Config:
    """A configuration of a spool and a BigQuery sink, whose dead letters are beside the spool."""
    node = {"type": "bigquery", "dead_letters": f"{spool}-letters", **sink}
    return validated({"source": SOURCE, "spool": {"path": spool}, "sink": node})


@dataclass
class Checkpoint:
    """A query's checkpoint: the offsets that Spark has logged, and whether the last micro-batch is done."""

    offsets: list[dict[str, object]]
    done: bool = True


class SinkRun:
    """A run of the sink, from its start until it is killed, as a context."""

    def __init__(
        self,
        config: Config,
        checkpoint: Checkpoint | None = None,
        *,
        cores: int = 2,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        assert isinstance(config.sink, BigQueryConfig)
        self.delivery = BigQueryDelivery(config, config.sink, Feed.at(config.spool.path))
        self.checkpoint = checkpoint or Checkpoint([])
        self._reader = BigQuerySinkReader(self.delivery.options, cores, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the run as a kill does."""
        held = self._reader._claim._held
        if held is not None:
            held.close()  # as the system does when a process ends

    def only_what_is_sealed(self) -> None:
        """Ends it once everything that is sealed now is delivered."""
        self._reader.prepareForTriggerAvailableNow()

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Logs the next micro-batch, if there is one; one that is not done comes first."""
        known = self.checkpoint
        if not known.offsets:
            known.offsets.append(self._reader.initialOffset())
        if known.done:
            end = self._reader.latestOffset(known.offsets[-1], limit or ReadMaxBytes(10**9))
            if end == known.offsets[-1]:
                return False
            known.offsets.append(end)
            known.done = False
        return True

    def tasks(self) -> Sequence[InputPartition]:
        """The tasks of the micro-batch that was planned."""
        return self._reader.partitions(*self.checkpoint.offsets[-2:])

    def reports(self, task: InputPartition) -> Iterator[SimpleNamespace]:
        """Runs a task; returns its reports."""
        for batch in self._reader.read(task):
            yield from (SimpleNamespace(**row) for row in batch.to_pylist())

    def deliver(self, reports: Sequence[SimpleNamespace]) -> str:
        """Does the driver's work."""
        return self.delivery.run(cast("DataFrame", SimpleNamespace(collect=lambda: list(reports))))

    def run(self, limit: ReadLimit | None = None) -> list[str]:
        """Delivers all that is ready; returns the lines of its log."""
        said = []
        while self.plan(limit):
            said.append(self.deliver([row for task in self.tasks() for row in self.reports(task)]))
            self.checkpoint.done = True
        return said
