"""Spanner's rows as of one timestamp, as a destination has to hold them."""

from collections.abc import Collection, Iterator

import pyarrow as pa

from connector.config import SourceConfig
from connector.core.dialects import Dialect
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.envelope.events import EventWriter
from connector.errors import ConfigurationError, EventError
from connector.proof.verify.differing_keys import key_text
from connector.proof.verify.rows import Columns, parsed
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition

_NEXT = (
    "To compare the others, leave this table out with source.tables.exclude. Please report it with the column's type."
)


class SourceRows:
    """The rows of some tables.

    Args:
        source: the database.
        dialect: the database's.
        timestamp: nanoseconds since 1970, of whole microseconds.

    Raises:
        VersionRetentionError: the database no longer keeps the versions of that timestamp.
        SpannerCdcError: it cannot be reached.
    """

    def __init__(self, source: SourceConfig, dialect: Dialect, timestamp: int) -> None:
        self._source = source
        self._dialect = dialect
        self._snapshot = Snapshot.open(source.address, timestamp)

    def close(self) -> None:
        """Closes the connection."""
        self._snapshot.close()

    def columns(self, watched: TableSchema) -> tuple[ColumnType, ...]:
        """The watched columns that a table had then; see :meth:`payloads` for errors."""
        return self._snapshot.existing(watched.table, [column.name for column in watched.columns], self._dialect)

    def payloads(self, watched: TableSchema, condition: str = "") -> Iterator[bytes]:
        """The rows of a table as the texts of JSON objects, with the watched columns that existed then.

        Args:
            watched: the table.
            condition: in SQL, what the rows satisfy; empty for all rows.

        Raises:
            SpannerCdcError: the table cannot be read, for instance because it did not exist then.
        """
        columns = self.columns(watched)
        if not columns:
            raise ConfigurationError([f"table {watched.table}: the change stream watches none of its columns"])
        schema = TableSchema.of(watched.table, columns, watched.primary_keys)
        query = TableQuery(watched.table, tuple(column.name for column in columns), condition)
        writer = EventWriter(lambda _: schema)
        for partition in self._snapshot.partitions(query, self._dialect):
            for block in read_partition(
                self._source.address,
                partition,
                table=watched.table,
                rpc_priority=self._source.rpc_priority,
            ):
                for text in block.payloads(query.columns).to_pylist():
                    yield _written(writer, watched, text)


def _written(writer: EventWriter, watched: TableSchema, text: str) -> bytes:
    """A row as its event has it."""
    try:
        return writer.payload(text, "")
    except EventError as error:
        raise EventError(f"table {watched.table}: {error.message}", hint=_NEXT) from None


def rows_by_key(
    source: SourceConfig,
    watched: TableSchema,
    rows: Collection[Columns],
    timestamp: int,
    *,
    only_keys: bool = False,
) -> list[Columns]:
    """Those of some rows that Spanner has as of a timestamp, as it has them then.

    Args:
        source: the database.
        watched: the table, with the columns that are read.
        rows: rows with the columns of the key at least.
        timestamp: nanoseconds since 1970.
        only_keys: whether nothing but the columns of the key is read.

    Raises:
        SpannerCdcError: they cannot be read.
    """
    keys = watched.primary_keys
    columns = [one for one in watched.columns if not only_keys or one.name in keys]
    names = tuple(column.name for column in columns)
    schema = TableSchema.of(watched.table, columns, keys)
    writer = EventWriter(lambda _: schema)
    found = read_keys(
        source.address,
        TableQuery(watched.table, names),
        pa.array([key_text(watched, row).decode() for row in rows], pa.string()),
        keys,
        timestamp,
        rpc_priority=source.rpc_priority,
    )
    return [parsed(_written(writer, watched, text)) for block in found for text in block.payloads(names).to_pylist()]
