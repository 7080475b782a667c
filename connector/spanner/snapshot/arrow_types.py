"""The Arrow type of each kind of column, and the conversion of encoded values to it. Pure.

The types are those that Spark and Arrow have for all values: a TIMESTAMP has microseconds, because nanoseconds in 64
bits do not reach the years that Spanner has. The digits after them are dropped.
"""

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from google.protobuf.struct_pb2 import Value
from orjson import loads

from connector.core.byte_columns import bytes_of, ends_of
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.records import ColumnType
from connector.core.timestamps import parse
from connector.core.value_texts import (
    BOOL_TAG,
    NULL_TAG,
    NUMBER_TAG,
    STRING_TAG,
    Bytes,
    are_booleans,
    are_numbers,
    doubles,
)
from connector.spanner.snapshot.values import ValueReader, cut, slices, texts

_STRING = pa.string()
_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_MICROSECONDS = len("2024-01-01T00:00:00.123456")
_NOT_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_EQUALS, _Z = ord("="), ord("Z")


@dataclass(frozen=True, slots=True)
class ArrowType:
    """An Arrow type, and the conversion of values to it; it raises a ValueError if one is not valid."""

    type: pa.DataType
    convert: Callable[[ValueReader], pa.Array]


def _casting(kind: pa.DataType) -> ArrowType:
    """A type whose values are written in ASCII; a text that is not valid fails the cast."""
    return ArrowType(kind, lambda values: cut(values).view(_STRING).cast(kind))


def _booleans(values: ValueReader) -> pa.Array:
    nulls, boolean = values.nulls(), values.tag == BOOL_TAG
    known = boolean & are_booleans(values.data, values.at, values.end)
    if not (known if nulls is None else known | nulls).all():
        raise ValueError("a value is not a boolean")
    return pa.array(values.data[values.at] == 1, pa.bool_(), mask=nulls)


def _floats(values: ValueReader) -> pa.Array:
    nulls = values.nulls()
    number = (values.tag == NUMBER_TAG) & are_numbers(values.at, values.end)
    if number.all():
        return pa.array(doubles(values.data, values.at))
    found = np.zeros(len(values))
    found[number] = doubles(values.data, values.at[number])
    rest = np.flatnonzero(~(number if nulls is None else number | nulls))
    if len(rest):
        raw = values.raw
        found[rest] = [_NOT_FINITE[Value.FromString(raw[index]).string_value] for index in rest.tolist()]
    return pa.array(found, pa.float64(), mask=nulls, from_pandas=False)


def _binary(values: ValueReader) -> pa.Array:
    encoded, nulls = cut(values), values.nulls()
    sizes = np.diff(ends_of(encoded), prepend=0)
    content = bytes(bytes_of(encoded))
    if bool((sizes % 4).any()):
        raise ValueError("a value is not base64")
    data = np.frombuffer(a2b_base64(content.replace(b"=", b"A")), np.uint8)
    stop = (sizes // 4 * 3).cumsum()
    if len(data) != int(stop[-1] if len(stop) else 0):
        raise ValueError("a value is not base64")
    padding = _padding(np.frombuffer(content, np.uint8), sizes)
    return slices(data, stop - sizes // 4 * 3, stop - padding, nulls)


def _padding(characters: Bytes, sizes: "np.typing.NDArray[np.int64]") -> "np.typing.NDArray[np.int64]":
    """The number of equals signs at the end of each text, two at most."""
    stop = sizes.cumsum()
    some = sizes > 0
    found = np.zeros(len(sizes), np.int64)
    last, before = characters[stop[some] - 1] == _EQUALS, characters[stop[some] - 2] == _EQUALS
    found[some] = last.astype(np.int64) + (last & before)
    return found


def _timestamps(values: ValueReader) -> pa.Array:
    nulls = values.nulls()
    zulu = values.data[values.end - 1] == _Z
    if not (zulu if nulls is None else zulu | nulls).all():
        return pa.array([None if text is None else parse(text) // 1000 for text in texts(values).to_pylist()], _UTC)
    return cut(values, _MICROSECONDS, ending=1).view(_STRING).cast(_NAIVE).view(_UTC)


def _anything(values: ValueReader) -> pa.Array:
    """Strings as they are, other values as JSON."""
    fragment, fragments = values.fragments()
    found = pa.concat_arrays(fragments).take(pa.array(fragment)).to_pylist()
    return pa.array([_text(*each) for each in zip(found, values.tag.tolist(), strict=True)], _STRING)


def _text(json: bytes, tag: int) -> str | None:
    if tag == NULL_TAG:
        return None
    return str(loads(json)) if tag == STRING_TAG else json.decode()


_TEXT = ArrowType(_STRING, texts)
_INTEGER = _casting(pa.int64())
_BYTES = ArrowType(pa.binary(), _binary)

ARROW_TYPES: Mapping[ColumnKind, ArrowType] = {
    ColumnKind.BOOL: ArrowType(pa.bool_(), _booleans),
    ColumnKind.INT64: _INTEGER,
    ColumnKind.FLOAT32: ArrowType(pa.float32(), lambda values: _floats(values).cast(pa.float32(), safe=False)),
    ColumnKind.FLOAT64: ArrowType(pa.float64(), _floats),
    ColumnKind.NUMERIC: _casting(pa.decimal128(38, 9)),
    ColumnKind.PG_NUMERIC: _TEXT,
    ColumnKind.STRING: _TEXT,
    ColumnKind.BYTES: _BYTES,
    ColumnKind.DATE: _casting(pa.date32()),
    ColumnKind.TIMESTAMP: ArrowType(_UTC, _timestamps),
    ColumnKind.JSON: _TEXT,
    ColumnKind.UUID: _TEXT,
    ColumnKind.INTERVAL: _TEXT,
    ColumnKind.ENUM: _INTEGER,
    ColumnKind.PROTO: _BYTES,
    ColumnKind.UNKNOWN: ArrowType(_STRING, _anything),
}


def arrow_schema(columns: Sequence[ColumnType]) -> pa.Schema:
    """The Arrow types of columns; an array is a list."""
    return pa.schema([pa.field(column.name, _type(SpannerType.parse(column.type))) for column in columns])


def arrow_array(column_type: SpannerType, values: ValueReader) -> pa.Array:
    """The values of a column.

    Raises:
        DecodeError, KeyError, ValueError: a value is not of the column's type.
    """
    kind = ARROW_TYPES[column_type.kind]
    if not column_type.is_array:
        return kind.convert(values)
    nulls = values.nulls()
    some = np.arange(len(values)) if nulls is None else np.flatnonzero(~nulls)
    lists = values.lists(some)
    counts = np.zeros(len(values), np.int64)
    counts[some] = lists.counts
    offsets = pa.array(np.append(0, counts.cumsum()).astype(np.int32))
    mask = None if nulls is None else pa.array(nulls)
    return pa.ListArray.from_arrays(offsets, kind.convert(lists.elements), mask=mask)


def _type(column_type: SpannerType) -> pa.DataType:
    kind = ARROW_TYPES[column_type.kind].type
    return pa.list_(kind) if column_type.is_array else kind
