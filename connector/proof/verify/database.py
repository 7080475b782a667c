"""Another Spanner database, as ``spanner-cdc verify --against`` compares it: both are read as of one timestamp."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import ClassVar, Self

import msgspec
import pyarrow as pa

from connector.config import SourceConfig
from connector.config.columns import Columns
from connector.config.replicas import DatabaseCopy, Replica, Selection
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.dialects import Dialect
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.proof.verify.rows import INSERT
from connector.proof.verify.source_rows import SourceRows
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import primary_keys
from connector.spanner.snapshot.database import DatabaseNow

_PATH = re.compile(r"projects/([^/]+)/instances/([^/]+)/databases/([^/]+)")
_ROWS_AT_ONCE = 5000

_ROWS = pa.schema(
    [
        pa.field("object", pa.string()),
        pa.field("sort_keys", pa.list_(pa.string())),
        pa.field("source_metadata", pa.struct([pa.field("mod_type", pa.string())])),
        pa.field("payload", pa.binary()),
    ]
)

_COMPARED_AS: Mapping[ColumnKind, ColumnKind] = {
    ColumnKind.ENUM: ColumnKind.INT64,
    ColumnKind.PG_NUMERIC: ColumnKind.NUMERIC,
    ColumnKind.PROTO: ColumnKind.BYTES,
    ColumnKind.UUID: ColumnKind.STRING,
}
"""Kinds whose values have the same texts as those of another kind."""


def database_at(path: str, source: SourceConfig) -> SourceConfig:
    """Another database, which is reached as the source is, without its database role.

    Args:
        path: ``projects/P/instances/I/databases/D``.
        source: the database to compare with.

    Raises:
        ConfigurationError: it is not such a path, or names the source.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise ConfigurationError([f"--against: {path} is not projects/PROJECT/instances/INSTANCE/databases/DATABASE"])
    project, instance, database = match.groups()
    if (project, instance, database) == (source.project, source.instance, source.database):
        raise ConfigurationError([f"--against: {path} is the source itself: name another database"])
    return source.model_copy(
        update={"project": project, "instance": instance, "database": database, "database_role": None}
    )


class DatabaseReplica(Replica):
    """The tables of another database, as of a timestamp.

    Args:
        source: the other database.
        dialect: its dialect.
        keys: the key of each of its tables.
        timestamp: nanoseconds since 1970, of whole microseconds.
    """

    option: ClassVar[str] = "--against"
    missing_note = ""

    def __init__(
        self, source: SourceConfig, dialect: Dialect, keys: Mapping[str, Sequence[str]], timestamp: int
    ) -> None:
        self.name = source.address.path
        self.delivered = self._read_at = timestamp
        self._source = source
        self._dialect = dialect
        self._keys = keys

    @classmethod
    async def of(cls, source: SourceConfig, *, at: str) -> Self:
        """Requests dialect, keys and clock.

        Args:
            source: the other database.
            at: ``now``, an offset such as ``-15m``, or an RFC 3339 timestamp.

        Raises:
            ConfigurationError: the timestamp is not valid, or in the future.
            SpannerCdcError: the database cannot be reached, or refuses a query.
        """
        return cls(source, *await _requested(source, at))

    def check(self, tables: Sequence[TableSchema]) -> None:
        """Checks that tables of the source can be compared with those of this database.

        Raises:
            ConfigurationError: naming every table and column that cannot.
            SpannerCdcError: the database cannot be read.
        """
        tables = [self._there(table) for table in tables]
        faults = [f"{self.option}: there is no table {one.table}" for one in tables if one.table not in self._keys]
        with closing(self._rows()) as rows:
            for table in tables:
                if table.table in self._keys:
                    columns = rows.columns(table)
                    faults += [
                        f"{self.option}: table {table.table}: {fault}: it cannot be compared"
                        for fault in _faults(table, self._keys[table.table], columns)
                    ]
        if faults:
            raise ConfigurationError([*faults, f"source.tables.exclude omits tables of {self.name}"])

    def note(self) -> str:
        """Both sides are as of one timestamp."""
        return (
            "what was committed shortly before that timestamp may not have reached the other database then:"
            " verify again once it has, or while nothing is written"
        )

    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """Unknown; buckets that are too large are divided."""
        del tables
        return 0

    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """Every row, as one that was inserted before any timestamp."""
        del wanted
        order = ["0", "0", "0", "0"]
        with closing(self._rows()) as rows:
            for table in tables.values():
                found = self._payloads(rows, table)
                while payloads := list(islice(found, _ROWS_AT_ONCE)):
                    count = len(payloads)
                    columns = {
                        "object": [table.table] * count,
                        "sort_keys": [order] * count,
                        "source_metadata": [{"mod_type": INSERT}] * count,
                        "payload": payloads,
                    }
                    yield pa.RecordBatch.from_pydict(columns, schema=_ROWS)

    def _there(self, table: TableSchema) -> TableSchema:
        """A table of the source by the names that it has in this database."""
        return table

    def _payloads(self, rows: SourceRows, table: TableSchema) -> Iterator[bytes]:
        """The rows of a table of the source."""
        return rows.payloads(table)

    def _rows(self) -> SourceRows:
        return SourceRows(self._source, self._dialect, self._read_at)


class DeliveredDatabase(DatabaseReplica):
    """The tables of another database that a sink writes, as they are now.

    A row there does not say when it was written last, and may have changed since ``delivered``.

    Args:
        source: the database, as :class:`connector.config.sections.SourceConfig` names one.
        dialect: its dialect.
        keys: the key of each of its tables.
        timestamp: of its rows, nanoseconds since 1970, of whole microseconds.
        copy: what the sink says about it.
    """

    option: ClassVar[str] = "sink.database"
    keeps_history = False
    names_changes = False
    missing_note = Replica.missing_note

    def __init__(
        self,
        source: SourceConfig,
        dialect: Dialect,
        keys: Mapping[str, Sequence[str]],
        timestamp: int,
        copy: DatabaseCopy,
    ) -> None:
        super().__init__(source, dialect, keys, timestamp)
        self.delivered = copy.delivered
        self._copy = copy

    @classmethod
    async def of_copy(cls, source: SourceConfig, copy: DatabaseCopy) -> Self:
        """Requests dialect, keys and clock.

        Args:
            source: the database that is replicated.
            copy: what the sink says about the other one.

        Raises:
            SpannerCdcError: the database cannot be reached, or refuses a query.
        """
        address = copy.address
        there = {name: getattr(address, name) for name in ("project", "instance", "database", "endpoint")}
        there |= {
            "emulator_host": address.emulator_host,
            "database_role": address.database_role,
            "directed_reads": None,
            "columns": Columns(),  # what is delivered is excluded and hashed already
            "edition": "cloud" if address.omni is None else "omni",
            "tls": address.omni and address.omni.tls,
            "token_file": address.omni and address.omni.token_file,
        }
        other = source.model_copy(update=there)
        return cls(other, *await _requested(other, "now"), copy)

    def note(self) -> str:
        """Nothing: rows that have changed since are known."""
        return ""

    def _there(self, table: TableSchema) -> TableSchema:
        names = self._names(table)
        columns = [replace(column, name=names[column.name]) for column in table.columns]
        name = self._copy.tables.get(table.table, table.table)
        name = next((one for one in self._keys if one.lower() == name.lower()), name)  # Spanner has no two such names
        return TableSchema.of(name, columns, [names[key] for key in table.primary_keys])

    def _payloads(self, rows: SourceRows, table: TableSchema) -> Iterator[bytes]:
        names = {there: name for name, there in self._names(table).items() if there != name}
        found = rows.payloads(self._there(table))
        if not names:
            return found
        as_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
        return (
            msgspec.json.encode({names.get(name, name): value for name, value in as_object.decode(payload).items()})
            for payload in found
        )

    def _names(self, table: TableSchema) -> Mapping[str, str]:
        """The names of a table's columns there."""
        return {
            column.name: self._copy.columns.get(f"{table.table}.{column.name}", column.name) for column in table.columns
        }


async def _requested(source: SourceConfig, at: str) -> tuple[Dialect, Mapping[str, Sequence[str]], int]:
    """A database's dialect, the keys of its tables, and a timestamp of whole microseconds."""
    found = await DatabaseNow.of(source.address, at=at)
    client = SpannerClient(source.address)
    async with client.connected():
        keys = await primary_keys(client, found.dialect)
    return found.dialect, keys, found.timestamp // 1000 * 1000


def _faults(wanted: TableSchema, key: Sequence[str], columns: Sequence[ColumnType]) -> Iterator[str]:
    if {name.lower() for name in key} != {name.lower() for name in wanted.primary_keys}:
        yield f"its key there is {', '.join(key)}, not {', '.join(wanted.primary_keys)}"
    found = {column.name: column.type for column in columns}
    for column in wanted.columns:
        if column.name not in found:
            yield f"there is no column {column.name}"
        elif not _is_comparable(column.type, found[column.name]):
            one, other = (_name(type_json) for type_json in (found[column.name], column.type))
            yield f"column {column.name} is {one} there, not {other}"


def _is_comparable(one: str, other: str) -> bool:
    if one == other:
        return True
    types = [SpannerType.parse(type_json) for type_json in (one, other)]
    kinds = {_COMPARED_AS.get(column_type.kind, column_type.kind) for column_type in types}
    return len(kinds) == 1 and types[0].is_array == types[1].is_array and ColumnKind.UNKNOWN not in kinds


def _name(type_json: str) -> str:
    column_type = SpannerType.parse(type_json)
    name = column_type.kind.name
    return f"ARRAY of {name}" if column_type.is_array else name
