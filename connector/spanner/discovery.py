"""Reads INFORMATION_SCHEMA: a database's dialect, its change streams, and the tables that they watch."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from connector.core.dialects import DIALECTS, IMMUTABLE, Dialect
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.core.timestamps import parse
from connector.errors import ConfigurationError

DEFAULT_RETENTION = "7d"
"""Of a change stream that does not set its own, since May 2026: https://cloud.google.com/spanner/docs/release-notes."""

DEFAULT_VALUE_CAPTURE_TYPE = "OLD_AND_NEW_VALUES"


class Metadata(Protocol):
    """A reader of a database's metadata, such as :class:`connector.spanner.client.SpannerClient`."""

    @property
    def database(self) -> str:
        """Its resource name."""

    async def rows(self, sql: str) -> list[list[object]]:
        """The rows of a statement."""


class VersionedMetadata(Metadata, Protocol):
    """A reader of a database's metadata, as of now or of a timestamp."""

    async def rows(self, sql: str, *, at: int | None = None) -> list[list[object]]:
        """The rows of a statement; ``at`` is Unix nanoseconds, None for a strong read."""


@dataclass(frozen=True, slots=True)
class MetadataAsOf:
    """Reads a database's metadata as of a timestamp, Unix nanoseconds; None for now."""

    client: VersionedMetadata
    timestamp: int | None

    @property
    def database(self) -> str:
        """Its resource name."""
        return self.client.database

    async def rows(self, sql: str) -> list[list[object]]:
        """The rows of a statement."""
        return await self.client.rows(sql, at=self.timestamp)


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """A change stream: its options, set or default, and the tables that it watches at present.

    ``data_types`` has the type of each column as the database spells it, by the names of table and column. ``options``
    has every option that is set, as the database spells it, by its name. Where it does not set ``retention_period``,
    the documented default stands in for it: what Spanner still retains, only its answer to a query shows.
    """

    name: str
    retention_period: str
    value_capture_type: str
    partition_mode: str
    tables: tuple[TableSchema, ...]
    data_types: Mapping[tuple[str, str], str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def retention_is_default(self) -> bool:
        """True if the database has no retention period of its own, so that the default applies."""
        return "retention_period" not in self.options

    @property
    def retention(self) -> str:
        """Its retention period, for people."""
        return f"{self.retention_period} (Spanner's default)" if self.retention_is_default else self.retention_period


async def dialect_of(client: Metadata) -> Dialect:
    """The database's dialect.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses the query.
    """
    rows = await client.rows(
        "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"
    )
    return DIALECTS[str(rows[0][0])] if rows else DIALECTS["GOOGLE_STANDARD_SQL"]


async def current_timestamp(client: Metadata) -> int:
    """Spanner's clock, Unix nanoseconds."""
    return parse(str((await client.rows("SELECT CURRENT_TIMESTAMP"))[0][0]))


async def change_streams(client: Metadata, dialect: Dialect) -> list[ChangeStream]:
    """Every change stream of the database, by name."""
    streams = await client.rows(
        'SELECT change_stream_name, "all" FROM information_schema.change_streams'
        if dialect.unnamed_schema
        else "SELECT change_stream_name, `all` FROM information_schema.change_streams"
    )
    if not streams:
        return []
    options = await change_stream_options(client)
    watched_tables = await client.rows(
        "SELECT change_stream_name, table_schema, table_name, all_columns FROM information_schema.change_stream_tables"
    )
    watched_columns = await client.rows(
        "SELECT change_stream_name, table_schema, table_name, column_name FROM information_schema.change_stream_columns"
    )
    tables, data_types = await _tables(client, dialect)
    out = []
    for name, everything in sorted(streams, key=lambda row: str(row[0])):
        whole = {
            dialect_name(dialect, s, t) for n, s, t, all_columns in watched_tables if n == name and _yes(all_columns)
        }
        columns: dict[str, set[str]] = defaultdict(set)
        for stream, schema, table, column in watched_columns:
            if stream == name:
                columns[dialect_name(dialect, schema, table)].add(str(column))
        keys_only = {dialect_name(dialect, s, t) for n, s, t, _ in watched_tables if n == name}
        chosen = [
            table if _yes(everything) or table.table in whole else _narrowed(table, columns[table.table])
            for table in tables
            if _yes(everything) or table.table in keys_only
        ]
        option = dict(sorted(options.get(str(name), {}).items()))
        out.append(
            ChangeStream(
                str(name),
                option.get("retention_period", DEFAULT_RETENTION),
                option.get("value_capture_type", DEFAULT_VALUE_CAPTURE_TYPE),
                option.get("partition_mode", IMMUTABLE),
                tuple(chosen),
                data_types,
                option,
            )
        )
    return out


async def change_stream_names(client: Metadata) -> list[str]:
    """The names of the database's change streams.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses the query.
    """
    rows = await client.rows("SELECT change_stream_name FROM information_schema.change_streams")
    return [str(name) for (name,) in rows]


async def change_stream_options(client: Metadata) -> Mapping[str, Mapping[str, str]]:
    """The options that are set, by change stream and name; a stream that sets none has an empty mapping.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses the query.
    """
    options: dict[str, dict[str, str]] = defaultdict(dict)
    for stream, name, value in await client.rows(
        "SELECT change_stream_name, option_name, option_value FROM information_schema.change_stream_options"
    ):
        options[str(stream)][str(name)] = str(value)
    return options


async def find_change_stream(client: Metadata, dialect: Dialect, name: str) -> ChangeStream:
    """The change stream of that name.

    Raises:
        ConfigurationError: there is none; the message lists the others.
    """
    found = await change_streams(client, dialect)
    for stream in found:
        if stream.name == name:
            return stream
    known = ", ".join(stream.name for stream in found) or "none"
    raise ConfigurationError(
        [f"source.change_stream: {client.database} has no change stream {name!r}; it has: {known}"]
    )


async def primary_keys(client: Metadata, dialect: Dialect) -> dict[str, tuple[str, ...]]:
    """The columns of each table's key, in key order, as they are now.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses the query.
    """
    keys: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for schema, table, column, position in await client.rows(
        "SELECT table_schema, table_name, column_name, ordinal_position FROM information_schema.index_columns"
        " WHERE index_type = 'PRIMARY_KEY' AND ordinal_position IS NOT NULL"
    ):
        keys[dialect_name(dialect, schema, table)].append((int(str(position)), str(column)))
    return {table: tuple(column for _, column in sorted(key)) for table, key in keys.items()}


async def _tables(client: Metadata, dialect: Dialect) -> tuple[list[TableSchema], Mapping[tuple[str, str], str]]:
    """The tables, and the type of each column as the database spells it."""
    keys = await primary_keys(client, dialect)
    spelled: dict[tuple[str, str], str] = {}
    columns: dict[str, list[ColumnType]] = defaultdict(list)
    for schema, table, column, position, kind, generated in await client.rows(
        "SELECT c.table_schema, c.table_name, c.column_name, c.ordinal_position, c.spanner_type, c.is_generated"
        " FROM information_schema.columns AS c JOIN information_schema.tables AS t"
        " ON c.table_schema = t.table_schema AND c.table_name = t.table_name"
        " WHERE t.table_type = 'BASE TABLE' AND c.table_schema NOT IN"
        " ('INFORMATION_SCHEMA', 'SPANNER_SYS', 'information_schema', 'spanner_sys', 'pg_catalog')"
    ):
        name = dialect_name(dialect, schema, table)
        is_key = str(column) in keys.get(name, ())
        type_json = dialect.column_type(str(kind))
        # A change stream does not watch generated columns; an unknown type is taken from the first record.
        if type_json is not None and (is_key or generated == "NEVER"):
            columns[name].append(ColumnType(str(column), type_json, is_key, int(str(position))))
            spelled[name, str(column)] = str(kind)
    return [TableSchema.of(name, found, keys.get(name, ())) for name, found in sorted(columns.items())], spelled


def dialect_name(dialect: Dialect, schema: object, table: object) -> str:
    """A table as change records name it: bare in the unnamed schema, ``schema.table`` in another."""
    return str(table) if schema == dialect.unnamed_schema else f"{schema}.{table}"


def _narrowed(table: TableSchema, columns: Iterable[str]) -> TableSchema:
    kept = set(columns)
    return TableSchema.of(
        table.table, [c for c in table.columns if c.is_primary_key or c.name in kept], table.primary_keys
    )


def _yes(value: object) -> bool:
    return value in (True, "YES")
