"""A batch source whose tasks read partitions of tables into segments of a backfill's spool, and report the segments.

The rows never enter the JVM. A task reads one partition, in blocks, and its memory does not depend on the size of the
partition. Nothing of it is in an epoch before the driver has sealed it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.config.address import DatabaseAddress
from connector.core.health.retries import BACKFILL
from connector.envelope.envelope import Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.errors import NoSuchTableError, SnapshotLostError, VersionRetentionError
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.reading import read_partition
from connector.spanner.snapshot.segments import SnapshotSegments
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.telemetry.retrying import reporting_retries

FORMAT = "spanner-backfill-partitions"

SETUP = "secret_setup"
"""The option with the setup: it may hold salts, and Spark shows no value of an option that is called secret."""

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

    setup: bytes = field(repr=False)
    task: bytes


class BackfillPartitions(DataSource):
    """Reads a wave of partitions; internal to the backfill.

    Options: :data:`SETUP`, a :class:`PartitionSetup` as JSON; ``wave``, a list of :class:`Task` as JSON.
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
        return BackfillReader(self.options[SETUP], self.options["wave"])


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
    segments = SnapshotSegments(spool, envelope, schema, task.epoch, setup.timestamp)
    blocks = read_partition(
        setup.address,
        SnapshotPartition.from_json(task.partition.encode()),
        table=schema.table,
        rpc_priority=setup.rpc_priority,
        data_boost=setup.data_boost,
    )
    for block in blocks:
        segments.add(block)
    return segments.finished()
