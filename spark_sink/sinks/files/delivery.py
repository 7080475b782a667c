"""Delivers files: configures :mod:`spark_sink.sinks.files.source` and reports what it wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson
from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.core.timestamps import parse
from connector.spool.storage.locations import absolute
from spark_sink.sinks.files import source as file_source
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.dead_letter_files import discard_others
from spark_sink.sinks.files.minute_store import DeliveredFiles, MinuteStore, last_delivered
from spark_sink.sinks.files.plan import FileOptions, Holding, completed_rows_of
from spark_sink.sinks.files.writer import destination_at
from spark_sink.sinks.shared.completing.epoch_rows import forget_completed
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sources.changes.admission import EpochWeight


class FileDelivery(Delivery):
    """Delivers files below ``sink.path``."""

    source = file_source.FileSinkSource
    begins_with_its_start = True

    def __init__(self, config: Config, sink: FilesConfig, feed: Feed) -> None:
        super().__init__(config, feed)
        self._root = absolute(sink.path)
        self._endpoint = sink.endpoint or ""
        self._holding = Holding(config.spool.max_bytes, _absolute(config.source.end))
        self._file_options = file_options_of(config, sink)
        self._holds_minutes = sink.rotate_interval > 0
        self._has_run = False
        self._delivered = DeliveredFiles()

    @property
    def destination(self) -> str:
        """The root, and when the first files appear there."""
        later = "; each once the watermark has passed its minute (sink.rotate_interval)" if self._holds_minutes else ""
        return f"files below {self._root}{later}"

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.files.source.FileSinkSource`."""
        return {
            **super().options,
            "path": self._root,
            "endpoint": self._endpoint,
            "file_options": self._file_options.to_text(),
            "holding": self._holding.to_text(),
            # also where rows are not completed by now: a started micro-batch is repeated with its own options
            "completion": replace(Completion.reading(self._config.source), deletes=True).to_text(),
        }

    def finish(self, reports: Sequence[TaskReport]) -> list[str]:
        """Notes the files for the documents of minutes, and forgets what they no longer need."""
        self._discard(reports)
        first = min(one.first for one in reports)
        if not self.feed.is_backfill:
            batch = StartedBatches(self._spool, self.consumer).at(first)
            begin, last = (batch.first, batch.last) if batch is not None else (first, first)
            if self._delivered.first is None:
                self._delivered.low = self._spool.manifest(begin).watermark_low
                self._delivered.before = last_delivered(self._spool, self.consumer)
                self._delivered.first = begin  # last: unless both are known, the repeated micro-batch looks again
            self._delivered.last = last
            written = (file_source.file_of(one) for one in reports if one.events)
            self._delivered.files.update((file.path, file) for file in written)
        forget_completed(self._spool, before=first, kept_in=completed_rows_of(self.consumer))
        files = sum(1 for one in reports if one.events)
        return [f"{files} files, {sum(one.events for one in reports)} events"]

    def cut_store(self, spark: SparkSession) -> CutStore:
        """The documents of the minutes that are complete."""
        del spark
        return MinuteStore(destination_at(self._root, self._endpoint), self._spool, self.consumer, self._delivered)

    def waiting(self) -> bool:
        """True if there are files to write; an open minute is left for the next run."""
        spool, first, last = self._spool, self._next_epoch(), self._last_epoch()
        if first > last:
            return False
        if StartedBatches(spool, self.consumer).at(first) is not None:
            return True
        epochs = (EpochWeight.of(epoch, bool) for epoch in spool.summaries(first, last))
        return any(file_source.ready(spool, epochs, self._file_options, self._holding))

    def _discard(self, reports: Sequence[TaskReport]) -> None:
        """Removes dead letters of an older program from the first micro-batch, which a former run may have started."""
        if not self._has_run:
            names = {name for one in reports if one.rejected for name in orjson.loads(one.own)}
            discard_others(self.dead_letters, self._spool.header().spool_id, {one.first for one in reports}, names)
        self._has_run = True


def file_options_of(config: Config, sink: FilesConfig) -> FileOptions:
    """The options that decide which files there are."""
    return FileOptions(
        sink.gzip,
        sink.rotate_bytes,
        sink.rotate_interval > 0,
        format=format_of(config, sink),
        timestamps=sink.timestamps,
        schema_files=sink.schema_files,
        object_names=sink.object,
        arrays=sink.arrays,
        complete_rows=config.source.complete_rows,
    )


def format_of(config: Config, sink: FilesConfig) -> str:
    """The format of files: the sink's, with the envelope if it is not Datastream's."""
    return f"opencdc-{sink.format}" if config.envelope.format == "opencdc" else sink.format


def _absolute(end: str | None) -> int | None:
    """The end in nanoseconds since 1970; None if there is none, or one that the daemon resolves."""
    return None if end is None or end == "now" or end.startswith("-") else parse(end)
