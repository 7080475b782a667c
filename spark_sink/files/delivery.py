"""The delivery of files: what :mod:`spark_sink.files.source` is told, and says."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.core.timestamps import parse
from connector.spool.consumers import find
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, tell
from connector.storage.locations import absolute
from spark_sink.files import source as file_source
from spark_sink.files.config import CONSUMER, FilesConfig
from spark_sink.files.plan import FileShape, Holding
from spark_sink.sink.dead_letter_files import discard_others
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.delivery import last_of
from spark_sink.sink.started_batches import BegunBatches
from spark_sink.source.admission import EpochWeight


class FileDelivery:
    """Delivers files below ``sink.path``.

    Args:
        config: the configuration.
        sink: its sink.
    """

    consumer = CONSUMER

    def __init__(self, config: Config, sink: FilesConfig) -> None:
        self._config = config
        self._root = absolute(sink.path)
        self._endpoint = sink.endpoint or ""
        self._holding = Holding(config.spool.max_bytes, _absolute(config.source.end))
        self._shape = shape_of(config, sink)

        self._letters = absolute(sink.dead_letters)
        self._spool = Spool.at(absolute(config.spool.path))
        tables = config.source.tables
        self._keeps = RecordFilter(tables.include, tables.exclude).keeps
        self._said: dict[str, str] = {}
        self._has_run = False
        self._last: int | None = None

    @property
    def destination(self) -> str:
        """The root."""
        return f"files below {self._root}"

    @property
    def checkpoint(self) -> str:
        """The configured one."""
        return absolute(self._config.spark.checkpoint)

    @property
    def source(self) -> type[DataSource]:
        """Writes files."""
        return file_source.FileSinkSource

    @property
    def options(self) -> Mapping[str, str]:
        """As :class:`spark_sink.files.source.FileSinkSource` takes them."""
        return {
            "spool": absolute(self._config.spool.path),
            "path": self._root,
            "endpoint": self._endpoint,
            "shape": self._shape.to_text(),
            "holding": self._holding.to_text(),
            "dead_letters": self._letters,
        }

    def run(self, told: DataFrame) -> str:
        """Has the files written."""
        rows = told.collect()
        if not rows:
            return ""
        self._discard(rows)
        files = [row for row in rows if row.path]
        refused = sum(row.refused for row in rows)
        letters = f", {refused} to the dead letters at {self._letters}" if refused else ""
        said = f"{len(files)} files, {sum(file.rows for file in files)} events{letters}"
        return "; ".join([said, *self._report(rows, refused)])

    def drain(self) -> None:
        """Goes no further than what is sealed by now; a minute that is not over stays open, for the next run."""
        self._last = self._spool.latest()

    def waiting(self) -> bool:
        """Whether files can be written that are not; after a drain, of epochs that were sealed before.

        The sink records a micro-batch when it asks for the next, so this is False only after that.
        """
        spool = self._spool
        consumer = find(spool, self.consumer)
        first = consumer.epoch + 1 if consumer else spool.floor()
        last = last_of(spool, self._last)
        if first > last:
            return False
        if BegunBatches(spool, self.consumer).at(first) is not None:
            return True
        epochs = (EpochWeight.of(epoch, bool) for epoch in spool.summaries(first, last))
        return any(file_source.ready(spool, epochs, self._shape, self._holding))

    def _discard(self, rows: Sequence[Row]) -> None:
        """Removes what an older program refused of the first micro-batch, which may be one that was begun before."""
        if not self._has_run:
            names = {name for row in rows for name in row.letters}
            place = DeadLetters(self._letters, self._endpoint)
            discard_others(place, self._spool.header().spool_id, {row.first for row in rows}, names)
        self._has_run = True

    def _report(self, rows: Sequence[Row], refused: int) -> list[str]:
        """Notes what became of a micro-batch; returns why events were refused, each table's once."""
        stopped = {row.table: "" for row in rows} | {row.table: row.why for row in rows if row.stopped}
        before = report_of(self._spool, self.consumer)
        left_out = {table: "" for table in before.stopped if not self._keeps(table)}
        report = before.after(min(row.first for row in rows), refused, {**left_out, **stopped})
        if report != before:
            tell(self._spool, self.consumer, report)
        reasons = {row.table: row.why for row in rows if row.refused}
        news = [f"{table}: {why}" for table, why in reasons.items() if why != self._said.get(table)]
        self._said |= reasons
        return news


def shape_of(config: Config, sink: FilesConfig) -> FileShape:
    """The options that decide which files there are."""
    return FileShape(
        sink.gzip,
        sink.rotate_bytes,
        sink.rotate_interval > 0,
        format=format_of(config, sink),
        timestamps=sink.timestamps,
        schema_files=sink.schema_files,
        object_names=sink.object,
        arrays=sink.arrays,
    )


def format_of(config: Config, sink: FilesConfig) -> str:
    """What files hold: the sink's format, and the envelope where it is not Datastream's."""
    return f"opencdc-{sink.format}" if config.envelope.format == "opencdc" else sink.format


def _absolute(moment: str | None) -> int | None:
    """The end as nanoseconds since 1970; None where there is none, or one that the daemon's clock resolves."""
    return None if moment is None or moment == "now" or moment.startswith("-") else parse(moment)
