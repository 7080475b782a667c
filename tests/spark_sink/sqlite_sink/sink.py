"""The sink type that an entry point registers as ``sink.type: sqlite``; its checks import no PySpark."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from connector.config.loading import Config
from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.config.sinks import SinkConfig, WatchedStream
from connector.spool.storage.locations import absolute
from spark_sink.sinks.shared.sink_type import SparkSinkType

if TYPE_CHECKING:
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed


class SqliteConfig(SinkConfig):
    """A database file of SQLite."""

    type: Literal["sqlite"] = "sqlite"
    path: str


class SqliteSink(SparkSinkType[SqliteConfig]):
    """Epochs in SQLite, each once."""

    def destination(self, sink: SqliteConfig, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        return {"sink.path": absolute(sink.path)}

    def destination_errors(self, sink: SqliteConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        folder = Path(sink.path).absolute().parent
        return [] if folder.is_dir() else [f"sink.path: there is no folder {folder}"]

    def delivery(self, config: Config, sink: SqliteConfig, feed: "Feed") -> "Delivery":
        from tests.spark_sink.sqlite_sink.delivery import SqliteDelivery

        return SqliteDelivery(config, sink, feed)


SINK = SqliteSink(SqliteConfig)
