"""The delivery to SQLite: one task writes the epochs of a micro-batch, each in a transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connector.config.loading import Config
from connector.spool.manifest import Manifest
from connector.spool.storage.locations import absolute
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.reports import TaskReport, as_rows
from spark_sink.sinks.shared.sink_stream import SinkSource, SinkStreamReader
from tests.spark_sink.sqlite_sink.sink import SqliteConfig
from tests.spark_sink.sqlite_sink.table import write_epoch

_BATCH_BYTES = 1
"""Bytes of segments in a micro-batch: one epoch."""


@dataclass(frozen=True)
class Epochs(InputPartition):
    """The epochs that a task writes."""

    path: str
    manifests: tuple[Manifest, ...]


class SqliteReader(SinkStreamReader):
    """Gives epochs to the one task that writes them."""

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        return [Epochs(pinned, tuple(epochs))]

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Epochs)
        spool = self._feed.spool
        for epoch in partition.manifests:
            batches = (batch for file in epoch.files for batch in spool.batches(file))
            rows = [row for batch in batches for row in batch.select(["uuid", "object", "payload"]).to_pylist()]
            events = [(row["uuid"], row["object"], row["payload"]) for row in rows]
            write_epoch(partition.path, epoch.spool_id, epoch.epoch, epoch.identity, events)
            yield as_rows([TaskReport(epoch.epoch, events=len(events))])


class SqliteSource(SinkSource):
    """Writes a spool's epochs; its rows report each."""

    @classmethod
    def name(cls) -> str:
        return "spanner-change-stream-sqlite"

    def streamReader(self, schema: object) -> SqliteReader:  # noqa: N802
        feed, path = Feed.of_options(self.options), self.options["path"]
        return SqliteReader(feed, self.options["consumer"], path, batch_bytes=_BATCH_BYTES)


class SqliteDelivery(Delivery):
    """Delivers to the database at ``sink.path``."""

    source = SqliteSource

    def __init__(self, config: Config, sink: SqliteConfig, feed: Feed) -> None:
        super().__init__(config, feed)
        self._path = absolute(sink.path)

    @property
    def destination(self) -> str:
        return f"SQLite, {self._path}"

    @property
    def options(self) -> Mapping[str, str]:
        return {**super().options, "path": self._path}
