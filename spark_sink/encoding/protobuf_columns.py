"""Columns in protobuf's wire format (https://protobuf.dev/programming-guides/encoding). Pure.

A field is a tag and a value. The value is a varint without zigzag, so that a negative number has ten bytes; or
the eight bytes of a double; or a length and that many bytes. Null is an absent field. The fields of a
message are appended to :class:`connector.core.byte_columns.RowBytes`.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import RowBytes, bytes_of, ends_of, fixed, is_constant
from spark_sink.encoding.avro_columns import EMPTY, plain_varints, whole_numbers

_VARINT, _EIGHT_BYTES, _LENGTH = 0, 1, 2
"""Wire types."""

_FALSE, _ZERO = pa.scalar(False, pa.bool_()), pa.scalar(0.0, pa.float64())

Add = Callable[[RowBytes, int, pa.Array], None]
"""Appends a column to the rows, as the field with the given number."""


def varint(number: int) -> bytes:
    """The encoding of a number that is not negative."""
    return bytes_of(plain_varints(np.array([number], np.uint64))).tobytes()


def add_integers(row: RowBytes, number: int, values: pa.Array) -> None:
    """Appends a field of type int64 or int32: integers, dates or timestamps."""
    if _has_some(values):
        _add(row, values, plain_varints(whole_numbers(values).view(np.uint64), prefix=_tag(number, _VARINT)))


def add_booleans(row: RowBytes, number: int, values: pa.Array) -> None:
    """Appends a field of booleans."""
    if _has_some(values):
        bits = pc.fill_null(values, _FALSE).cast(pa.uint64()).to_numpy()
        _add(row, values, plain_varints(bits, prefix=_tag(number, _VARINT)))


def add_doubles(row: RowBytes, number: int, values: pa.Array) -> None:
    """Appends a field of doubles from a column of doubles or floats."""
    if not _has_some(values):
        return
    tag = _tag(number, _EIGHT_BYTES)
    matrix = np.empty((len(values), len(tag) + 8), np.uint8)
    matrix[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    doubles = np.ascontiguousarray(pc.fill_null(values.cast(pa.float64()), _ZERO).to_numpy(), "<f8")
    matrix[:, len(tag) :] = doubles.view(np.uint8).reshape(-1, 8)
    _add(row, values, fixed(matrix))


def add_texts(row: RowBytes, number: int, values: pa.Array) -> None:
    """Appends a field of text, bytes, or encoded messages."""
    tag = _tag(number, _LENGTH)
    if is_constant(values):
        value = values.cast(pa.binary())[0].as_py()
        row.literal(tag + varint(len(value)) + value)
    elif _has_some(values):
        values = values.cast(pa.binary())
        whole = values.fill_null(EMPTY) if values.null_count else values
        _add(row, values, plain_varints(np.diff(ends_of(whole), prepend=0).view(np.uint64), prefix=tag))
        row.column(whole)


def add_repeated(row: RowBytes, number: int, lists: pa.ListArray, add: Add) -> None:
    """Appends a repeated field; ``add`` appends the elements, each with its own tag. Null is like an empty list."""
    elements = lists.flatten()
    if not _has_some(elements):
        return
    each = RowBytes(len(elements))
    add(each, number, elements)
    encoded = each.joined()
    lasts = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    offsets = np.concatenate(([0], ends_of(encoded)))[np.concatenate(([0], lasts))].astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes_of(encoded))]
    row.column(pa.BinaryArray.from_buffers(pa.binary(), len(lists), buffers))


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def _has_some(values: pa.Array) -> bool:
    return bool(values.null_count < len(values))


def _add(row: RowBytes, values: pa.Array, encoded: pa.BinaryArray) -> None:
    """Appends the encoded values, and nothing where ``values`` is null."""
    row.column(pc.if_else(values.is_valid(), encoded, EMPTY) if values.null_count else encoded)
