"""Encoded values of columns, located in the bytes of a block. Pure.

Spanner sends the value of a column as a google.protobuf.Value: a message with one field, whose tag gives the kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Int64s
from connector.core.message_classes import message_classes
from connector.core.value_texts import (
    LIST_TAG,
    NULL_TAG,
    PADDING,
    STRING_TAG,
    Bools,
    Bytes,
    are_nulls,
    string_starts,
    value_fragments,
    varints,
)
from connector.spanner.decoding.mutable_walk import json_value

_ListValue = message_classes({"List": {"values": (1, "repeated bytes")}})["List"]
"""A google.protobuf.ListValue whose values stay bytes; joined ones parse as their concatenation."""

_COMMA = pa.scalar(b",", pa.binary())
_LARGEST = (1 << 21) - 1
"""Lengths up to this one have at most three bytes."""


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Values, as offsets in ``data``.

    Attributes:
        raws: the bytes of each value of the block.
        every: which of ``raws`` the values are.
        data: the bytes of all values of the block, followed by padding.
        tag: each value's tag; 0 where there is none.
        begin: the offset of each value.
        at: the offset after the tag.
        end: the offset after the value.
    """

    raws: Sequence[bytes]
    every: slice
    data: Bytes
    tag: Bytes
    begin: Int64s
    at: Int64s
    end: Int64s

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> Self:
        """Locates values, each given as its bytes."""
        data = np.frombuffer(bytearray(b"".join([*raw, PADDING])), np.uint8)
        sizes = np.fromiter(map(len, raw), np.int64, len(raw))
        end = sizes.cumsum()
        begin = end - sizes
        tag = data[begin]
        if not sizes.all():
            tag[sizes == 0] = 0
        return cls(raw, slice(None), data, tag, begin, begin + 1, end)

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def raw(self) -> Sequence[bytes]:
        """The bytes of each value."""
        return self.raws[self.every]

    def column(self, number: int, columns: int) -> "ValueReader":
        """The values of a column of the block, given its number and how many columns the rows have."""
        every = slice(number, None, columns)
        begin = np.ascontiguousarray(self.begin[every])
        return ValueReader(
            self.raws, every, self.data, self.tag[every], begin, begin + 1, np.ascontiguousarray(self.end[every])
        )

    def nulls(self) -> Bools | None:
        """A mask of the values that are NULL; None if none is.

        Raises:
            ValueError: a value is not of the documented format.
        """
        found: Bools = self.tag == NULL_TAG
        if not found.any():
            return None
        if not are_nulls(self.data, self.at[found], self.end[found]).all():
            raise ValueError("a value is not NULL alone")
        return found

    def fragments(self) -> tuple[Int64s, list[pa.BinaryArray]]:
        """The fragment of each value's JSON text, and the fragments, as of :func:`value_fragments`.

        Raises:
            DecodeError, ValueError: a value is not of the documented format.
        """
        return value_fragments(self.data.copy(), self.tag, self.begin, self.at, self.end, self._uncommon)

    def _uncommon(self, indexes: Int64s) -> list[object]:
        """The values with these indexes as what JSON is made of."""
        raw = self.raw
        found: list[object] = [None] * len(indexes)
        tag = self.tag[indexes]
        start, escaped = string_starts(self.data, self.at[indexes], self.end[indexes])
        escaped &= tag == STRING_TAG
        begins = (start - self.begin[indexes]).tolist()
        for number in np.flatnonzero(escaped).tolist():
            found[number] = raw[indexes[number]][begins[number] :].decode()
        for number in np.flatnonzero(~escaped & (tag != LIST_TAG)).tolist():
            found[number] = json_value(Value.FromString(raw[indexes[number]]))
        lists = np.flatnonzero(tag == LIST_TAG)
        if len(lists):
            for number, text in zip(lists.tolist(), self.lists(indexes[lists]).json(), strict=True):
                found[number] = orjson.Fragment(text)
        return found

    def lists(self, indexes: Int64s) -> "Lists":
        """The elements of the lists with these indexes.

        Raises:
            DecodeError, ValueError: a value is not a list.
        """
        length, start = varints(self.data, self.at[indexes])
        sizes = self.end[indexes] - start
        if not bool(((self.tag[indexes] == LIST_TAG) & (length == sizes)).all()):
            raise ValueError("a value is not a list")
        begins, raw = (start - self.begin[indexes]).tolist(), self.raw
        contents = [raw[index][begin:] for index, begin in zip(indexes.tolist(), begins, strict=True)]
        elements: list[bytes] = list(_ListValue.FromString(b"".join(contents)).values)
        counts = _counts(elements, sizes)
        if counts is None:  # unknown fields, or huge elements
            parsed = [list(_ListValue.FromString(content).values) for content in contents]
            elements = [element for some in parsed for element in some]
            counts = np.fromiter(map(len, parsed), np.int64, len(parsed))
        return Lists(ValueReader.of(elements), counts)


@dataclass(frozen=True, slots=True)
class Lists:
    """The elements of lists, one list after the other, and how many each has."""

    elements: ValueReader
    counts: Int64s

    @property
    def offsets(self) -> pa.Array:
        """The index of each list's first element, and that of the end of the last list."""
        return pa.array(np.append(0, self.counts.cumsum()).astype(np.int32))

    def json(self) -> list[bytes]:
        """The text of each list as a JSON array."""
        fragment, fragments = self.elements.fragments()
        texts = pa.concat_arrays(fragments).take(pa.array(fragment))
        joined: list[bytes] = pc.binary_join(pa.ListArray.from_arrays(self.offsets, texts), _COMMA).to_pylist()
        return [b"[%b]" % text for text in joined]


def _counts(elements: Sequence[bytes], sizes: Int64s) -> Int64s | None:
    """The number of elements of each list, derived from where they must end; None if they do not end there."""
    if not len(sizes):
        return sizes
    lengths = np.fromiter(map(len, elements), np.int64, len(elements))
    if int(lengths.max(initial=0)) > _LARGEST:
        return None
    headers = 2 + (lengths >= 1 << 7).astype(np.int64) + (lengths >= 1 << 14)
    ends = np.append(0, (headers + lengths).cumsum())
    stops = sizes.cumsum()
    last = np.searchsorted(ends, stops)
    if int(stops[-1]) != int(ends[-1]) or not np.array_equal(ends[last], stops):
        return None
    return np.diff(last, prepend=0)


def texts(values: ValueReader) -> pa.StringArray:
    """The values as text; NULL stays null.

    Raises:
        ValueError: a value is neither a string nor NULL.
    """
    return cut(values).cast(pa.string())


def cut(values: ValueReader, length: int | None = None, ending: int = 0) -> pa.BinaryArray:
    """The values as the bytes of text, of which only the first ``length`` are taken; NULL stays null.

    Args:
        values: strings and NULL.
        length: bytes of a text at most; None for all.
        ending: bytes that are dropped at the end of each text.

    Raises:
        ValueError: a value is neither a string nor NULL.
    """
    nulls = values.nulls()
    start, whole = string_starts(values.data, values.at, values.end)
    whole &= values.tag == STRING_TAG
    stop = values.end
    if nulls is not None:
        whole |= nulls
        start, stop = np.where(nulls, values.begin, start), np.where(nulls, values.begin, stop)
    if not whole.all():
        raise ValueError("a value is not a string")
    if ending:
        stop = np.maximum(stop - ending, start)
    if length is not None:
        stop = np.minimum(stop, start + length)
    return slices(values.data, start, stop, nulls)


def slices(data: Bytes, start: Int64s, stop: Int64s, nulls: Bools | None) -> pa.BinaryArray:
    """The bytes between these offsets, except for nulls; slices are in order and do not overlap."""
    offsets = np.empty(2 * len(start) + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = start, stop, len(data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    found = pa.BinaryArray.from_buffers(pa.binary(), 2 * len(start), buffers).take(
        pa.array(np.arange(0, 2 * len(start), 2))
    )
    if nulls is None:
        return found
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.BinaryArray.from_buffers(found.type, len(found), [validity, *found.buffers()[1:]])
