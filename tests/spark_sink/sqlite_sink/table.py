"""The tables in SQLite: the events, and the epochs that are written, each in the transaction of its events."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from spark_sink.errors import SinkError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (spool TEXT, epoch INTEGER, identity TEXT NOT NULL, PRIMARY KEY (spool, epoch))",
    "CREATE TABLE IF NOT EXISTS events (epoch INTEGER, uuid TEXT, object TEXT, payload TEXT)",
)
Event = tuple[str, str, str]
"""Its uuid, its table's name, and its payload."""


def write_epoch(path: str, spool: str, epoch: int, identity: str, events: Iterable[Event]) -> bool:
    """Writes an epoch, with its number and identity, in one transaction; False if it was written before.

    A change stream and each of its backfills are spools of their own, and each numbers its epochs from 1.

    Raises:
        SinkError: another epoch was written under this number.
    """
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        for statement in _TABLES:
            database.execute(statement)
        database.execute("BEGIN IMMEDIATE")
        written = database.execute(
            "SELECT identity FROM epochs WHERE spool = ? AND epoch = ?", (spool, epoch)
        ).fetchone()
        if written is not None:
            if written[0] != identity:
                raise SinkError(f"{path} holds another epoch {epoch}: {written[0]}, not {identity}")
            return False
        database.execute("INSERT INTO epochs VALUES (?, ?, ?)", (spool, epoch, identity))
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", ((epoch, *event) for event in events))
        return True


def events(path: str) -> list[tuple[int, str]]:
    """The epoch and the payload of each event, in the order in which they were written."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT epoch, payload FROM events ORDER BY rowid").fetchall()
