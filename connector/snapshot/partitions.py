"""Divides the rows of tables as of one timestamp into partitions, which any process may read."""

from dataclasses import dataclass
from typing import Self

from connector.config import SourceConfig
from connector.core.dialects import Dialect
from connector.core.records import ColumnType
from connector.snapshot.queries import TableQuery


@dataclass(frozen=True, slots=True)
class SnapshotPartition:
    """A part of a query's rows. It can be read until its session or the database's old versions are gone.

    Attributes:
        session: the resource name of the session.
        transaction: the id of the read-only transaction.
        sql: the query.
        token: the partition token.
        columns: the columns of the rows. ``is_primary_key`` is always false: a query's result has no key.
    """

    session: str
    transaction: bytes
    sql: str
    token: bytes
    columns: tuple[ColumnType, ...]

    def to_json(self) -> bytes:
        """The partition as JSON; :meth:`from_json` reads it."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads the result of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: the content is not such a partition.
        """
        raise NotImplementedError


class Snapshot:
    """A batch read-only transaction at one timestamp.

    It lasts as long as its multiplexed session, which Spanner keeps for weeks, whatever becomes of this process, and
    can be read as long as the database keeps versions of that age (``version_retention_period``, an hour by default).
    """

    session: str
    transaction: bytes

    @classmethod
    def open(cls, source: SourceConfig, emulator_host: str | None, timestamp: int) -> Self:
        """Begins a transaction at ``timestamp``, nanoseconds since the epoch; ``emulator_host`` is the environment's.

        Raises:
            UnreachableError: Spanner does not answer; transient errors have been retried for a while.
            VersionRetentionError: the database no longer keeps the versions of that timestamp.
            SpannerCdcError: another error, as one clear line.
        """
        raise NotImplementedError

    def columns(self, query: TableQuery, dialect: Dialect) -> tuple[ColumnType, ...]:
        """The columns of a query's rows, as Spanner describes them at the timestamp; see :meth:`open` for errors."""
        raise NotImplementedError

    def partitions(self, query: TableQuery, dialect: Dialect, *, data_boost: bool = False) -> list[SnapshotPartition]:
        """The partitions of a query's rows; each row is in exactly one. See :meth:`open` for errors."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connection of this process; partitions can still be read."""
        raise NotImplementedError
