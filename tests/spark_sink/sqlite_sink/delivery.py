"""The delivery to SQLite: one task writes the epochs of a micro-batch, each in a transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.config.loading import Config
from connector.spool.consumers import find
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.shared.delivery import last_of
from spark_sink.sinks.shared.sink_stream import SinkStreamReader
from spark_sink.sources.changes.admission import EpochWeight, Group, by_epoch
from tests.spark_sink.sqlite_sink.config import CONSUMER, SqliteConfig
from tests.spark_sink.sqlite_sink.table import write_epoch

_BATCH_BYTES = 1
"""Bytes of segments in a micro-batch: one epoch."""

_WRITTEN = pa.schema([pa.field("epoch", pa.int64()), pa.field("events", pa.int64()), pa.field("is_new", pa.bool_())])


class SqliteDelivery:
    """Delivers to the database at ``sink.path``."""

    consumer = CONSUMER

    def __init__(self, config: Config, sink: SqliteConfig) -> None:
        self._config = config
        self._path = absolute(sink.path)
        self._spool = Spool.at(absolute(config.spool.path))
        self._last: int | None = None

    @property
    def destination(self) -> str:
        return f"SQLite, {self._path}"

    @property
    def checkpoint(self) -> str:
        return absolute(self._config.spark.checkpoint)

    @property
    def source(self) -> type[DataSource]:
        return SqliteSource

    @property
    def options(self) -> Mapping[str, str]:
        return {"spool": self._spool.path, "path": self._path}

    def run(self, told: DataFrame) -> str:
        rows = told.collect()
        new = sum(row.is_new for row in rows)
        return f"{sum(row.events for row in rows)} events in {len(rows)} epochs, {new} of them new"

    def drain(self) -> None:
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        consumer = find(self._spool, self.consumer)
        return (consumer.epoch if consumer else self._spool.floor() - 1) < last_of(self._spool, self._last)


class SqliteSource(DataSource):
    """Writes a spool's epochs; its rows report each."""

    @classmethod
    def name(cls) -> str:
        return "spanner-change-stream-sqlite"

    def schema(self) -> StructType:
        return from_arrow_schema(_WRITTEN)

    def streamReader(self, schema: object) -> "SqliteReader":  # noqa: N802
        return SqliteReader(self.options["spool"], self.options["path"])


@dataclass(frozen=True)
class Epochs(InputPartition):
    """The epochs that a task writes."""

    spool: str
    path: str
    manifests: tuple[Manifest, ...]


class SqliteReader(SinkStreamReader):
    """Gives epochs to the one task that writes them."""

    def __init__(self, spool: str, path: str) -> None:
        super().__init__(spool, CONSUMER, path, batch_bytes=_BATCH_BYTES)
        self._path = path

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        return by_epoch(epochs)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        return [Epochs(self._spool.path, pinned or self._path, tuple(epochs))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Epochs)
        spool = Spool.at(partition.spool)
        for epoch in partition.manifests:
            batches = (batch for file in epoch.files for batch in spool.batches(file))
            rows = [row for batch in batches for row in batch.select(["uuid", "object", "payload"]).to_pylist()]
            events = [(row["uuid"], row["object"], row["payload"]) for row in rows]
            is_new = write_epoch(partition.path, epoch.epoch, epoch.identity, events)
            report = {"epoch": epoch.epoch, "events": len(events), "is_new": is_new}
            yield pa.RecordBatch.from_pylist([report], schema=_WRITTEN)
