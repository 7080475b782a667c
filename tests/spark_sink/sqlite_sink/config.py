"""The SQLite sink's options."""

from typing import Literal

from connector.config.sinks import SinkConfig

CONSUMER = "sqlite"


class SqliteConfig(SinkConfig):
    """A database file of SQLite."""

    type: Literal["sqlite"] = "sqlite"
    path: str
