"""The Avro schema of a row's columns, and rows as Avro's bytes. Pure.

A column that was not captured is not NULL, and Avro has no absent field. So a schema has the columns that a row has:
rows of one table with other columns have another schema, as in the schemas that Conduit's own connectors derive from
their records. Each field may be null and is null by default, so that a registry which demands compatible schemas
accepts any other set of columns. Conduit's decoder makes null of an empty array, and refuses a text or bytes of more
than 1 MiB, so such rows do not fit.

Values are those of :mod:`connector.envelope.opencdc`, except that INT64 has all its
digits as a number, BYTES are bytes, and JSON is its text.

See https://avro.apache.org/docs/1.11.1/specification for the encoding.
"""

import binascii
import struct
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import orjson

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import avro_name, record_name
from connector.envelope.events import Converter
from connector.envelope.failing_rows import of_column
from connector.envelope.opencdc import converter
from connector.envelope.opencdc_protobuf import varint
from connector.errors import EventError

Encoder = Callable[[object], bytes]
"""Encodes a value that is not NULL, as Spanner's JSON has it, after the number of its type in the field's union."""

_NULL, _FIRST, _SECOND = b"\x00", b"\x02", b"\x04"
"""The numbers of the types of a field's union, the first of which is null."""

_SHORT = tuple(bytes([number << 1]) for number in range(64))

_END = b"\x00"
"""Ends the blocks of an array."""

_LONGEST = 2**20
"""Bytes of the longest text that Conduit's decoder reads: ``MaxByteSliceSize`` of github.com/hamba/avro by default."""


class _UnfitError(Exception):
    """A value that Conduit's decoder would change or refuse."""


@dataclass(frozen=True, slots=True)
class AvroLayout:
    """The columns of a row.

    Attributes:
        schema: the Avro schema as JSON; equal for equal columns.
        fields: the encoder of each column, in the order of the schema.
    """

    schema: bytes
    fields: tuple[tuple[str, Encoder], ...]

    @classmethod
    def of(cls, schema: TableSchema, names: Collection[str]) -> "AvroLayout":
        """The layout of the rows that have these columns, in the table's order.

        Raises:
            EventError: Avro does not allow the name of a column.
        """
        types = {column.name: SpannerType.parse(column.type) for column in schema.columns}
        ordered = [name for name in types if name in names] + [name for name in names if name not in types]
        for name in ordered:
            if avro_name(name) != name:
                fault = EventError(
                    "its name is not one in Avro",
                    hint=(
                        "Set sdk.schema.extract.key.enabled and sdk.schema.extract.payload.enabled to false: without"
                        " schemas the table can be read."
                    ),
                )
                raise of_column(fault, name)
        columns = {name: _values(types.get(name, _UNKNOWN)) for name in ordered}
        fields = [{"name": name, "type": ["null", *values.types], "default": None} for name, values in columns.items()]
        document = {"type": "record", "name": record_name(schema.table), "fields": fields}
        return cls(orjson.dumps(document), tuple((name, values.encode) for name, values in columns.items()))

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """Encodes a row with values as in Spanner's JSON; None if it does not fit.

        A row fits if Conduit's decoder reads it as it is: it has these columns, no empty array and no value too long.

        Raises:
            EventError: a value does not match its type; with its column.
        """
        if len(row) != len(self.fields):
            return None
        out, name = bytearray(), ""
        try:
            for name, encode in self.fields:
                value = row[name]
                out += _NULL if value is None else encode(value)
        except (KeyError, _UnfitError):
            return None
        except (TypeError, ValueError, OverflowError, struct.error):  # the message of the cause may have the value
            raise of_column(EventError("a value does not match its type"), name) from None
        return bytes(out)


def structured(type_json: str) -> Converter:
    """The converter of a type for rows that do not fit: as that of records without schemas, but JSON is its text."""
    column_type = SpannerType.parse(type_json)
    if _KINDS[column_type.kind] is not _JSON:
        return converter(type_json)
    return _texts if column_type.is_array else _json


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a column: their types in Avro besides null, and their encoder."""

    types: tuple[object, ...]
    encode: Encoder


def _values(column_type: SpannerType) -> _Values:
    values = _KINDS[column_type.kind]
    if not column_type.is_array:
        return values
    return _Values(({"type": "array", "items": ["null", *values.types]},), _array(values.encode))


def _array(encode: Encoder) -> Encoder:
    def array(value: object) -> bytes:
        if not isinstance(value, list):
            raise TypeError
        if not value:
            raise _UnfitError
        out = bytearray(_FIRST + _long(len(value)))
        for item in value:
            out += _NULL if item is None else encode(item)
        return bytes(out + _END)

    return array


def _long(number: int) -> bytes:
    """An integer of 64 bits, zigzag, as a varint."""
    if 0 <= number < 64:  # most lengths
        return _SHORT[number]
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    if rest >> 64:
        raise OverflowError
    return varint(rest)


def _sized(data: bytes) -> bytes:
    if len(data) > _LONGEST:
        raise _UnfitError
    return _long(len(data)) + data


def _boolean(value: object) -> bytes:
    if not isinstance(value, bool):
        raise TypeError
    return _FIRST + (b"\x01" if value else b"\x00")


def _integer(value: object) -> bytes:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError
    return _FIRST + _long(int(value))


def _real(form: str) -> Encoder:
    """NaN and the infinities are texts: JSON, which many destinations write, has no number for them."""
    pack = struct.Struct(form).pack

    def real(value: object) -> bytes:
        return _SECOND + _sized(value.encode()) if isinstance(value, str) else _FIRST + pack(value)

    return real


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return _FIRST + _sized(value.encode())


def _json(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _texts(value: object) -> object:
    return [None if item is None else _json(item) for item in value] if isinstance(value, list) else value


def _json_text(value: object) -> bytes:
    return _text(_json(value))


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    try:
        return _FIRST + _sized(b64decode(value, validate=True))
    except binascii.Error:
        raise ValueError from None


_UNKNOWN = SpannerType(ColumnKind.UNKNOWN)
_LONG = _Values(("long",), _integer)
_STRING = _Values(("string",), _text)
_BYTES = _Values(("bytes",), _bytes)
_JSON = _Values(("string",), _json_text)

_KINDS: Mapping[ColumnKind, _Values] = {
    ColumnKind.BOOL: _Values(("boolean",), _boolean),
    ColumnKind.INT64: _LONG,
    ColumnKind.FLOAT32: _Values(("float", "string"), _real("<f")),
    ColumnKind.FLOAT64: _Values(("double", "string"), _real("<d")),
    ColumnKind.NUMERIC: _STRING,
    ColumnKind.PG_NUMERIC: _STRING,
    ColumnKind.STRING: _STRING,
    ColumnKind.BYTES: _BYTES,
    ColumnKind.DATE: _STRING,
    ColumnKind.TIMESTAMP: _STRING,
    ColumnKind.JSON: _JSON,
    ColumnKind.UUID: _STRING,
    ColumnKind.INTERVAL: _STRING,
    ColumnKind.ENUM: _LONG,
    ColumnKind.PROTO: _BYTES,
    ColumnKind.UNKNOWN: _JSON,
}
"""The values of a kind; of an unknown type, a value that is not a text is its JSON text."""
