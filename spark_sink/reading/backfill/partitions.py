"""A batch source whose tasks read partitions of tables into segments of a backfill's spool, and report the segments.

The rows never enter the JVM. A task reads one partition, in blocks, and writes a segment whenever it has enough: its
memory does not depend on the size of the partition. Nothing of it is in an epoch before the driver has sealed it.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.config.address import DatabaseAddress
from connector.core.health.retries import BACKFILL
from connector.core.schemas import TableSchema
from connector.envelope.envelope import Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.errors import NoSuchTableError, SnapshotLostError, VersionRetentionError
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.reading import read_partition
from connector.spanner.snapshot.row_block import RowBlock
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer
from connector.telemetry.retrying import reporting_retries

FORMAT = "spanner-backfill-partitions"
SEGMENT_BYTES = 48 * 1024 * 1024
"""Bytes from which on a segment ends; with the last batch it stays below 64 MiB."""

_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of values from which on a record batch of a segment ends."""

_ARROW = pa.schema(
    [
        pa.field("place", pa.int64()),
        pa.field("files", pa.string()),
        pa.field("lost", pa.string()),
        pa.field("expired", pa.string()),
    ]
)
"""The report of a task: its place in the wave, and its segments as JSON; or why it cannot be read.

``lost``: the table must be partitioned again; ``expired``: its timestamp is no longer retained.
"""


class PartitionSetup(msgspec.Struct, frozen=True):
    """The settings that all tasks of a backfill share.

    Attributes:
        spool: the path or URL of the backfill's spool.
        stream: that of the change stream's spool.
        address: the database.
        source: the change stream, as events name it.
        stream_name: the configured stream name, or None.
        timestamp: of the rows, Unix nanoseconds.
        rpc_priority: low, medium or high.
        data_boost: whether Spanner reads with resources of its own.
    """

    spool: str
    stream: str
    address: DatabaseAddress
    source: Source
    stream_name: str | None
    timestamp: int
    rpc_priority: str
    data_boost: bool


class Task(msgspec.Struct, frozen=True):
    """A partition that a task reads.

    Attributes:
        place: of the task in its wave.
        epoch: the epoch that the partition will be.
        schema_key: of its table.
        partition: :class:`connector.spanner.snapshot.partitions.SnapshotPartition` as JSON.
    """

    place: int
    epoch: int
    schema_key: str
    partition: str


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """A task as Spark sends it to an executor; both are JSON."""

    setup: bytes
    task: bytes


class BackfillPartitions(DataSource):
    """Reads a wave of partitions; internal to the backfill.

    Options: ``setup``, a :class:`PartitionSetup` as JSON; ``wave``, a list of :class:`Task` as JSON.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a task's report."""
        return from_arrow_schema(_ARROW)

    def reader(self, schema: StructType) -> "BackfillReader":
        """Reads the wave."""
        return BackfillReader(self.options["setup"], self.options["wave"])


class BackfillReader(DataSourceReader):
    """A task for each partition of the wave."""

    def __init__(self, setup: str, wave: str) -> None:
        self._setup = setup
        self._wave = wave

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        wave = msgspec.json.decode(self._wave, type=list[Task])
        return [TaskPartition(self._setup.encode(), msgspec.json.encode(task)) for task in wave]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a partition into segments, and reports them."""
        if not isinstance(partition, TaskPartition):
            return  # Spark's stand-in for an empty plan
        setup = msgspec.json.decode(partition.setup, type=PartitionSetup)
        task = msgspec.json.decode(partition.task, type=Task)
        report: dict[str, object] = {"place": task.place, "files": "[]", "lost": "", "expired": ""}
        try:
            with reporting_retries(Spool.at(setup.stream), BACKFILL, "", of_task=True):
                report["files"] = to_text(segments_of(setup, task))
        except (NoSuchTableError, SnapshotLostError) as error:  # the next plan leaves out what no longer exists
            report["lost"] = str(error)
        except VersionRetentionError as error:
            report["expired"] = str(error)
        yield pa.RecordBatch.from_pylist([report], schema=_ARROW)


def to_text(files: Sequence[SegmentFile]) -> str:
    """Segments as JSON."""
    return msgspec.json.encode([file.model_dump(mode="json") for file in files]).decode()


def from_text(text: str) -> list[SegmentFile]:
    """Reads the result of :func:`to_text`."""
    return [SegmentFile.model_validate(node) for node in msgspec.json.decode(text)]


def segments_of(setup: PartitionSetup, task: Task) -> list[SegmentFile]:
    """Reads a partition, and writes its rows as segments of the backfill's spool, durably.

    Raises:
        SnapshotLostError: the table must be partitioned again.
        VersionRetentionError: the timestamp is no longer retained.
        SpannerCdcError: one clear line.
    """
    spool = Spool.at(setup.spool)
    envelope = SnapshotEnvelope(setup.source, stream_name=setup.stream_name, timestamp=setup.timestamp)
    schema = spool.schema(task.schema_key)
    rows = _Rows(envelope, schema, task)
    writer = _Segments(spool, task.epoch, setup.timestamp)
    blocks = read_partition(
        setup.address,
        SnapshotPartition.from_json(task.partition.encode()),
        table=schema.table,
        rpc_priority=setup.rpc_priority,
        data_boost=setup.data_boost,
    )
    for block in blocks:
        for batch in rows.added(block):
            writer.append(batch)
    for batch in rows.finished():
        writer.append(batch)
    return writer.finished()


class _Rows:
    """Turns blocks into record batches of a few megabytes with the envelope's columns."""

    def __init__(self, envelope: SnapshotEnvelope, schema: TableSchema, task: Task) -> None:
        self._envelope = envelope
        self._schema = schema
        self._task = task
        self._keys = schema.primary_keys
        self._others = [column.name for column in schema.columns if column.name not in schema.primary_keys]
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def added(self, block: RowBlock) -> Iterator[pa.RecordBatch]:
        """Adds a block; yields a batch if there is enough for one."""
        if block.rows:
            existing = {column.name for column in block.columns}  # at the timestamp
            self._held.append(
                self._envelope.build(
                    _objects(block, self._keys),
                    _objects(block, [name for name in self._others if name in existing]),
                    self._schema,
                    self._task.schema_key,
                    self._task.epoch,
                    time.time_ns(),
                )
            )
            self._bytes += block.bytes
        if self._bytes >= _BATCH_BYTES:
            yield from self.finished()

    def finished(self) -> Iterator[pa.RecordBatch]:
        """Yields what is held."""
        held, self._held, self._bytes = self._held, [], 0
        if held:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _objects(block: RowBlock, names: Sequence[str]) -> pa.StringArray:
    return block.payloads(names) if names else pa.repeat(pa.scalar("{}", pa.string()), block.rows)


class _Segments:
    """Writes record batches as segments of an epoch; their names are of this attempt alone."""

    def __init__(self, spool: Spool, epoch: int, timestamp: int) -> None:
        self._spool = spool
        self._name = f"segments/{epoch:020d}-{secrets.token_hex(8)}"
        self._timestamp = timestamp
        self._segment: SegmentBuffer | None = None
        self._files: list[SegmentFile] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows; a segment that is large enough is written."""
        self._segment = self._segment or SegmentBuffer()
        self._segment.append(batch)
        if self._segment.bytes >= SEGMENT_BYTES:
            self._store()

    def finished(self) -> list[SegmentFile]:
        """Writes what is left; returns all segments, in order."""
        if self._segment is not None:
            self._store()
        return self._files

    def _store(self) -> None:
        assert self._segment is not None
        path = f"{self._name}-{len(self._files)}.arrow"
        at = self._timestamp
        self._files.append(self._segment.store(self._spool.storage, path, first=at, last=at))
        self._segment = None
