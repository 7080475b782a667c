"""The file sink's own stream: its tasks write files, and its rows report them.

A task reads the Arrow files itself and writes to the destination, several times as fast as through Spark's rows. The
source's ``read`` does it, because PySpark's mapInArrow would need pandas. A micro-batch is run by collecting the rows,
once.

A micro-batch holds whole minutes, up to the last one that the newest epoch's watermark has passed; or whole epochs, if
files are written as soon as an epoch is sealed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connector.spool.lifecycle import state_of
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.summaries import held_bytes
from spark_sink.sinks.files.config import CONSUMER, FORMER_NAMES
from spark_sink.sinks.files.plan import (
    FileOptions,
    FilesPartition,
    FilesRoot,
    Holding,
    completed_rows_of,
    file_groups,
)
from spark_sink.sinks.files.writer import FileWriter, WrittenFile, destination_at
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.reports import TaskReport, as_rows
from spark_sink.sinks.shared.sink_stream import SinkSource, SinkStreamReader
from spark_sink.sources.changes.admission import EpochWeight, Group, by_epoch, by_minute, runs

_BATCH_BYTES = 1024**3
"""Bytes of segments in a micro-batch; bounds what a failed one repeats."""

_LOOKED_AT = 1024 * 1024
"""Bytes that are not written from which on the daemon's own limit is looked at, which costs a request in a bucket."""


class FileSinkSource(SinkSource):
    """Writes a spool's events as files; internal to the sink.

    Options: ``path``, absolute; ``endpoint``, an emulator's or empty; ``file_options`` and ``holding``, a
    :class:`spark_sink.sinks.files.plan.FileOptions` and a :class:`spark_sink.sinks.files.plan.Holding` as text.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "spanner-change-stream-files"

    def streamReader(self, schema: object) -> "FileSinkReader":  # noqa: N802
        """Writes every epoch once."""
        options = self.options
        return FileSinkReader(
            Feed.of_options(options),
            FilesRoot(options["path"], options["endpoint"], options["dead_letters"]),
            FileOptions.from_text(options["file_options"]),
            Holding.from_text(options["holding"]),
            self.most_tasks,
            Completion.from_text(options["completion"]),
            name=options["consumer"],
        )


class FileSinkReader(SinkStreamReader):
    """Plans a spool's minutes, or epochs, for tasks that write them."""

    def __init__(
        self,
        feed: Feed,
        root: FilesRoot,
        file_options: FileOptions,
        holding: Holding,
        cores: int,
        completion: Completion | None = None,
        *,
        name: str = CONSUMER,
    ) -> None:
        super().__init__(feed, name, file_options.to_text(), batch_bytes=_BATCH_BYTES)
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
                completion_of(self._completion, file_options),
                completed_rows_of(self._consumer),
            )
            for run in runs([group.bytes for group in groups], self._cores)
        ]

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Writes the files of a task and reports each."""
        assert isinstance(partition, FilesPartition)
        destination = destination_at(partition.root.path, partition.root.endpoint)
        dead_letters = DeadLetters(partition.root.dead_letters, partition.root.endpoint, former=FORMER_NAMES)
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
            first = group.first_epoch
            reports = [
                TaskReport(first, file.table, events=file.rows, own=orjson.dumps((file.path, file.bytes)).decode())
                for file in writer.write(group)
            ]
            reports += writer.rejected
            reports += [TaskReport(first, table, incomplete=count) for table, count in writer.incomplete.items()]
            writer.rejected.clear()
            writer.incomplete.clear()
            yield as_rows(reports)


def file_of(report: TaskReport) -> WrittenFile:
    """The file that a report with events is about."""
    path, size = orjson.loads(report.own)
    return WrittenFile(path, report.events, size, report.table)


def ready(spool: Spool, epochs: Iterable[EpochWeight], file_options: FileOptions, holding: Holding) -> Iterable[Group]:
    """The groups of epochs whose files can be written now."""
    unwritten = list(epochs)
    if not file_options.by_minute or not unwritten:
        return by_epoch(unwritten)
    # Not the spool's newest epoch: one sealed meanwhile may end the minute and hold events of it.
    newest = spool.manifest(unwritten[-1].epoch)
    held = held_bytes(epoch.summary for epoch in unwritten if epoch.summary)
    final = holding.releases(newest, held) or (
        held >= _LOOKED_AT and holding.releases(newest, held, state_of(spool).max_bytes)
    )
    return by_minute(unwritten, newest.watermark_high, final=final)


def completion_of(completion: Completion | None, file_options: FileOptions) -> Completion | None:
    """The way in which rows of files with these options are completed; None if they are not."""
    if completion is None or not file_options.complete_rows:
        return None
    return replace(completion, deletes=file_options.removed_rows)
