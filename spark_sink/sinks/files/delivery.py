"""Delivers files: configures :mod:`spark_sink.sinks.files.source` and reports what it wrote."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.core.timestamps import parse
from connector.spool.consumers import find
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.files import source as file_source
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.plan import FileOptions, Holding, completed_rows_of
from spark_sink.sinks.shared.completing.epoch_rows import forget_completed
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.dead_letter_files import discard_others
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.delivery import Delivered, checkpoint_of, last_of, new_reasons, report, stopped_of
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sources.changes.admission import EpochWeight


class FileDelivery:
    """Delivers files below ``sink.path``.

    Args:
        config: the configuration.
        sink: its sink.

    Attributes:
        consumer: the sink's name.
    """

    def __init__(self, config: Config, sink: FilesConfig) -> None:
        self.consumer = sink.name
        self._config = config
        self._checkpoint = checkpoint_of(config, sink)
        self._root = absolute(sink.path)
        self._endpoint = sink.endpoint or ""
        self._holding = Holding(config.spool.max_bytes, _absolute(config.source.end))
        self._file_options = file_options_of(config, sink)
        self._holds_minutes = sink.rotate_interval > 0

        self._dead_letters = absolute(sink.dead_letters)
        self._spool = Spool.at(absolute(config.spool.path))
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._reported: dict[str, str] = {}
        self._has_run = False
        self._last: int | None = None

    @property
    def destination(self) -> str:
        """The root, and when the first files appear there."""
        later = "; each once the watermark has passed its minute (sink.rotate_interval)" if self._holds_minutes else ""
        return f"files below {self._root}{later}"

    @property
    def checkpoint(self) -> str:
        """The configured one; a sink with a name of its own has a folder of its own below it."""
        return self._checkpoint

    @property
    def source(self) -> type[DataSource]:
        """Writes files."""
        return file_source.FileSinkSource

    @property
    def options(self) -> Mapping[str, str]:
        """The options of :class:`spark_sink.sinks.files.source.FileSinkSource`."""
        completion = Completion.of(self._config.source)
        return {
            "spool": absolute(self._config.spool.path),
            "consumer": self.consumer,
            "path": self._root,
            "endpoint": self._endpoint,
            "file_options": self._file_options.to_text(),
            "holding": self._holding.to_text(),
            "dead_letters": self._dead_letters,
            "completion": completion.to_text() if completion else "",
        }

    def run(self, reports: DataFrame) -> str:
        """Runs a micro-batch and reports its files and rejected events."""
        rows = reports.collect()
        if not rows:
            return ""
        self._discard(rows)
        forget_completed(self._spool, before=min(row.first for row in rows), kept_in=completed_rows_of(self.consumer))
        files = [row for row in rows if row.path]
        refused = sum(row.refused for row in rows)
        rejected = f", {refused} to the dead letters at {self._dead_letters}" if refused else ""
        incomplete = sum(row.incomplete for row in rows)
        lacking = f", {incomplete} without columns that Spanner no longer keeps" if incomplete else ""
        summary = f"{len(files)} files, {sum(file.rows for file in files)} events{lacking}{rejected}"
        return "; ".join([summary, *self._report(rows, refused, incomplete)])

    def drain(self) -> None:
        """Bounds the delivery by the newest epoch of now; an open minute is left for the next run."""
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """True if there are files to write; after :meth:`drain`, of epochs that were sealed before it.

        The sink records a micro-batch as done when Spark requests the next, so this is False only after that.
        """
        spool = self._spool
        consumer = find(spool, self.consumer)
        first = consumer.epoch + 1 if consumer else spool.floor()
        last = last_of(spool, self._last)
        if first > last:
            return False
        if StartedBatches(spool, self.consumer).at(first) is not None:
            return True
        epochs = (EpochWeight.of(epoch, bool) for epoch in spool.summaries(first, last))
        return any(file_source.ready(spool, epochs, self._file_options, self._holding))

    def _discard(self, rows: Sequence[Row]) -> None:
        """Removes dead letters of an older program from the first micro-batch, which a former run may have started."""
        if not self._has_run:
            names = {name for row in rows for name in row.dead_letters}
            store = DeadLetters(self._dead_letters, self._endpoint)
            discard_others(store, self._spool.header().spool_id, {row.first for row in rows}, names)
        self._has_run = True

    def _report(self, rows: Sequence[Row], refused: int, incomplete: int) -> list[str]:
        """Writes the sink's report; returns each table's new reason for rejected events."""
        first, events = min(row.first for row in rows), sum(row.rows for row in rows)
        delivered = Delivered(first, events, refused, incomplete, stopped_of(rows))
        report(self._spool, self.consumer, self._keeps, delivered)
        return new_reasons(rows, self._reported)


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
