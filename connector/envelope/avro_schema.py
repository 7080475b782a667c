"""The Avro schema of a table's events, as in Datastream's files. Pure.

The schema is a record with the table's name; its fields ``source_metadata`` and ``payload`` are records, too. Every
column may be null, because a change may omit it. Avro's names consist of letters, digits and underscores, so two
columns may get the same name; such a table is rejected.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson
import pyarrow as pa

from connector.core.column_kinds import ColumnKind, Layout, SpannerType
from connector.core.schemas import TableSchema
from connector.envelope.source_metadata import written_fields

SOURCE, PAYLOAD = "source_metadata", "payload"
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class AvroType:
    """The Avro type of a kind's values.

    Attributes:
        name: the type's part of the namespace of its record of arrays.
        schema: the type in an Avro schema.
    """

    name: str
    schema: object


_JSON_TEXT = {"type": "string", "logicalType": "json"}
_LONG = AvroType("long", "long")
_STRING = AvroType("string", "string")
_BYTES = AvroType("bytes", "bytes")

AVRO_TYPES: Mapping[ColumnKind, AvroType] = {
    ColumnKind.BOOL: AvroType("boolean", "boolean"),
    ColumnKind.INT64: _LONG,
    ColumnKind.FLOAT32: AvroType("float", "float"),
    ColumnKind.FLOAT64: AvroType("double", "double"),
    ColumnKind.NUMERIC: AvroType("decimal", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}),
    ColumnKind.PG_NUMERIC: AvroType("number", {"type": "string", "logicalType": "number"}),
    ColumnKind.STRING: _STRING,
    ColumnKind.BYTES: _BYTES,
    ColumnKind.DATE: AvroType("date", {"type": "int", "logicalType": "date"}),
    ColumnKind.TIMESTAMP: AvroType("timestamp", {"type": "long", "logicalType": "timestamp-micros"}),
    ColumnKind.JSON: AvroType("json", _JSON_TEXT),
    ColumnKind.UUID: _STRING,
    ColumnKind.INTERVAL: _STRING,
    ColumnKind.ENUM: _LONG,
    ColumnKind.PROTO: _BYTES,
    ColumnKind.UNKNOWN: AvroType("unknown", _JSON_TEXT),
}
"""A value of an unknown type is its JSON text as Spanner gives it."""


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """A column of a table: its name in Spanner, its name in Avro, the kind of its values, and how they are held."""

    name: str
    avro_name: str
    kind: ColumnKind
    layout: Layout = Layout.VALUE


def avro_name(name: str) -> str:
    """The name with an underscore in place of every character that Avro does not allow."""
    name = _NOT_IN_NAMES.sub("_", name)
    return f"_{name}" if name[:1].isdigit() else name


def record_name(table: str) -> str:
    """The name of a table's record: Avro's own types keep theirs."""
    name = avro_name(table)
    return f"{name}_" if name in _PRIMITIVES else name


def columns_of(schema: TableSchema, *, timestamps: str = "micros", arrays: str = "json") -> list[AvroColumn]:
    """The columns, in the schema's order.

    Args:
        schema: the schema of the table.
        timestamps: ``micros`` for integers, or ``text`` for text with all digits.
        arrays: ``json`` for the text of a JSON array, or ``multidimensional`` for Datastream's records of elements.
    """
    return [_column(column.name, column.type, timestamps, arrays) for column in schema.columns]


def _column(name: str, type_json: str, timestamps: str, arrays: str) -> AvroColumn:
    column_type = SpannerType.parse(type_json)
    kind, layout = column_type.kind, Layout.VALUE
    if column_type.is_array:
        layout = Layout.LIST if arrays == "multidimensional" else Layout.JSON_ARRAY
    if kind is ColumnKind.TIMESTAMP and timestamps == "text":
        kind = ColumnKind.STRING
    return AvroColumn(name, avro_name(name), kind, layout)


def collisions(schema: TableSchema) -> Iterator[str]:
    """Messages about columns that would have the same name in Avro."""
    named: dict[str, list[str]] = {}
    for column in schema.columns:
        named.setdefault(avro_name(column.name), []).append(column.name)
    for name, columns in named.items():
        if len(columns) > 1:
            yield f"the columns {' and '.join(columns)} of table {schema.table} would both be called {name} in Avro"


def avro_schema(
    table: str, columns: Iterable[AvroColumn], *, sort_fields: bool = True, completes: bool = False
) -> bytes:
    """The schema of a file of the table's events, as JSON; equal for equal columns.

    Args:
        table: the table's name.
        columns: the columns of the payload.
        sort_fields: whether the source metadata ends with the fields that the Dataflow templates sort by.
        completes: whether it ends with the field that says whether a row is complete.
    """
    record = record_name(table)
    if record in (SOURCE, PAYLOAD):
        record += "_"  # Avro allows one definition of a name
    defined: set[str] = set()
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    fields = {
        "uuid": "string",
        "read_timestamp": millis,
        "source_timestamp": millis,
        "object": "string",
        "read_method": "string",
        "stream_name": "string",
        "schema_key": "string",
        "sort_keys": {"type": "array", "items": ["string", "long"]},
        SOURCE: _record(
            SOURCE,
            [
                {"name": name, "type": _metadata_type(kind)}
                for name, kind in written_fields(sort_fields=sort_fields, completes=completes).items()
            ],
        ),
        PAYLOAD: _record(
            PAYLOAD,
            [{"name": one.avro_name, "type": ["null", _type_of(one, defined)], "default": None} for one in columns],
        ),
    }
    return orjson.dumps(_record(record, [{"name": name, "type": kind} for name, kind in fields.items()]))


ARRAY_RECORD = "multidimensionalArray"
"""Datastream's name of the record of an array; each type of elements has its own record, in its own namespace."""


def _array_record(elements: AvroType) -> str:
    return f"arrays.{elements.name}.{ARRAY_RECORD}"


ARRAY_RECORDS_OF_JSON = frozenset(_array_record(found) for found in AVRO_TYPES.values() if found.schema is _JSON_TEXT)
"""The full names of the records of arrays whose elements are JSON texts."""


def _type_of(column: AvroColumn, defined: set[str]) -> object:
    """The Avro type of a payload's column; a record of arrays is defined where it is first used."""
    value = AVRO_TYPES[column.kind]
    if column.layout is Layout.JSON_ARRAY:
        return _JSON_TEXT
    if column.layout is Layout.VALUE:
        return value.schema
    name = _array_record(value)
    if name in defined:
        return name
    defined.add(name)
    elements = {"type": "array", "items": name}
    return {
        "type": "record",
        "name": ARRAY_RECORD,
        "namespace": name.removesuffix(f".{ARRAY_RECORD}"),
        "fields": [
            {"name": "nestedArray", "type": ["null", elements], "default": None},
            {"name": "elementValue", "type": ["null", value.schema], "default": None},
        ],
    }


def _record(name: str, fields: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": fields}


def _metadata_type(kind: pa.DataType) -> object:
    if pa.types.is_list(kind):
        return {"type": "array", "items": "string"}
    if pa.types.is_boolean(kind):
        return "boolean"
    return "long" if pa.types.is_integer(kind) else "string"
