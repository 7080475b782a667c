"""The file sink's own stream: its tasks write files, and its rows tell of them.

A task reads the Arrow files itself and writes the destination, several times as fast as through Spark's rows.
(PySpark's mapInArrow would need pandas, so the writing stands in the source's ``read``.) A micro-batch is run by
collecting its rows, once.

A micro-batch holds whole minutes, up to the last one that the newest epoch's watermark has passed; or whole epochs,
where files are written as soon as an epoch is sealed.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.summaries import held_bytes
from spark_sink.files.config import CONSUMER
from spark_sink.files.plan import FileShape, FilesPartition, FilesRoot, Holding, file_groups, shared_out
from spark_sink.files.writer import FileWriter
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.destination import destination_at
from spark_sink.sink.sink_stream import SinkStreamReader
from spark_sink.source.admission import EpochWeight, Group, by_epoch, by_minute
from spark_sink.source.data_source import existing

FORMAT = "spanner-change-stream-files"

_ARROW = pa.schema(
    [
        pa.field("first", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("table", pa.string()),
        pa.field("refused", pa.int64()),
        pa.field("why", pa.string()),
        pa.field("stopped", pa.bool_()),
        pa.field("letters", pa.list_(pa.string())),
    ]
)
"""Of a group of epochs, which begins with ``first``: a file that was written, or events of a table as dead letters.

A table is ``stopped`` where all of its events are refused, whatever they hold.
"""
_NOTHING = {"path": "", "rows": 0, "bytes": 0, "table": "", "refused": 0, "why": "", "stopped": False, "letters": ()}

_BATCH_BYTES = 1024**3
"""Bytes of segments in a micro-batch, so that one that broke off does not repeat hours."""


class FileSinkSource(DataSource):
    """Writes a spool's events as files; internal to the sink.

    Options: ``spool`` and ``path``, absolute; ``endpoint``, an emulator's or empty; ``shape`` and ``holding``, a
    :class:`spark_sink.files.plan.FileShape` and a :class:`spark_sink.files.plan.Holding` as text; ``dead_letters``,
    absolute.
    """

    cores = 0
    """How many tasks a micro-batch has at most; 0 for one each processor of this machine."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """What is told of a micro-batch.

        Raises:
            SpoolError: there is no spool.
        """
        existing(self.options["spool"])
        return from_arrow_schema(_ARROW)

    def streamReader(self, schema: object) -> "FileSinkReader":  # noqa: N802
        """Writes every epoch, each once."""
        shape, holding = FileShape.from_text(self.options["shape"]), Holding.from_text(self.options["holding"])
        root = FilesRoot(self.options["path"], self.options["endpoint"], self.options["dead_letters"])
        return FileSinkReader(self.options["spool"], root, shape, holding, self.cores or os.cpu_count() or 1)


class FileSinkReader(SinkStreamReader):
    """Gives a spool's minutes, or epochs, to tasks that write them."""

    def __init__(self, spool: str, root: FilesRoot, shape: FileShape, holding: Holding, cores: int) -> None:
        super().__init__(spool, CONSUMER, shape.to_text(), batch_bytes=_BATCH_BYTES)
        self._root = root
        self._shape = shape
        self._holding = holding
        self._cores = cores

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        """The minutes that the watermark has passed, or each epoch."""
        return ready(self._spool, epochs, self._shape, self._holding)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """Shares the groups out among tasks."""
        shape = FileShape.from_text(pinned) if pinned else self._shape
        groups = file_groups(epochs, by_minute=shape.by_minute)
        spool_id = self._spool.header().spool_id
        return [
            FilesPartition(self._spool.path, spool_id, self._root, shape, tuple(groups[run.start : run.stop]))
            for run in shared_out(groups, self._cores)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Writes the files of a task, and tells of each."""
        assert isinstance(partition, FilesPartition)
        destination = destination_at(partition.root.path, partition.root.endpoint)
        letters = DeadLetters(partition.root.dead_letters, partition.root.endpoint)
        writer = FileWriter(Spool.at(partition.spool), partition.spool_id, destination, partition.shape, letters)
        for group in partition.groups:
            told: list[dict[str, object]] = [asdict(file) for file in writer.write(group)]
            told += [
                {
                    "table": of_table.table,
                    "refused": of_table.rows,
                    "why": of_table.why,
                    "stopped": bool(of_table.stopped),
                    "letters": of_table.names,
                }
                for of_table in writer.refusals
            ]
            writer.refusals.clear()
            first = group.first_epoch
            yield pa.RecordBatch.from_pylist([{**_NOTHING, "first": first, **one} for one in told], schema=_ARROW)


def ready(spool: Spool, epochs: Iterable[EpochWeight], shape: FileShape, holding: Holding) -> Iterable[Group]:
    """The groups of epochs whose files can be written now."""
    unwritten = list(epochs)
    if not shape.by_minute or not unwritten:
        return by_epoch(unwritten)
    # Not the spool's newest: one sealed meanwhile may end the minute, and hold some of it.
    newest = spool.manifest(unwritten[-1].epoch)
    final = holding.releases(newest, held_bytes(epoch.summary for epoch in unwritten if epoch.summary))
    return by_minute(unwritten, newest.watermark_high, final=final)
