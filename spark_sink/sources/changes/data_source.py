"""The data source ``spanner-change-stream``: the events of a spool as rows, as a stream or as a batch.

A task maps the Arrow files of its epochs into memory, verifies their checksums, and hands the record batches to Spark.
Only the envelope ``opencdc`` needs a conversion.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from connector import log
from connector.config.sink_start import decided
from connector.config.values import OLDEST
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA
from connector.envelope.opencdc import OpenCdcWriter
from connector.errors import ConfigurationError, SpoolError
from connector.spool import consumers
from connector.spool.destinations import check_not_a_sink
from connector.spool.manifest import Manifest, SegmentFile
from connector.spool.reading import Spool, while_pruned
from connector.spool.sink_start import SinkStart, start_of_sink, write_start
from spark_sink.sources.changes import opencdc_rows
from spark_sink.sources.changes.admission import runs
from spark_sink.sources.changes.epoch_stream import EpochStreamReader
from spark_sink.sources.changes.event_columns import of_spool
from spark_sink.sources.changes.gap_warnings import warning_of_gaps
from spark_sink.sources.changes.in_job import InJobReader
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.options import DATASTREAM, OPENCDC, Envelope, SourceOptions
from spark_sink.sources.changes.read_limits import ReadMaxRows
from spark_sink.sources.python_workers import set_imports_aside

FORMAT = "spanner-change-stream"

_start_in = partial(decided, by_minute=False, option="option start")


@dataclass(frozen=True)
class EventsPartition(InputPartition):
    """The segments that a task reads, in order, each with its epoch.

    Only rows of ``tables`` are returned, or all rows if it is None.
    """

    spool: str
    files: tuple[tuple[SegmentFile, int], ...]
    tables: tuple[str, ...] | None
    envelope: Envelope = DATASTREAM


class SpannerChangeStream(DataSource):
    """Change events of a Cloud Spanner change stream, from a spool.

    Args:
        options: see :class:`spark_sink.sources.changes.options.SourceOptions`.
    """

    cores = 0
    """The largest number of tasks of a micro-batch; 0 for one for each processor of this machine."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of an event, or of an OpenCDC record.

        Raises:
            SpoolError: there is no spool, and no reader inside the job to create it.
        """
        if self._options.in_job is None:
            existing(self._options.spool)
        if self._options.envelope == OPENCDC:
            return opencdc_rows.spark_schema()
        return of_spool(self._options.spool)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all epochs that are in the spool when the query is planned."""
        if self._options.in_job is not None:
            raise ConfigurationError(
                ["a batch read needs an existing spool: omit projectId, instanceId, databaseId and changeStream"]
            )
        return EventsBatchReader(self._options, self._tasks())

    def streamReader(self, schema: StructType) -> "EventsStreamReader":  # noqa: N802
        """Reads every epoch in order, each once."""
        return EventsStreamReader(self._options, self._tasks())

    def _tasks(self) -> int:
        return self.cores or os.cpu_count() or 1


class EventsBatchReader(DataSourceReader):
    """Reads the epochs that are in the spool; does not record progress, so that they may be pruned meanwhile."""

    def __init__(self, options: SourceOptions, cores: int) -> None:
        self._options = options
        self._cores = cores

    def partitions(self) -> list[InputPartition]:
        """The tasks for all epochs that are in the spool now."""
        spool = existing(self._options.spool)
        return while_pruned(spool, lambda: planned(self._options, warning_of_gaps(self._kept(spool)), self._cores))

    def _kept(self, spool: Spool) -> Iterator[Manifest]:
        start = self._options.start
        first = spool.floor() if start == OLDEST else _start_in(spool, start).epoch + 1
        return spool.manifests(first, spool.latest())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that a task reads."""
        return read(partition)


class EventsStreamReader(EpochStreamReader):
    """Returns events to a streaming query."""

    def __init__(self, options: SourceOptions, cores: int) -> None:
        super().__init__(
            options.spool,
            options.consumer,
            limit=ReadMaxRows(options.max_rows) if options.max_rows else None,
            in_job=InJobReader(options.in_job, options.spool) if options.in_job else None,
        )
        self._options = options
        self._cores = cores

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The epoch of option ``start``, by default the oldest; the consumer must not have the name of a sink.

        Spark asks again in a new process until its first micro-batch is done, of which it keeps only the end. So the
        first answer is recorded in the spool, and repeated until then.

        Raises:
            ConfigurationError: the spool does not keep what follows that start.
            SpoolError: the consumer has the name of a sink, or the spool cannot be read or written.
        """
        check_not_a_sink(self._spool, self._consumer)
        if self._options.start == OLDEST:
            return super().initialOffset()
        self._claim.hold()
        start = self._recorded_start() or self._new_start()
        return Offset(start.epoch).to_json()

    def _recorded_start(self) -> SinkStart | None:
        """The start that was decided, if nothing that follows it is done; None if it is to be decided."""
        start, known = start_of_sink(self._spool, self._consumer), consumers.find(self._spool, self._consumer)
        if start is None or known is None or start.requested != self._options.start:
            return None
        is_where_it_began = known.epoch == start.epoch and not known.at
        return start if is_where_it_began and self._spool.floor() <= start.epoch + 1 else None

    def _new_start(self) -> SinkStart:
        while True:
            start = self._before_the_first_end(_start_in(self._spool, self._options.start))
            consumers.record(self._spool, self._consumer, start.epoch, now=self._clock())
            if self._spool.floor() <= start.epoch + 1:  # else its first epoch was pruned just before that
                break
        write_start(self._spool, self._consumer, start)
        log.say(
            "spark_sink",
            f"consumer {self._consumer} starts after epoch {start.epoch} of the spool at {self._spool.path}: it has"
            f" what was committed after {format_rfc3339(start.after)}, and nothing before that",
            action="consumer_starts",
            first_epoch=start.epoch + 1,
        )
        return start

    def _before_the_first_end(self, start: SinkStart) -> SinkStart:
        """A start that is no later than the end that PySpark before 4.2 asks for first: epochs are sealed meanwhile."""
        if self._position is None or start.epoch <= (end := Offset.from_json(self._position).epoch):
            return start
        (next_one,) = self._spool.manifests(end + 1, end + 1)
        return start.model_copy(update={"epoch": end, "after": next_one.watermark_low})

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch.

        The first one has none if the query was killed between its end and its start: the start is decided again, later.
        """
        first = Offset.from_json(start)
        is_late = not first.spool_id and self._options.start != OLDEST and first.epoch > Offset.from_json(end).epoch
        return super().partitions(end if is_late else start, end)

    def admits(self, table: str) -> bool:
        """True if option ``tables`` names the table."""
        return self._options.admits(table)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """The tasks for these epochs."""
        return planned(self._options, epochs, self._cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that a task reads."""
        return read(partition)


def existing(path: str) -> Spool:
    """The spool at a path.

    Raises:
        SpoolError: there is none.
    """
    spool = Spool.at(path)
    try:
        spool.header()
    except FileNotFoundError:
        raise SpoolError(
            f"there is no spool at {path}",
            hint="Start the daemon that writes it with `spanner-cdc read CONFIG`, or set projectId, instanceId,"
            " databaseId and changeStream to read inside this job.",
        ) from None
    return spool


def planned(options: SourceOptions, manifests: Iterable[Manifest], cores: int) -> list[InputPartition]:
    """Distributes the segments with rows of the requested tables among tasks: contiguous, about equal in bytes."""
    files: list[tuple[SegmentFile, int]] = []
    tables: set[str] = set()
    for manifest in manifests:
        wanted = [table for table in manifest.tables if options.admits(table)]
        if wanted:
            files += [(file, manifest.epoch) for file in manifest.files]
            tables.update(wanted)
    named = tuple(sorted(tables)) if options.tables else None
    return [
        EventsPartition(options.spool, tuple(files[run.start : run.stop]), named, options.envelope)
        for run in runs([file.bytes for file, _ in files], cores)
    ]


def read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows that a task reads, in commit order."""
    if not isinstance(partition, EventsPartition):
        return  # Spark passes a plain InputPartition if there are no tasks
    spool = Spool.at(partition.spool)
    wanted = None if partition.tables is None else pa.array(partition.tables, pa.string())
    writer = OpenCdcWriter(spool.schema)
    for file, epoch in partition.files:
        for batch in _batches(spool, file, epoch):
            if not batch.schema.equals(SCHEMA):
                raise SpoolError(f"{partition.spool}/{file.path} has other columns than this version writes")
            kept = batch if wanted is None else batch.filter(pc.is_in(batch.column("object"), value_set=wanted))
            if kept.num_rows and partition.envelope == OPENCDC:
                yield from opencdc_rows.records(writer, kept)
            elif kept.num_rows:
                yield kept
    set_imports_aside()


def _batches(spool: Spool, file: SegmentFile, epoch: int) -> Iterator[pa.RecordBatch]:
    try:
        yield from spool.batches(file)
    except SpoolError as error:
        if spool.floor() <= epoch:
            raise
        raise SpoolError(
            f"epoch {epoch} was deleted from the spool at {spool.path} before it was read",
            hint="Every registered consumer had passed it: set spool.keep, choose a later option start, or read as a"
            " stream, which is such a consumer.",
        ) from error
