"""The JSON texts of many encoded values at once, without an object per value. Pure.

Spanner sends a value of a column as a google.protobuf.Value. Here all values of a block are examined at once, as
offsets in the bytes of the block. The common kinds are recognized by their tags and lengths: a string without
characters that JSON escapes, a number, a boolean, a NULL. Other values are left to the caller.

The result is fragments of text: names, values, braces. One ``take`` from all fragments then writes the texts of all
objects, one after the other.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from connector.core.changes import Int64s

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

PADDING = bytes(32)
"""Appended to bytes that are searched for fields: reading a truncated last field stays within it."""

NULL_TAG, NUMBER_TAG, STRING_TAG, BOOL_TAG, LIST_TAG = 0x08, 0x11, 0x1A, 0x20, 0x32
"""Tags of a google.protobuf.Value's kinds."""

_DOUBLE_BYTES = 8
_QUOTE, _BACKSLASH, _FIRST_PLAIN = ord('"'), ord("\\"), 0x20
_CONSTANTS = (b"}", b"{}", b"null", b"false", b"true")
_CLOSE, _EMPTY, _NULL, _FALSE = range(4)

_BREAK = orjson.Fragment(b"\n")
"""Separates texts; no text contains it, for JSON escapes it."""

_TWO_BYTES = 1 << 7
"""From this one on a length has more than one byte."""

_VARINT_BYTES = 4
"""Of the longest number that is read here: no length in a message from Spanner takes more bytes."""

_NOT_FINITE = {inf: "Infinity", -inf: "-Infinity"}


def varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """Reads the varints at these offsets; returns them, -1 for one that is too long, and the offsets after them."""
    numbers, ends = data[at].astype(np.int64), at + 1
    longer = np.flatnonzero(numbers >= 0x80)
    for shift in range(7, 7 * _VARINT_BYTES, 7):
        if not len(longer):
            return numbers, ends
        more = data[ends[longer]].astype(np.int64)
        numbers[longer] += (more - 1) << shift  # without the continuation bit
        ends[longer] += 1
        longer = longer[more >= 0x80]
    numbers[longer] = -1
    return numbers, ends


def doubles(data: Bytes, at: Int64s) -> npt.NDArray[np.float64]:
    """The numbers at these offsets."""
    found: npt.NDArray[np.float64] = data[at[:, None] + np.arange(_DOUBLE_BYTES)].view("<f8").ravel()
    return found


def are_nulls(data: Bytes, at: Int64s, end: Int64s) -> Bools:
    """A mask of the values that are the tag of a NULL and nothing else; arguments as of :func:`value_fragments`."""
    found: Bools = (data[at] == 0) & (end == at + 1)
    return found


def are_booleans(data: Bytes, at: Int64s, end: Int64s) -> Bools:
    """A mask of the values that are the tag of a boolean and nothing else; arguments as of :func:`value_fragments`."""
    found: Bools = (data[at] <= 1) & (end == at + 1)
    return found


def are_numbers(at: Int64s, end: Int64s) -> Bools:
    """A mask of the values that are the tag of a number and nothing else; arguments as of :func:`value_fragments`."""
    found: Bools = end == at + _DOUBLE_BYTES
    return found


def string_starts(data: Bytes, at: Int64s, end: Int64s) -> tuple[Int64s, Bools]:
    """The offsets at which the texts of strings begin, and a mask of the values that are just a string."""
    start, length = at + 1, end - at - 1
    whole = data[at] == length  # of less than 128 bytes
    whole &= length < _TWO_BYTES
    if not whole.all():
        others = np.flatnonzero(~whole)
        lengths, start[others] = varints(data, at[others])
        whole[others] = (lengths >= 0) & (start[others] + lengths == end[others])
    return start, whole


def json_number(number: float) -> float | str:
    """Returns a number as Spanner writes it in JSON, which cannot express infinity and NaN as numbers."""
    return number if isfinite(number) else _NOT_FINITE.get(number, "NaN")


def value_fragments(
    data: Bytes, tag: Bytes, begin: Int64s, at: Int64s, end: Int64s, others: Callable[[Int64s], Sequence[object]]
) -> tuple[Int64s, list[pa.BinaryArray]]:
    """Returns the fragment of each value, and the fragments; writes quotes into ``data``.

    Args:
        data: the bytes of all values and what surrounds them, followed by :data:`PADDING`.
        tag: the tag of each value's only field, or 0 if it is not known to be a single field.
        begin: the offset of each value, or of what contains it; after the end of the value before.
        at: the offset after the tag.
        end: the offset after the value.
        others: returns the values with these indexes, of other kinds, as what JSON is made of.
    """
    fragment = np.full(len(begin), -1)
    nulls = _those(np.flatnonzero(tag == NULL_TAG), lambda some: are_nulls(data, at[some], end[some]))
    fragment[nulls] = _NULL
    booleans = _those(np.flatnonzero(tag == BOOL_TAG), lambda some: are_booleans(data, at[some], end[some]))
    fragment[booleans] = _FALSE + data[at[booleans]]
    numbers = _those(np.flatnonzero(tag == NUMBER_TAG), lambda some: are_numbers(at[some], end[some]))
    fragment[numbers] = len(_CONSTANTS) + np.arange(len(numbers))
    written = number_texts(doubles(data, at[numbers]))

    plain, start = _plain_strings(data, tag, at, end)
    rest = np.flatnonzero((fragment < 0) & ~plain)
    values = others(rest) if len(rest) else ()
    fragment[rest] = len(_CONSTANTS) + len(numbers) + np.arange(len(rest))

    texts = [*_CONSTANTS, *written, *dumped(values)]
    fragment[plain] = len(texts) + 2 * np.flatnonzero(plain)
    return fragment, [pa.array(texts, pa.binary()), _quoted(data, plain, begin, start, end)]


def _those(indexes: Int64s, are: Callable[[Int64s], Bools]) -> Int64s:
    """The indexes for which ``are`` is true."""
    return indexes[are(indexes)] if len(indexes) else indexes


def number_texts(numbers: npt.NDArray[np.float64]) -> list[bytes]:
    """The JSON texts of numbers, as of :func:`json_number`."""
    if not len(numbers):
        return []
    if not bool(np.isfinite(numbers).all()):
        return dumped(list(map(json_number, numbers.tolist())))
    return orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def _plain_strings(data: Bytes, tag: Bytes, at: Int64s, end: Int64s) -> tuple[Bools, Int64s]:
    """Returns a mask of the strings without characters that JSON escapes, and the starts of their texts."""
    start, plain = string_starts(data, at, end)
    plain &= (tag == STRING_TAG) & (start < end)
    special = (data < _FIRST_PLAIN) | (data == _QUOTE) | (data == _BACKSLASH)
    texts = np.stack((start[plain], end[plain]), axis=1).ravel()
    if len(texts):
        plain[plain] = ~np.logical_or.reduceat(special, texts)[::2]
    return plain, start


def _quoted(data: Bytes, plain: Bools, begin: Int64s, start: Int64s, end: Int64s) -> pa.BinaryArray:
    """Returns two fragments of ``data`` for each value: its string in quotes, and the bytes up to the next one.

    The quotes overwrite the string's length before it, and the next field's tag or the padding after it.
    """
    data[start[plain] - 1] = _QUOTE
    data[end[plain]] = _QUOTE
    places = np.stack((np.where(plain, start - 1, begin), np.where(plain, end + 1, begin)), axis=1).ravel()
    offsets = np.append(places, len(data)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(places), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def member_names(columns: Sequence[Sequence[str]]) -> pa.BinaryArray:
    """Returns two fragments for each column of each schema: its name as a later and as the first member."""
    written = dumped([name for some in columns for name in some])
    return pa.array([b"%b%b:" % (before, name) for name in written for before in (b",", b"{")], pa.binary())


def object_texts(text: Int64s, count: int, name: Int64s, value: Int64s, fragments: pa.BinaryArray) -> pa.StringArray:
    """Returns the JSON texts of objects.

    Args:
        text: for each member, the index of its object; the members of an object are in order.
        count: the number of objects.
        name: for each member, the fragment of its name; the next fragment is its name as a first member.
        value: for each member, the fragment of its value.
        fragments: the texts; they begin with those of :func:`value_fragments`.

    Raises:
        ValueError: a text is not UTF-8.
    """
    order = np.argsort(text, kind="stable")
    text, sizes = text[order], np.bincount(text, minlength=count)
    ends = np.cumsum(sizes)
    number = np.arange(len(text))
    last = 2 * ends + np.arange(count)  # the index of an object's brace, after the names and values of all its members
    wanted = np.empty(len(name) + len(value) + count, np.int64)
    wanted[last] = np.where(sizes, _CLOSE, _EMPTY)
    wanted[2 * number + text] = name[order] + (number == (ends - sizes)[text])
    wanted[2 * number + text + 1] = value[order]
    return _joined(wanted, last, fragments)


def equal_object_texts(name: Int64s, value: Int64s, fragments: pa.BinaryArray) -> pa.StringArray:
    """Returns the JSON texts of objects that all have the same members, at least one.

    Args:
        name: the fragment of each member's name; the next fragment is its name as a first member.
        value: the fragments of the values: a row for each object, a column for each member.
        fragments: as of :func:`object_texts`.

    Raises:
        ValueError: a text is not UTF-8.
    """
    count, members = value.shape
    wanted = np.empty((count, 2 * members + 1), np.int64)
    wanted[:, 0:-1:2] = name
    wanted[:, 0] += 1
    wanted[:, 1::2] = value
    wanted[:, -1] = _CLOSE
    return _joined(wanted.ravel(), np.arange(1, count + 1) * (2 * members + 1) - 1, fragments)


def _joined(wanted: Int64s, last: Int64s, fragments: pa.BinaryArray) -> pa.StringArray:
    """Returns texts made of the wanted fragments; ``last`` has the index of the last one of each text."""
    _, offsets, joined = fragments.take(pa.array(wanted)).buffers()
    stops = np.frombuffer(offsets, np.int32)[np.concatenate((np.zeros(1, np.int64), last + 1))]
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(last), [None, pa.py_buffer(stops), joined])
    return whole.cast(pa.string())  # fails if it is not UTF-8


def dumped(values: Sequence[object]) -> list[bytes]:
    """Returns the JSON text of each value; written in one call, because each call takes a kilobyte of memory."""
    written = orjson.dumps([item for value in values for item in (value, _BREAK)])
    return written[1:-3].split(b",\n,")[: len(values)]
