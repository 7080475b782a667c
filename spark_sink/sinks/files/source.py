"""The file sink's own stream: its tasks write files, and its rows report them.

A task reads the Arrow files itself and writes to the destination, several times as fast as through Spark's rows. The
source's ``read`` does it, because PySpark's mapInArrow would need pandas. A micro-batch is run by collecting the rows,
once.

A micro-batch holds whole minutes, up to the last one that the newest epoch's watermark has passed; or whole epochs, if
files are written as soon as an epoch is sealed.
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
from spark_sink.sinks.files.config import CONSUMER
from spark_sink.sinks.files.plan import (
    FileOptions,
    FilesPartition,
    FilesRoot,
    Holding,
    completed_rows_of,
    file_groups,
    shared_out,
)
from spark_sink.sinks.files.writer import FileWriter
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.destination import destination_at
from spark_sink.sinks.shared.sink_stream import SinkStreamReader
from spark_sink.sources.changes.admission import EpochWeight, Group, by_epoch, by_minute
from spark_sink.sources.changes.data_source import existing

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
        pa.field("dead_letters", pa.list_(pa.string())),
        pa.field("incomplete", pa.int64()),
    ]
)
"""A row for each file, and for each table with rejected events, of a group of epochs that begins with ``first``.

``refused`` counts the rejected events; ``stopped`` says whether no event of the table can be written; ``dead_letters``
are the names of the dead-letter files; ``incomplete`` counts events that lack columns which could not be read.
"""
_NOTHING = {
    "path": "",
    "rows": 0,
    "bytes": 0,
    "table": "",
    "refused": 0,
    "why": "",
    "stopped": False,
    "dead_letters": (),
    "incomplete": 0,
}

_BATCH_BYTES = 1024**3
"""Bytes of segments in a micro-batch; bounds what a failed one repeats."""


class FileSinkSource(DataSource):
    """Writes a spool's events as files; internal to the sink.

    Options: ``spool`` and ``path``, absolute; ``consumer``, the sink's name; ``endpoint``, an emulator's or empty;
    ``file_options`` and ``holding``, a :class:`spark_sink.sinks.files.plan.FileOptions` and a
    :class:`spark_sink.sinks.files.plan.Holding` as text; ``dead_letters``, absolute;
    ``completion``, a :class:`spark_sink.sinks.shared.completing.spanner_rows.Completion` as text, or empty.
    """

    cores = 0
    """The most tasks of a micro-batch; 0 for one for each processor of this machine."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a micro-batch's report.

        Raises:
            SpoolError: there is no spool.
        """
        existing(self.options["spool"])
        return from_arrow_schema(_ARROW)

    def streamReader(self, schema: object) -> "FileSinkReader":  # noqa: N802
        """Writes every epoch once."""
        file_options = FileOptions.from_text(self.options["file_options"])
        holding = Holding.from_text(self.options["holding"])
        root = FilesRoot(self.options["path"], self.options["endpoint"], self.options["dead_letters"])
        completion = Completion.from_text(self.options["completion"])
        cores = self.cores or os.cpu_count() or 1
        spool, name = self.options["spool"], self.options["consumer"]
        return FileSinkReader(spool, root, file_options, holding, cores, completion, name=name)


class FileSinkReader(SinkStreamReader):
    """Plans a spool's minutes, or epochs, for tasks that write them."""

    def __init__(
        self,
        spool: str,
        root: FilesRoot,
        file_options: FileOptions,
        holding: Holding,
        cores: int,
        completion: Completion | None = None,
        *,
        name: str = CONSUMER,
    ) -> None:
        super().__init__(spool, name, file_options.to_text(), batch_bytes=_BATCH_BYTES)
        self._root = root
        self._file_options = file_options
        self._holding = holding
        self._completion = completion
        self._cores = cores

    def ready(self, epochs: Iterable[EpochWeight]) -> Iterable[Group]:
        """The minutes that the watermark has passed, or every epoch."""
        return ready(self._spool, epochs, self._file_options, self._holding)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """Divides the groups among tasks."""
        file_options = FileOptions.from_text(pinned) if pinned else self._file_options
        groups = file_groups(epochs, by_minute=file_options.by_minute)
        spool_id = self._spool.header().spool_id
        return [
            FilesPartition(
                self._spool.path,
                spool_id,
                self._root,
                file_options,
                tuple(groups[run.start : run.stop]),
                self._completion if file_options.complete_rows else None,
                completed_rows_of(self._consumer),
            )
            for run in shared_out(groups, self._cores)
        ]

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Writes the files of a task and reports each."""
        assert isinstance(partition, FilesPartition)
        destination = destination_at(partition.root.path, partition.root.endpoint)
        dead_letters = DeadLetters(partition.root.dead_letters, partition.root.endpoint)
        writer = FileWriter(
            Spool.at(partition.spool),
            partition.spool_id,
            destination,
            partition.file_options,
            dead_letters,
            partition.completion,
            partition.kept_in,
        )
        for group in partition.groups:
            reports: list[dict[str, object]] = [asdict(file) for file in writer.write(group)]
            reports += [
                {
                    "table": of_table.table,
                    "refused": of_table.rows,
                    "why": of_table.why,
                    "stopped": bool(of_table.stopped),
                    "dead_letters": of_table.names,
                }
                for of_table in writer.rejected
            ]
            reports += [{"table": table, "incomplete": count} for table, count in writer.incomplete.items()]
            writer.rejected.clear()
            writer.incomplete.clear()
            first = group.first_epoch
            yield pa.RecordBatch.from_pylist([{**_NOTHING, "first": first, **one} for one in reports], schema=_ARROW)


def ready(spool: Spool, epochs: Iterable[EpochWeight], file_options: FileOptions, holding: Holding) -> Iterable[Group]:
    """The groups of epochs whose files can be written now."""
    unwritten = list(epochs)
    if not file_options.by_minute or not unwritten:
        return by_epoch(unwritten)
    # Not the spool's newest epoch: one sealed meanwhile may end the minute and hold events of it.
    newest = spool.manifest(unwritten[-1].epoch)
    final = holding.releases(newest, held_bytes(epoch.summary for epoch in unwritten if epoch.summary))
    return by_minute(unwritten, newest.watermark_high, final=final)
