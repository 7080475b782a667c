"""The columns known of each table, and the key that names a schema. Pure.

A record's ``column_types`` is not its table's schema: capture types that hold only changes list just the keys and
the modified columns. So a table's schema is all columns known of it, filled from INFORMATION_SCHEMA when a spool is
created and widened by records in commit order. A record that names fewer columns is not a schema change; only a new
column or a changed type is. Equal schemas have equal keys, on every replay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

import numpy as np
import orjson

from connector.core.changes import Changes, Int64s, integers
from connector.core.records import ColumnType


def canonical_type(text: str | bytes) -> str:
    """Spanner's type object as canonical JSON text: sorted keys, the field names of the protobuf, no spaces."""
    return orjson.dumps(_snake(orjson.loads(text)), option=orjson.OPT_SORT_KEYS).decode()


_CAMEL = {
    "arrayElementType": "array_element_type",
    "structType": "struct_type",
    "typeAnnotation": "type_annotation",
    "protoTypeFqn": "proto_type_fqn",
}


def _snake(node: object) -> object:
    if isinstance(node, dict):
        return {_CAMEL.get(str(key), str(key)): _snake(value) for key, value in node.items()}
    return node


@dataclass(frozen=True, slots=True)
class TableSchema:
    """All columns known of a table, by ordinal position; ``primary_keys`` are names in the order of the key."""

    table: str
    columns: tuple[ColumnType, ...]
    primary_keys: tuple[str, ...]

    @property
    def key(self) -> str:
        """40 hex digits of the table's name and its whole schema."""
        return blake2b(self.to_json(), digest_size=20).hexdigest()

    @classmethod
    def of(cls, table: str, columns: Iterable[ColumnType], primary_keys: Iterable[str] = ()) -> Self:
        """A schema with its columns in order; without ``primary_keys`` the key columns' ordinals order them."""
        ordered = tuple(sorted(columns, key=lambda column: (column.ordinal_position, column.name)))
        keys = tuple(primary_keys) or tuple(column.name for column in ordered if column.is_primary_key)
        return cls(table, ordered, keys)

    def widened(self, column_types: Iterable[ColumnType], declared: Iterable[str] = ()) -> "TableSchema":
        """This schema with the columns that are new or have another type or spelling; itself where there are none.

        Every record names all columns of its key. If they are others, the table was dropped and created again with that
        key, in the order of ``declared`` if that has the same columns.
        """
        named = tuple(column_types)
        known = {column.name.lower(): column for column in self.columns}
        news = {column.name.lower(): column for column in named if not _is(column, known.get(column.name.lower()))}
        keys = list(_key_columns(named))
        if not keys or set(keys) == set(self.primary_keys):
            if not news:
                return self
            keys = list(self.primary_keys)
        elif set(keys) == set(declared):
            keys = list(declared)
        columns = [replace(column, is_primary_key=column.name in keys) for column in (known | news).values()]
        return TableSchema.of(self.table, columns, keys)

    def to_json(self) -> bytes:
        """The bytes of ``schemas/<key>.json``, equal for equal schemas."""
        return orjson.dumps(
            {
                "version": 1,
                "table": self.table,
                "primary_keys": list(self.primary_keys),
                "columns": [
                    {
                        "name": column.name,
                        "type": orjson.Fragment(column.type),
                        "is_primary_key": column.is_primary_key,
                        "ordinal_position": column.ordinal_position,
                    }
                    for column in self.columns
                ],
            },
            option=orjson.OPT_INDENT_2,
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads what :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the data is not a schema.
        """
        node = orjson.loads(data)
        columns = [
            ColumnType(
                str(column["name"]),
                canonical_type(orjson.dumps(column["type"])),
                bool(column["is_primary_key"]),
                int(column["ordinal_position"]),
            )
            for column in node["columns"]
        ]
        return cls.of(str(node["table"]), columns, [str(key) for key in node["primary_keys"]])


def _first_schema(table: str, column_types: tuple[ColumnType, ...], declared: tuple[str, ...]) -> TableSchema:
    fits = set(_key_columns(column_types)) == set(declared)
    return TableSchema.of(table, column_types, declared if fits else ())


def _key_columns(column_types: Iterable[ColumnType]) -> tuple[str, ...]:
    """The names of a record's key columns, by their positions."""
    return tuple(column.name for column in sorted(column_types, key=_ordinal) if column.is_primary_key)


def _is(column: ColumnType, known: ColumnType | None) -> bool:
    return known is not None and (known.name, known.type) == (column.name, column.type)


def _ordinal(column: ColumnType) -> int:
    return column.ordinal_position


class SchemaRegistry:
    """The schema of each table as known at one point of the history; it observes records in commit order."""

    def __init__(self, schemas: Iterable[TableSchema] = ()) -> None:
        self._schemas = {schema.table: schema for schema in schemas}
        self._keys = {schema.table: schema.key for schema in self._schemas.values()}
        self._by_key = {self._keys[table]: schema for table, schema in self._schemas.items()}
        self._seen: dict[str, tuple[ColumnType, ...]] = {}
        self._declared: dict[str, tuple[str, ...]] = {}
        """The keys of tables that were not known, or had another key, as INFORMATION_SCHEMA has them."""

    def unordered(self, changes: Changes) -> dict[str, tuple[str, ...]]:
        """The tables of records whose key has several columns in an order that is not known.

        Each has the key's columns by their positions, which is the order that it gets unless another is declared before
        :meth:`observe` sees the table.
        """
        keys = {code: _key_columns(schema.column_types) for code, schema in enumerate(changes.record_schemas)}
        unknown = {code for code, key in keys.items() if not self._knows(changes.record_schemas[code].table_name, key)}
        if not unknown:
            return {}
        met = unknown.intersection(np.unique(integers(changes.column("record_schema"))).tolist())
        return {changes.record_schemas[code].table_name: keys[code] for code in sorted(met)}

    def _knows(self, table: str, key: tuple[str, ...]) -> bool:
        known = self._schemas.get(table)
        orders = (known.primary_keys if known else (), self._declared.get(table, ()))
        return len(key) < 2 or any(set(order) == set(key) for order in orders)

    def declare(self, table: str, key: Iterable[str]) -> None:
        """Declares the columns of a table's key, in key order, for records that name the same columns."""
        self._declared[table] = tuple(key)

    def observe(self, table: str, column_types: tuple[ColumnType, ...]) -> tuple[TableSchema, str]:
        """The schema of a table, widened by what a record of it names, and its key."""
        if self._seen.get(table) is not column_types:
            self._seen[table] = column_types
            known = self._schemas.get(table)
            declared = self._declared.get(table, ())
            schema = known.widened(column_types, declared) if known else _first_schema(table, column_types, declared)
            if schema is not known:
                self._schemas[table] = schema
                self._keys[table] = schema.key
                self._by_key[schema.key] = schema
        return self._schemas[table], self._keys[table]

    def observed(self, changes: Changes) -> tuple[list[tuple[TableSchema, str]], Int64s]:
        """Observes records in commit order; returns their distinct schemas, and for each record the number of its own.

        Only where the next record has another record schema can a table's schema change.
        """
        if len(changes) == 0:
            return [], np.empty(0, np.int64)
        codes = integers(changes.column("record_schema"))
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1))
        found: dict[str, int] = {}
        schemas: list[tuple[TableSchema, str]] = []
        numbers = []
        for code in codes[firsts].tolist():
            named = changes.record_schemas[code]
            schema, key = self.observe(named.table_name, named.column_types)
            if key not in found:
                found[key] = len(schemas)
                schemas.append((schema, key))
            numbers.append(found[key])
        return schemas, np.repeat(np.array(numbers, np.int64), np.diff(firsts, append=len(codes)))

    @property
    def keys(self) -> Mapping[str, str]:
        """The schema key of each table."""
        return dict(self._keys)

    @property
    def schemas(self) -> Mapping[str, TableSchema]:
        """Every schema that a table has had here, by its key; an epoch may hold rows of several of one table."""
        return self._by_key

    def by_key(self, key: str) -> TableSchema:
        """The schema that a key of :meth:`observe` names.

        Raises:
            KeyError: no table has had it here.
        """
        return self._by_key[key]

    def schema(self, table: str) -> TableSchema:
        """The schema of a table that is known.

        Raises:
            KeyError: nothing is known of the table.
        """
        return self._schemas[table]
