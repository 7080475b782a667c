"""The delivery of files: what :mod:`spark_sink.file_source` is told, and says."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from connector.config import Config, FilesConfig
from connector.consumers import find
from connector.locations import absolute
from connector.spool import Spool
from connector.timestamps import parse
from spark_sink import file_source
from spark_sink.admission import EpochWeight
from spark_sink.begun import BegunBatches
from spark_sink.minutes import FileShape, Holding


class FileDelivery:
    """Delivers files below ``sink.path``.

    Args:
        config: the configuration.
        sink: its sink.
    """

    consumer = file_source.CONSUMER

    def __init__(self, config: Config, sink: FilesConfig) -> None:
        self._config = config
        self._root = absolute(sink.path)
        self._endpoint = sink.endpoint or ""
        self._holding = Holding(config.spool.max_bytes, _absolute(config.source.end))
        self._shape = FileShape(
            sink.gzip,
            sink.rotate_bytes,
            sink.rotate_interval > 0,
            format=format_of(config, sink),
            timestamps=sink.timestamps,
            schema_files=sink.schema_files,
        )

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
        """As :class:`spark_sink.file_source.FileSinkSource` takes them."""
        return {
            "spool": absolute(self._config.spool.path),
            "path": self._root,
            "endpoint": self._endpoint,
            "shape": self._shape.to_text(),
            "holding": self._holding.to_text(),
        }

    def run(self, told: DataFrame) -> str:
        """Has the files written."""
        written = told.collect()
        return f"{len(written)} files, {sum(row.rows for row in written)} events" if written else ""

    def drain(self) -> None:
        """Nothing: a minute that is not over stays open, for the next run."""

    def waiting(self) -> bool:
        """Whether files can be written that are not.

        The sink records a micro-batch when it asks for the next, so this is False only after that.
        """
        spool = Spool.at(self._config.spool.path)
        consumer = find(spool, self.consumer)
        first = consumer.epoch + 1 if consumer else spool.floor()
        if BegunBatches(spool, self.consumer).at(first) is not None:
            return True
        epochs = (EpochWeight.of(manifest, bool) for manifest in spool.manifests(first, spool.latest()))
        return any(file_source.ready(spool, epochs, self._shape, self._holding))


def format_of(config: Config, sink: FilesConfig) -> str:
    """What files hold: the sink's format, and the envelope where it is not Datastream's."""
    return f"opencdc-{sink.format}" if config.envelope.format == "opencdc" else sink.format


def _absolute(moment: str | None) -> int | None:
    """The end as nanoseconds since 1970; None where there is none, or one that the daemon's clock resolves."""
    return None if moment is None or moment == "now" or moment.startswith("-") else parse(moment)
