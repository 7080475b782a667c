"""The known columns of each table, and the key that identifies a schema. Pure.

A record's ``column_types`` is not its table's schema: value capture types that hold only changes list the key columns
and the modified columns. So a table's schema is every column known of the table. It comes from INFORMATION_SCHEMA when
a spool is created, and records widen it in commit order. A new column or a changed type is a schema change; a record
with fewer columns is not. Equal schemas have equal keys, on every replay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from operator import attrgetter
from typing import Self

import numpy as np
import orjson

from connector.core.changes import Changes, Int64s, integers
from connector.core.records import ColumnType


def canonical_type(text: str | bytes) -> str:
    """Spanner's type object as canonical JSON text: sorted keys, protobuf's field names, no spaces."""
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
    """All known columns of a table, by ordinal position; ``primary_keys`` are column names in the order of the key."""

    table: str
    columns: tuple[ColumnType, ...]
    primary_keys: tuple[str, ...]

    @property
    def key(self) -> str:
        """The schema key: a hash of the table's name and all columns, as 40 hex digits."""
        return blake2b(self.to_json(), digest_size=20).hexdigest()

    @classmethod
    def of(cls, table: str, columns: Iterable[ColumnType], primary_keys: Iterable[str] = ()) -> Self:
        """A schema with its columns in order; without ``primary_keys`` the positions of the columns order the key."""
        ordered = tuple(sorted(columns, key=lambda column: (column.ordinal_position, column.name)))
        keys = tuple(primary_keys) or tuple(column.name for column in ordered if column.is_primary_key)
        return cls(table, ordered, keys)

    def widened(self, column_types: Iterable[ColumnType], declared: Iterable[str] = ()) -> "TableSchema":
        """This schema with the columns that are new, or whose type or spelling has changed; itself if there are none.

        Every record lists all columns of its key. Where the key has other columns, the table was dropped and created
        again with that key. Its order is that of ``declared`` if ``declared`` has the same columns.
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
        """The content of ``schemas/<key>.json``; equal schemas have equal bytes."""
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
        """Reads the result of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: the content is not such a schema.
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


def _key_columns(column_types: Iterable[ColumnType]) -> tuple[str, ...]:
    """The names of a record's key columns, in the order of their positions."""
    ordered = sorted(column_types, key=attrgetter("ordinal_position"))
    return tuple(column.name for column in ordered if column.is_primary_key)


def _is(column: ColumnType, known: ColumnType | None) -> bool:
    return known is not None and (known.name, known.type) == (column.name, column.type)


class SchemaRegistry:
    """The schema of each table as of one commit timestamp; it observes the records in commit order."""

    def __init__(self, schemas: Iterable[TableSchema] = ()) -> None:
        self._schemas = {schema.table: schema for schema in schemas}
        self._keys = {schema.table: schema.key for schema in self._schemas.values()}
        self._by_key = {self._keys[table]: schema for table, schema in self._schemas.items()}
        self._seen: dict[str, tuple[ColumnType, ...]] = {}
        self._declared: dict[str, tuple[str, ...]] = {}
        """By table, the key in INFORMATION_SCHEMA, for tables that were unknown or had another key."""

    def unordered(self, changes: Changes) -> dict[str, tuple[str, ...]]:
        """The tables of these records whose key has several columns in an unknown order.

        The values are the key's columns in the order of their positions. The key gets this order unless another one is
        declared before :meth:`observe` is called for the table.
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
        """Declares the order of a table's key; it applies to records whose key has the same columns."""
        self._declared[table] = tuple(key)

    def observe(self, table: str, column_types: tuple[ColumnType, ...]) -> tuple[TableSchema, str]:
        """Widens the schema of a table by a record's columns; returns the schema and its key."""
        if self._seen.get(table) is not column_types:
            self._seen[table] = column_types
            known = self._schemas.get(table)
            declared = self._declared.get(table, ())
            schema = (known or TableSchema(table, (), ())).widened(column_types, declared)
            if schema is not known:
                self._schemas[table] = schema
                self._keys[table] = schema.key
                self._by_key[schema.key] = schema
        return self._schemas[table], self._keys[table]

    def observed(self, changes: Changes) -> tuple[list[tuple[TableSchema, str]], Int64s]:
        """Observes records in commit order; returns their different schemas, and each record's index among these.

        A schema can only change where a record has another record schema than the one before it.
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
        """Every schema that was observed, by its key; an epoch may hold rows of several schemas of one table."""
        return self._by_key

    def by_key(self, key: str) -> TableSchema:
        """The schema with a key that :meth:`observe` returned.

        Raises:
            KeyError: no such schema was observed.
        """
        return self._by_key[key]

    def schema(self, table: str) -> TableSchema:
        """The newest schema of a table.

        Raises:
            KeyError: the table is unknown.
        """
        return self._schemas[table]
