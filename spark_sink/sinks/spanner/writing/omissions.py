"""The parts of a change that are omitted, so that a dropped column or table does not cost a row or transaction.

A change may be older than the tables: its column was dropped since, or dropped and added again with another type; its
table was dropped, or created again with another key. What the source no longer has of it, and the destination cannot
take, is left out. What the source has and the destination cannot take is a dead letter. What a change has no value
for, and the destination requires, is made nullable there where tables may be created.

The destination is looked at first. Only if it cannot take something is the source looked at, once.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from connector.core.column_kinds import type_code
from connector.core.schemas import TableSchema
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.destination_tables import DestinationTable
from spark_sink.sinks.spanner.source_tables import SourceTable
from spark_sink.sinks.spanner.writing.destination_names import DestinationNames


class Databases(NamedTuple):
    """The tables of both databases as they are now; those of the source are None if they cannot be known."""

    there: Mapping[str, DestinationTable]
    source: Mapping[str, SourceTable] | None


class Omission(NamedTuple):
    """The parts that are omitted from changes with one schema.

    Attributes:
        key: the columns of the key in that schema.
        columns: those that are left out.
        is_whole: whether the changes are left out as a whole.
        conflicts: columns that the destination has with a former type.
        differing: columns that the destination has with another type, which may accept their values.
    """

    key: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    is_whole: bool = False
    conflicts: frozenset[str] = frozenset()
    differing: frozenset[str] = frozenset()


class _Doubt(NamedTuple):
    """The table, key or columns that the destination cannot take, and the omission if it can take all."""

    is_whole: bool
    columns: frozenset[str]
    nothing: Omission


class Omissions:
    """Decides what is left out.

    Args:
        applying: the options.
        tables: the destination's.
        schema: the schema with a key, of the spool.
        former: whether another type of the destination's column is a former one of the source's, by the source's names
            of table and column: the source's has changed, or the destination has its columns from the source.
        look: looks at both databases, and may create what the destination lacks.
        relax: makes columns of the destination nullable, given by the source's names of their tables, where it may;
            returns the destination's tables after that. None: it never may.

    Attributes:
        names: the destination's, after the last look.
    """

    def __init__(
        self,
        applying: Applying,
        tables: Mapping[str, DestinationTable],
        schema: Callable[[str], TableSchema],
        former: Callable[[str, str], bool],
        look: Callable[[], Databases],
        relax: Callable[[Mapping[str, Collection[str]]], Mapping[str, DestinationTable]] | None = None,
    ) -> None:
        self.names = DestinationNames(applying, tables)
        self._applying = applying
        self._schema = schema
        self._former = former
        self._look = look
        self._relax = relax
        self._relaxed: set[tuple[str, str]] = set()
        self._databases: Databases | None = None
        self._doubts: dict[str, _Doubt] = {}
        self._decided: dict[str, Omission] = {}

    def of(self, schema_key: str, columns: Collection[str]) -> Omission:
        """The omission for a change that has these columns.

        Raises:
            SpannerCdcError: a database cannot be reached, or refuses it.
        """
        doubt = self._doubts.get(schema_key)
        if doubt is None:
            doubt = self._doubts[schema_key] = self._doubt(self._schema(schema_key))
        if not doubt.is_whole and doubt.columns.isdisjoint(columns):
            return doubt.nothing
        if schema_key not in self._decided:
            self._decided[schema_key] = self._decide(self._schema(schema_key))
        return self._decided[schema_key]

    def is_gone(self, table: str, column: str | None = None) -> bool:
        """True if the source no longer has a table, or a column of it.

        Raises:
            SpannerCdcError: a database cannot be reached, or refuses it.
        """
        source = self._looked().source
        if source is None:
            return False
        return table not in source or (column is not None and column not in source[table].types)

    @property
    def may_relax(self) -> bool:
        """True if columns of the destination may be made nullable."""
        return self._relax is not None

    def relax(self, columns: Mapping[str, Collection[str]]) -> None:
        """Makes columns of the destination nullable, if allowed; tries each once.

        Args:
            columns: the destination's names, by the source's names of their tables.

        Raises:
            SpannerCdcError: the destination cannot be reached, or refuses it.
        """
        wanted = {(table, column) for table, names in columns.items() for column in names} - self._relaxed
        if self._relax is None or not wanted:
            return
        self._relaxed |= wanted
        tables = {table for table, _ in wanted}
        there = self._relax({table: {name for of, name in wanted if of == table} for table in tables})
        self.names = DestinationNames(self._applying, there)

    def _looked(self) -> Databases:
        if self._databases is None:
            self._databases = self._look()
            self.names = DestinationNames(self._applying, self._databases.there)
            self._doubts.clear()
        return self._databases

    def _doubt(self, schema: TableSchema) -> _Doubt:
        nothing = Omission(schema.primary_keys)
        there = self.names.tables.get(self.names.table(schema.table))
        if there is None:
            return _Doubt(True, frozenset(), nothing)
        names = {column.name: self.names.column(schema.table, column.name) for column in schema.columns}
        cannot = {
            column.name
            for column in schema.columns
            if names[column.name] not in there.columns
            or _differ(type_code(column.type), there.types.get(names[column.name], ""))
        } - {name for name in schema.primary_keys if names[name] in there.generated}
        same_key = {names[name] for name in schema.primary_keys} == {*there.key}
        return _Doubt(not (same_key and cannot.isdisjoint(schema.primary_keys)), frozenset(cannot), nothing)

    def _decide(self, schema: TableSchema) -> Omission:
        known = self._looked()
        doubt = self._doubt(schema)
        if known.source is None:
            return doubt.nothing
        source = known.source.get(schema.table)
        types = {column.name: type_code(column.type) for column in schema.columns}
        gone = {
            name
            for name, code in types.items()
            if source is None or name not in source.types or _differ(code, source.types[name])
        }
        if doubt.is_whole:
            is_gone = source is None or {*source.key} != {*schema.primary_keys}
            if is_gone or not gone.isdisjoint(schema.primary_keys):
                return doubt.nothing._replace(is_whole=True)
        there = self.names.tables.get(self.names.table(schema.table))
        differing = frozenset(
            name for name in doubt.columns - gone if there and self.names.column(schema.table, name) in there.columns
        )
        conflicts = frozenset(name for name in differing if self._former(schema.table, name))
        if doubt.is_whole:
            return doubt.nothing._replace(conflicts=conflicts.intersection(schema.primary_keys))
        return Omission(schema.primary_keys, doubt.columns & gone, False, conflicts, differing - conflicts)


def _differ(one: str, other: str) -> bool:
    """True if two type codes are known and not the same."""
    return one != "" and other != "" and one != other
