"""The Avro schema of a table's events, as Datastream's files have it. Pure.

A record named like the table, whose fields ``source_metadata`` and ``payload`` are records of those names. Every column
may be null, for a change may leave it out. Avro's names hold letters, digits and underscores only; a table two of whose
columns would have one name is refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

import orjson
import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.envelope.source_metadata import written_fields

SOURCE, PAYLOAD = "source_metadata", "payload"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


class Kind(Enum):
    """How a column's values are written."""

    BOOLEAN = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    NUMBER = auto()
    STRING = auto()
    BYTES = auto()
    DATE = auto()
    TIMESTAMP = auto()
    JSON = auto()
    ARRAY = auto()
    ARRAY_OF_LONG = auto()
    ARRAY_OF_JSON = auto()
    UNKNOWN = auto()


_JSON_TEXT = {"type": "string", "logicalType": "json"}
_TYPES: Mapping[Kind, object] = {
    Kind.BOOLEAN: "boolean",
    Kind.LONG: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DECIMAL: {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    Kind.NUMBER: {"type": "string", "logicalType": "number"},
    Kind.STRING: "string",
    Kind.BYTES: "bytes",
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.JSON: _JSON_TEXT,
    Kind.ARRAY: _JSON_TEXT,
    Kind.ARRAY_OF_LONG: _JSON_TEXT,
    Kind.ARRAY_OF_JSON: _JSON_TEXT,
    Kind.UNKNOWN: _JSON_TEXT,
}
_KINDS: Mapping[str, Kind] = {
    "BOOL": Kind.BOOLEAN,
    "INT64": Kind.LONG,
    "ENUM": Kind.LONG,
    "FLOAT32": Kind.FLOAT,
    "FLOAT64": Kind.DOUBLE,
    "NUMERIC": Kind.DECIMAL,
    "STRING": Kind.STRING,
    "UUID": Kind.STRING,
    "INTERVAL": Kind.STRING,
    "BYTES": Kind.BYTES,
    "PROTO": Kind.BYTES,
    "DATE": Kind.DATE,
    "TIMESTAMP": Kind.TIMESTAMP,
    "JSON": Kind.JSON,
}
"""By type code; a type that is not here is JSON text as Spanner gives it."""


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """A column of a table: its name in Spanner, its name in Avro, and its kind; its elements' if ``is_array``."""

    name: str
    avro_name: str
    kind: Kind
    is_array: bool = False


def kind_of(type_json: str) -> Kind:
    """The kind of a Spanner type."""
    node = orjson.loads(type_json)
    code = node.get("code")
    if code == "ARRAY":
        element = _KINDS.get(node.get("array_element_type", {}).get("code"))
        return {Kind.LONG: Kind.ARRAY_OF_LONG, Kind.JSON: Kind.ARRAY_OF_JSON}.get(element or Kind.ARRAY, Kind.ARRAY)
    if node.get("type_annotation") == "PG_NUMERIC":  # it may be NaN, and has more digits than a decimal
        return Kind.NUMBER
    return _KINDS.get(code, Kind.UNKNOWN)


def avro_name(name: str) -> str:
    """A name as Avro may have it."""
    name = _NOT_IN_NAMES.sub("_", name)
    return f"_{name}" if name[:1].isdigit() else name


def columns_of(schema: TableSchema, *, timestamps: str = "micros", arrays: str = "json") -> list[AvroColumn]:
    """The columns, in the schema's order.

    Args:
        schema: the table's.
        timestamps: numbers of ``micros``, or ``text`` with all digits.
        arrays: ``json``, or ``multidimensional``: records of elements, each of its type.
    """
    return [_column(column.name, column.type, timestamps, arrays) for column in schema.columns]


def _column(name: str, type_json: str, timestamps: str, arrays: str) -> AvroColumn:
    element = orjson.loads(type_json).get("array_element_type") if arrays == "multidimensional" else None
    kind = kind_of(type_json if element is None else orjson.dumps(element).decode())
    if kind is Kind.TIMESTAMP and timestamps == "text":
        kind = Kind.STRING
    return AvroColumn(name, avro_name(name), kind, element is not None)


def collisions(schema: TableSchema) -> Iterator[str]:
    """For each Avro name that several columns would have, what is wrong."""
    named: dict[str, list[str]] = {}
    for column in schema.columns:
        named.setdefault(avro_name(column.name), []).append(column.name)
    for name, columns in named.items():
        if len(columns) > 1:
            yield f"the columns {' and '.join(columns)} of table {schema.table} would both be called {name} in Avro"


def avro_schema(table: str, columns: Iterable[AvroColumn], *, sort_fields: bool = True) -> bytes:
    """The schema of a file of the table's events, as JSON; equal for equal columns.

    Args:
        table: the table's name.
        columns: the payload's.
        sort_fields: whether the source metadata ends with those that the Dataflow templates sort by.
    """
    record = avro_name(table)
    if record in (SOURCE, PAYLOAD):
        record += "_"  # a name is defined once
    types = _Types()
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
                for name, kind in written_fields(sort_fields=sort_fields).items()
            ],
        ),
        PAYLOAD: _record(
            PAYLOAD,
            [{"name": column.avro_name, "type": ["null", types.of(column)], "default": None} for column in columns],
        ),
    }
    return orjson.dumps(_record(record, [{"name": name, "type": kind} for name, kind in fields.items()]))


ARRAY_RECORD = "multidimensionalArray"
"""What Datastream calls the record of an array; there is one for each type of elements, in a namespace of its own."""


class _Types:
    """The types of a payload's columns; the record of arrays of one type is defined where it is met first."""

    def __init__(self) -> None:
        self._defined: set[Kind] = set()

    def of(self, column: AvroColumn) -> object:
        value = _TYPES[column.kind]
        if not column.is_array:
            return value
        namespace = f"arrays.{column.kind.name.lower()}"
        if column.kind in self._defined:
            return f"{namespace}.{ARRAY_RECORD}"
        self._defined.add(column.kind)
        elements = {"type": "array", "items": f"{namespace}.{ARRAY_RECORD}"}
        return {
            "type": "record",
            "name": ARRAY_RECORD,
            "namespace": namespace,
            "fields": [
                {"name": "nestedArray", "type": ["null", elements], "default": None},
                {"name": "elementValue", "type": ["null", value], "default": None},
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
