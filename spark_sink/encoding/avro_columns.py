"""Columns in Avro's binary encoding (https://avro.apache.org/docs/current/specification/#binary-encoding). Pure.

An integer is a zigzag varint. A text is its length and its bytes. A value that may be null comes after the index of its
type in the union, whose first type is null. The columns of a row are appended to
:class:`connector.core.byte_columns.RowBytes`.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import RowBytes, bytes_of, ends_of, fixed, is_constant
from connector.core.changes import Int64s

NULL, VALUE = b"\x00", b"\x02"
"""The indexes of the types in a union of null and another type."""

EMPTY = pa.scalar(b"", pa.binary())
_NO_VALUE = pa.scalar(NULL, pa.binary())
_TAG = pa.scalar(VALUE, pa.binary())
_END_OF_ARRAY = pa.scalar(b"\x00", pa.binary())
_SEPARATOR = pa.scalar("\0", pa.string())


def varint(number: int) -> bytes:
    """The encoding of one number."""
    return bytes_of(varints(np.array([number], np.int64))).tobytes()


def varints(numbers: Int64s, *, prefix: bytes = b"") -> pa.BinaryArray:
    """The encoding of each number, after ``prefix``."""
    return plain_varints(((numbers << 1) ^ (numbers >> 63)).view(np.uint64), prefix=prefix)


def plain_varints(numbers: npt.NDArray[np.uint64], *, prefix: bytes = b"") -> pa.BinaryArray:
    """Each number as a varint without zigzag, after ``prefix``."""
    rows, before = len(numbers), len(prefix)
    most = _varint_length(int(numbers.max())) if rows else 1
    least = _varint_length(int(numbers.min())) if rows else 1
    if most == least:
        out = np.empty((rows, before + most), np.uint8)
        out[:, :before] = np.frombuffer(prefix, np.uint8)
        for place in range(most):
            more = 0x80 if place + 1 < most else 0
            out[:, before + place] = (numbers >> np.uint64(7 * place)).astype(np.uint8) & 0x7F | more
        return fixed(out)
    lengths = np.full(rows, least, np.int32)
    for length in range(least, most):
        lengths += numbers >= np.uint64(1 << 7 * length)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths + np.int32(before), out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    at = offsets[:-1].astype(np.int64)
    for place, byte in enumerate(prefix):
        data[at + place] = byte
    at += before
    places, rest, left = at, numbers, lengths
    for _ in range(most):
        data[places] = rest.astype(np.uint8) & 0x7F | ((left > 1).astype(np.uint8) << 7)
        longer = np.flatnonzero(left > 1)
        places, rest, left = places[longer] + 1, rest[longer] >> np.uint64(7), left[longer] - 1
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def add_longs(row: RowBytes, values: pa.Array, *, nullable: bool = False) -> None:
    """Appends a column of integers, dates or timestamps."""
    _add(row, values, varints(whole_numbers(values)), nullable=nullable)


def add_booleans(row: RowBytes, values: pa.Array, *, nullable: bool = False) -> None:
    """Appends a column of booleans."""
    matrix = pc.fill_null(values, False).cast(pa.uint8()).to_numpy(zero_copy_only=False).reshape(-1, 1)
    _add(row, values, fixed(matrix), nullable=nullable)


def add_floats(row: RowBytes, values: pa.Array, *, nullable: bool = False) -> None:
    """Appends a column of floats or doubles, as little-endian bytes."""
    width = values.type.bit_width // 8
    numbers = pc.fill_null(values, pa.scalar(0.0, values.type)).to_numpy(zero_copy_only=False)
    matrix = np.ascontiguousarray(numbers, f"<f{width}").view(np.uint8).reshape(-1, width)
    _add(row, values, fixed(matrix), nullable=nullable)


def add_decimals(row: RowBytes, values: pa.Array, *, nullable: bool = False) -> None:
    """Appends a column of decimal128: the unscaled number as 16 big-endian bytes."""
    little = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, 16)[values.offset : values.offset + len(values)]
    matrix = np.empty((len(values), 17), np.uint8)
    matrix[:, 0] = 16 << 1
    matrix[:, 1:] = little[:, ::-1]
    _add(row, values, fixed(matrix), nullable=nullable)


def add_texts(row: RowBytes, values: pa.Array, *, nullable: bool = False) -> None:
    """Appends a column of text or bytes."""
    if not nullable and is_constant(values):
        value = values.cast(pa.binary())[0].as_py()
        row.literal(varint(len(value)) + value)
        return
    if values.null_count == len(values) > 0:
        row.literal(NULL)
        return
    values = values.cast(pa.binary())
    whole = values.fill_null(EMPTY) if values.null_count else values
    lengths = varints(np.diff(ends_of(whole), prepend=0))
    _add(row, values, lengths, nullable=nullable)
    row.column(whole)


def add_text_lists(row: RowBytes, values: pa.Array) -> None:
    """Appends a column of lists of text, none of them null: one block with all items, and the end."""
    if is_constant(pc.list_value_length(values)) and is_constant(pc.binary_join(values, _SEPARATOR)):
        row.literal(_text_list(values[0].as_py()))
        return
    row.column(pa.array([_text_list(texts) for texts in values.to_pylist()], pa.binary()))


def _text_list(texts: list[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    block = varint(len(texts)) + b"".join(varint(len(text)) + text for text in encoded)
    return block + b"\x00" if texts else b"\x00"


def add_arrays(row: RowBytes, values: pa.ListArray, add_elements: Callable[[RowBytes, pa.Array], None]) -> None:
    """Appends a column of lists, which may be null, as Datastream's records of arrays."""
    elements = values.flatten()
    one = RowBytes(len(elements))
    one.literal(NULL)  # an element contains no further array
    add_elements(one, elements)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    written = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), one.joined()), EMPTY)
    blocks = pc.binary_join_element_wise(varints(lengths), written, _END_OF_ARRAY, EMPTY)
    arrays = pc.if_else(pa.array(lengths > 0), blocks, _END_OF_ARRAY)
    _add(row, values, pc.binary_join_element_wise(_TAG, arrays, _NO_VALUE, EMPTY), nullable=True)


def _add(row: RowBytes, values: pa.Array, encoded: pa.Array, *, nullable: bool) -> None:
    """Appends encoded values, each after its index in the union; for null, the index alone."""
    if nullable and values.null_count:
        if values.null_count == len(values):
            row.literal(NULL)
            return
        tagged = pc.binary_join_element_wise(_TAG, encoded, EMPTY)
        row.column(pc.if_else(values.is_valid(), tagged, _NO_VALUE))
        return
    if nullable:
        row.literal(VALUE)
    row.column(encoded)


def whole_numbers(values: pa.Array) -> Int64s:
    """A column of integers, dates or timestamps as numbers; null becomes 0."""
    numbers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    whole = pc.fill_null(numbers.cast(pa.int64()), pa.scalar(0, pa.int64()))
    out: Int64s = whole.to_numpy(zero_copy_only=False)
    return out


def _varint_length(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))
