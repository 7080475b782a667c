"""The sink's own stream: the events of whole epochs, each micro-batch of them recorded before it is started."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from connector.spool.manifest import Manifest
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.sink_stream import SinkSource, SinkStreamReader
from spark_sink.sinks.tables.applied_epochs import read_again
from spark_sink.sources.changes.data_source import existing, planned, read
from spark_sink.sources.changes.event_columns import of_spool
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.options import SourceOptions

_BATCH_BYTES = 256 * 1024 * 1024
"""Bytes of segments in a micro-batch; bounds what a failed one repeats."""

_PINNED = "tables"
"""No option decides which rows are in a micro-batch."""


class TablesSource(SinkSource):
    """The events of a spool for the sink; internal to it."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "spanner-change-stream-tables"

    def schema(self) -> StructType:
        """The columns of an event.

        Raises:
            SpoolError: there is no spool.
        """
        existing(self.options["spool"])
        return of_spool(self.options["spool"])

    def streamReader(self, schema: object) -> "TablesReader":  # noqa: N802
        """Reads every epoch once."""
        return TablesReader(Feed.of_options(self.options), self.options["consumer"], self.most_tasks)


class TablesReader(SinkStreamReader):
    """Plans a spool's epochs."""

    def __init__(self, feed: Feed, consumer: str, cores: int) -> None:
        super().__init__(feed, consumer, _PINNED, batch_bytes=_BATCH_BYTES)
        self._cores = cores

    def start_over(self, done: Offset) -> str:
        """Under its name tables leave out the epochs that they have by number, which are others now."""
        forget = f"`spanner-cdc spool {self._spool.path} --forget {self._consumer}`"
        return f"name the sink otherwise (sink.name), and {forget}: {read_again(self._spool, done)}"

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """The tasks for these epochs."""
        del pinned
        return planned(SourceOptions(self._spool.path), epochs, self._cores)

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that a task reads."""
        return read(partition)
