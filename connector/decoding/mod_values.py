"""Converts the values of many mods of the MUTABLE_KEY_RANGE mode to JSON texts, without an object per value.

A mod of a google.spanner.v1.ChangeStreamRecord has a ModValue for each column: the column's index in the record's
column metadata, which is omitted where it is 0, and a google.protobuf.Value. All values of a block are examined at
once, as offsets in the joined bytes of its mods. The common kinds are recognized by their tags and lengths: a string
without characters that JSON escapes, a number, a boolean, a NULL. Every other value is parsed alone and converted as
the row decoder converts it.

One ``take`` from all fragments of text (names, values, braces) then writes all payloads, one after the other.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from google.cloud.spanner_v1 import types

from connector.core.changes import Int64s
from connector.decoding.message_class import message_class
from connector.decoding.mutable_walk import json_number, proto_value

Bytes = npt.NDArray[np.uint8]

PADDING = bytes(32)
"""Appended to bytes that are searched for fields: reading a truncated last field stays within it."""

_AT_ONCE = 128 * 1024
"""Bytes of mods that are converted together; this temporarily takes ten times as much memory.

Larger blocks exceed what the allocator keeps, and the time of asking the system for memory then outweighs the rest.
"""

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_OneMod = message_class(
    "Record", {"Record": [("data_change_record", 1, "Data")], "Data": [("mods", 7, "Mod")], "Mod": [("keys", 1, bytes)]}
)
"""A ChangeStreamRecord with one mod. Values keep their depth, for parsers limit how deep messages nest."""

_PAYLOADS = 3
"""A mod's fields are keys, old_values and new_values, numbered from 1."""

_FIRST_TAG, _TAG_STEP = 0x0A, 0x08
_INDEX_TAG, _VALUE_TAG = 0x08, 0x12
_NULL_TAG, _NUMBER_TAG, _STRING_TAG, _BOOL_TAG = 0x08, 0x11, 0x1A, 0x20
_DOUBLE_BYTES = 8

_QUOTE, _BACKSLASH, _FIRST_PLAIN = ord('"'), ord("\\"), 0x20
_CONSTANTS = (b"}", b"{}", b"null", b"false", b"true")
_CLOSE, _EMPTY, _NULL, _FALSE = range(4)

_BREAK = orjson.Fragment(b"\n")
"""Separates texts; no text contains it, for JSON escapes it."""

_VARINT_BYTES = 4
"""Of the longest number that is read here: no length in a message from Spanner takes more bytes."""


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


def payloads(mods: Sequence[bytes], schemas: Int64s, columns: Sequence[Sequence[str]]) -> list[pa.StringArray]:
    """Returns the keys, old values and new values of mods, each the text of a JSON object.

    Args:
        mods: the bytes of each mod.
        schemas: for each mod, the index of its record's schema in ``columns``.
        columns: the names of the columns of each record schema; no schema has a name twice.

    Raises:
        DecodeError, IndexError, TypeError, ValueError: a mod is not of the documented format.
    """
    ends = np.cumsum(np.fromiter(map(len, mods), np.int64, len(mods)))
    cuts = np.flatnonzero(np.diff(ends // _AT_ONCE)) + 1
    parts = [
        _payloads(mods[start:stop], schemas[start:stop], columns) for start, stop in pairwise([0, *cuts, len(mods)])
    ]
    return [pa.concat_arrays(some) for some in zip(*parts, strict=True)]


def _payloads(mods: Sequence[bytes], schemas: Int64s, columns: Sequence[Sequence[str]]) -> list[pa.StringArray]:
    if not mods:
        return [pa.array([], pa.string())] * _PAYLOADS
    data = np.frombuffer(bytearray(b"".join([*mods, PADDING])), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, mods), np.int64, len(mods)))
    counts = np.array([len(names) for names in columns], np.int64)
    widest = int(counts.max(initial=0))
    mod, payload, begin, end = _values(data, ends, _PAYLOADS * widest)
    column, fragment, fragments = _fragments(data, begin, end)
    schema, text = schemas[mod], payload * len(mods) + mod
    if bool(((column < 0) | (column >= counts[schema])).any()):
        raise ValueError("the column index of a value is out of range")
    cells = np.sort(text * widest + column)
    if bool((cells[1:] == cells[:-1]).any()):
        raise ValueError("a column has two values")
    name = sum(map(len, fragments)) + 2 * ((np.cumsum(counts) - counts)[schema] + column)
    texts = _objects(text, _PAYLOADS * len(mods), name, fragment, pa.concat_arrays([*fragments, _names(columns)]))
    return [texts.slice(number * len(mods), len(mods)) for number in range(_PAYLOADS)]


def _values(data: Bytes, ends: Int64s, most: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Returns each ModValue's mod, payload, start and end, in the order of the bytes.

    Args:
        data: the bytes of the mods.
        ends: the offset at which each mod ends.
        most: how many values a mod has at most.

    Raises:
        ValueError: a mod has more values, or is not of the documented format.
    """
    at, stop = np.append(0, ends[:-1]), ends
    found: list[Int64s] = []
    while len(at):  # the first values of all mods, then the second ones of those that have more
        unfinished = at < stop
        if not unfinished.all():
            at, stop = at[unfinished], stop[unfinished]
        if len(found) > most:
            raise ValueError("a mod has more values than columns")
        found.append(at)
        length, begin = varints(data, at + 1)
        at = begin + length
    fields = np.sort(np.concatenate(found))
    length, begin = varints(data, fields + 1)
    end, payload = begin + length, (data[fields] - _FIRST_TAG) // _TAG_STEP
    known = (length >= 0) & (data[fields] == payload * _TAG_STEP + _FIRST_TAG) & (payload < _PAYLOADS)
    if not known.all() or not np.array_equal(end, np.append(fields, ends[-1])[1:]):
        raise ValueError("a mod is not of the documented format")
    return np.searchsorted(ends, fields, "right"), payload.astype(np.int64), begin, end


def _fragments(data: Bytes, begin: Int64s, end: Int64s) -> tuple[Int64s, Int64s, list[pa.BinaryArray]]:
    """Returns each ModValue's column and fragment, and the fragments; writes quotes into ``data``."""
    column, tag, at = _kinds(data, begin, end)
    fragment = np.full(len(begin), -1)

    flags = np.flatnonzero((tag == _NULL_TAG) | (tag == _BOOL_TAG))
    is_bool, bit = tag[flags] == _BOOL_TAG, data[at[flags]].astype(np.int64)
    known = (end[flags] == at[flags] + 1) & (bit <= is_bool)
    fragment[flags] = np.where(known, np.where(is_bool, _FALSE + bit, _NULL), -1)

    numbers = np.flatnonzero((tag == _NUMBER_TAG) & (end == at + _DOUBLE_BYTES))
    doubles = data[at[numbers][:, None] + np.arange(_DOUBLE_BYTES)].view("<f8").ravel().tolist()
    fragment[numbers] = len(_CONSTANTS) + np.arange(len(numbers))

    plain, start = _plain_strings(data, tag, at, end)
    others = np.flatnonzero((fragment < 0) & ~plain)
    values = _parsed([data[begin[one] : end[one]].tobytes() for one in others.tolist()])
    column[others] = [value.column_metadata_index for value in values]
    fragment[others] = len(_CONSTANTS) + len(numbers) + np.arange(len(others))

    texts = [*_CONSTANTS, *_dumped([*map(json_number, doubles), *map(proto_value, values)])]
    fragment[plain] = len(texts) + 2 * np.flatnonzero(plain)
    return column, fragment, [pa.array(texts, pa.binary()), _quoted(data, plain, begin, start, end)]


def _kinds(data: Bytes, begin: Int64s, end: Int64s) -> tuple[Int64s, Bytes, Int64s]:
    """Returns each ModValue's column, the tag of its value's only field, and the offset after that tag.

    The tag is 0 if a ModValue is anything but an optional index and a value.
    """
    has_index = data[begin] == _INDEX_TAG
    index, after = varints(data, begin + 1)
    column, at = np.where(has_index, index, 0), np.where(has_index, after, begin)
    length, inner = varints(data, at + 1)
    known = (data[at] == _VALUE_TAG) & (column >= 0) & (length > 0) & (inner + length == end)
    return column, np.where(known, data[inner], np.uint8(0)), inner + 1


def _plain_strings(data: Bytes, tag: Bytes, at: Int64s, end: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Returns which values are strings without characters that JSON escapes, and where their texts start."""
    length, start = varints(data, at)
    plain = (tag == _STRING_TAG) & (length > 0) & (start + length == end)
    special = (data < _FIRST_PLAIN) | (data == _QUOTE) | (data == _BACKSLASH)
    texts = np.stack((start[plain], end[plain]), axis=1).ravel()
    if len(texts):
        plain[plain] = ~np.logical_or.reduceat(special, texts)[::2]
    return plain, start


def _quoted(data: Bytes, plain: npt.NDArray[np.bool_], begin: Int64s, start: Int64s, end: Int64s) -> pa.BinaryArray:
    """Returns two fragments of ``data`` for each ModValue: its string in quotes, and the bytes up to the next one.

    The quotes overwrite the string's length before it, and the next field's tag or the padding after it.
    """
    data[start[plain] - 1] = _QUOTE
    data[end[plain]] = _QUOTE
    places = np.stack((np.where(plain, start - 1, begin), np.where(plain, end + 1, begin)), axis=1).ravel()
    offsets = np.append(places, len(data)).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(places), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _parsed(values: list[bytes]) -> Sequence[types.ChangeStreamRecord.DataChangeRecord.ModValue]:
    """Parses ModValues, all in one record."""
    if not values:
        return ()
    record = _OneMod(data_change_record={"mods": {"keys": values}}).SerializeToString()
    found: Sequence[types.ChangeStreamRecord.DataChangeRecord.ModValue] = (
        _ChangeStreamRecord.FromString(record).data_change_record.mods[0].keys
    )
    return found


def _names(columns: Sequence[Sequence[str]]) -> pa.BinaryArray:
    """Returns two fragments for each column of each record schema: its name as a later and as the first member."""
    names = _dumped([name for some in columns for name in some])
    return pa.array([b"%b%b:" % (before, name) for name in names for before in (b",", b"{")], pa.binary())


def _objects(text: Int64s, count: int, name: Int64s, value: Int64s, fragments: pa.BinaryArray) -> pa.StringArray:
    """Returns the JSON texts of objects.

    Args:
        text: for each member, the index of its object; the members of an object are in order.
        count: the number of objects.
        name: for each member, the fragment of its name; the next fragment is its name as a first member.
        value: for each member, the fragment of its value.
        fragments: the texts; they begin with :data:`_CONSTANTS`.
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
    taken = fragments.take(pa.array(wanted))
    _, offsets, joined = taken.buffers()
    stops = np.frombuffer(offsets, np.int32)[np.concatenate((np.zeros(1, np.int64), last + 1))]
    whole = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(stops), joined])
    return whole.cast(pa.string())  # fails if it is not UTF-8


def _dumped(values: Sequence[object]) -> list[bytes]:
    """Returns the JSON text of each value; all are written in one call, for each call takes a kilobyte of memory."""
    written = orjson.dumps([item for value in values for item in (value, _BREAK)])
    return written[1:-3].split(b",\n,")[: len(values)]
