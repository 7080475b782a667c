"""Spanner's rows as of one timestamp, as a destination has to hold them."""

from collections.abc import Iterator, Sequence

from connector.config import SourceConfig
from connector.core.dialects import Dialect
from connector.core.schemas import TableSchema
from connector.envelope.events import EventWriter
from connector.errors import ConfigurationError
from connector.snapshot.partitions import Snapshot
from connector.snapshot.queries import TableQuery
from connector.snapshot.reading import read_partition
from connector.verify.rows import INSERT, RowChange, key_of, parsed


class SourceRows:
    """The rows of some tables.

    Args:
        source: the database.
        emulator_host: an emulator's address, or None.
        dialect: the database's.
        timestamp: nanoseconds since 1970, of whole microseconds.

    Raises:
        VersionRetentionError: the database no longer keeps the versions of that timestamp.
        SpannerCdcError: it cannot be reached.
    """

    def __init__(self, source: SourceConfig, emulator_host: str | None, dialect: Dialect, timestamp: int) -> None:
        self._source = source
        self._emulator_host = emulator_host
        self._dialect = dialect
        self._timestamp = timestamp
        self._snapshot = Snapshot.open(source, emulator_host, timestamp)

    def close(self) -> None:
        """Closes the connection."""
        self._snapshot.close()

    def rows(self, watched: TableSchema) -> Iterator[RowChange]:
        """The rows of a table, with the columns that the change stream watches and that existed then.

        Raises:
            SpannerCdcError: the table cannot be read, for instance because it did not exist then.
        """
        names = {column.name for column in watched.columns}
        existing = self._snapshot.columns(TableQuery(watched.table), self._dialect)
        columns = [column for column in existing if column.name in names]
        if not columns:
            raise ConfigurationError([f"table {watched.table}: the change stream watches none of its columns"])
        schema = TableSchema.of(watched.table, columns, watched.primary_keys)
        query = TableQuery(watched.table, tuple(column.name for column in columns))
        writer = EventWriter(lambda _: schema)
        for partition in self._snapshot.partitions(query, self._dialect):
            for block in read_partition(
                self._source, self._emulator_host, partition, rpc_priority=self._source.rpc_priority
            ):
                payloads = [writer.payload(text, "") for text in block.payloads(query.columns).to_pylist()]
                yield from self._of(watched.table, watched.primary_keys, payloads)

    def _of(self, table: str, keys: Sequence[str], payloads: Sequence[bytes]) -> Iterator[RowChange]:
        order = self._timestamp, 0, 0
        for payload in payloads:
            yield RowChange(table, key_of(keys, parsed(payload)), order, INSERT, payload)
