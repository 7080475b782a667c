"""The sink type that an entry point registers as ``sink.type: sqlite``."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config.loading import Config
from connector.config.sections import SourceConfig
from connector.config.sinks import WatchedStream
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.sink_type import SparkSinkType
from tests.spark_sink.sqlite_sink.config import SqliteConfig

if TYPE_CHECKING:
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery


class SqliteSink(SparkSinkType[SqliteConfig]):
    """Epochs in SQLite, each once."""

    def destination_errors(self, sink: SqliteConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        folder = Path(sink.path).absolute().parent
        return [] if folder.is_dir() else [f"sink.path: there is no folder {folder}"]

    def delivery(self, config: Config, sink: SqliteConfig) -> "Delivery":
        from tests.spark_sink.sqlite_sink.delivery import SqliteDelivery

        return SqliteDelivery(config, sink)

    def replay_into(self, config: Config, sink: SqliteConfig) -> "AbstractContextManager[Replay]":
        raise SinkError("SQLite takes every event: there are no dead letters to replay")


SINK = SqliteSink(SqliteConfig)
