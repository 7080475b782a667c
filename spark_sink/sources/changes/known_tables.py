"""The tables of a spool, with every column that each has had, from which typed rows are made.

A schema's file never changes, so each is read once.
"""

from collections.abc import Mapping
from functools import cached_property

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.reading import Spool

STRING, BINARY = "string", "binary"

SPARK_TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.BOOL: "boolean",
    ColumnKind.INT64: "bigint",
    ColumnKind.FLOAT32: "float",
    ColumnKind.FLOAT64: "double",
    ColumnKind.NUMERIC: "decimal(38,9)",
    ColumnKind.PG_NUMERIC: STRING,
    ColumnKind.STRING: STRING,
    ColumnKind.BYTES: BINARY,
    ColumnKind.DATE: "date",
    ColumnKind.TIMESTAMP: "timestamp",
    ColumnKind.JSON: STRING,
    ColumnKind.UUID: STRING,
    ColumnKind.INTERVAL: STRING,
    ColumnKind.ENUM: "bigint",
    ColumnKind.PROTO: BINARY,
    ColumnKind.UNKNOWN: STRING,
}
"""The types of typed rows, as Spark SQL names them."""


class KnownTables:
    """The tables of a spool.

    Args:
        spool: the spool.

    Raises:
        ConfigurationError: from every method, if there is no spool, or it does not have the table.
        SpoolError: from every method, if the spool cannot be read.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._schemas: dict[str, TableSchema] = {}

    def newest(self, table: str) -> TableSchema:
        """The schema of a table in the newest epoch."""
        keys = self._newest_keys
        if table not in keys:
            known = ", ".join(sorted(keys)) or "none yet"
            raise ConfigurationError([f"the spool at {self._spool.path} has no table {table} (tables: {known})"])
        return self.schema(keys[table])

    def columns(self, table: str, *, exact: bool = False) -> dict[str, str]:
        """The columns of a table by name, with Spanner's type; the type is empty if it has changed.

        Those of the newest epoch come first, in their order. A column that was dropped and added again with other
        capital letters has its newest name: what events have under the former one belongs to a column that is gone.

        Args:
            table: the table.
            exact: whether another type of Spanner's is a change, too, where typed rows have the same type for both, as
                for ENUM and INT64, PROTO and BYTES, and PROTO of another message.
        """
        seen_as = str if exact else type_name
        columns = {column.name: column.type for column in self.newest(table).columns}
        names = {name.lower(): name for name in columns}
        for key in self._all_keys:
            other = self.schema(key)
            if other.table != table:
                continue
            for column in other.columns:
                name = names.setdefault(column.name.lower(), column.name)
                newest = columns.setdefault(name, column.type)
                if newest != column.type and seen_as(newest) != seen_as(column.type):
                    columns[name] = ""
        return columns

    def names(self) -> list[str]:
        """The tables of the newest epoch."""
        return sorted(self._newest_keys)

    @property
    def _newest_keys(self) -> dict[str, str]:
        try:
            header = self._spool.header()
        except FileNotFoundError:
            missing = f"there is no spool at {self._spool.path} yet"
            raise ConfigurationError(
                [f"{missing}: start the reader first, which writes the columns of the tables"]
            ) from None
        latest = self._spool.latest()
        return dict(self._spool.manifest(latest).schema_keys if latest else header.schema_keys)

    @property
    def _all_keys(self) -> list[str]:
        return [name[:-5] for name in self._spool.storage.list("schemas") if name.endswith(".json")]

    def read_once(self) -> "KnownTables":
        """The same tables, as they are at the first question."""
        return _ReadOnce(self._spool, self._schemas)

    def schema(self, key: str) -> TableSchema:
        """The schema with a key."""
        if key not in self._schemas:
            self._schemas[key] = self._spool.schema(key)
        return self._schemas[key]


class TablesNow:
    """Known tables as they are at the first question: after it, storage is read for schemas alone that are new.

    Args:
        known: the tables of the change stream's spool.
        own: those of the spool that is delivered, which may be a backfill's.
    """

    def __init__(self, known: KnownTables, own: KnownTables) -> None:
        self._known = known.read_once()
        self._own = own.read_once()

    def names(self) -> list[str]:
        """The tables of the change stream's spool."""
        return self._known.names()

    def having(self, table: str) -> KnownTables:
        """The tables among which one is: a backfill's spool does not know of types that have changed."""
        return self._known if table in self.names() else self._own


class _ReadOnce(KnownTables):
    """Known tables whose names, and whose schemas' keys, are read once."""

    def __init__(self, spool: Spool, schemas: dict[str, TableSchema]) -> None:
        super().__init__(spool)
        self._schemas = schemas

    @cached_property
    def _newest_keys(self) -> dict[str, str]:
        return super()._newest_keys

    @cached_property
    def _all_keys(self) -> list[str]:
        return super()._all_keys


def parsed(type_json: str) -> SpannerType:
    """The type of a column; that of a column whose type has changed is not known."""
    return SpannerType.parse(type_json) if type_json else SpannerType(ColumnKind.UNKNOWN)


def type_name(type_json: str) -> str:
    """The type of a column in typed rows; Spanner's type is empty if it has changed."""
    column_type = parsed(type_json)
    name = SPARK_TYPES[column_type.kind]
    return f"array<{name}>" if column_type.is_array else name
