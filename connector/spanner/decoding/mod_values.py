"""Converts the values of many mods of the MUTABLE_KEY_RANGE mode to JSON texts, without an object per value.

A mod of a google.spanner.v1.ChangeStreamRecord has a ModValue for each column: the column's index in the record's
column metadata, which is omitted where it is 0, and a google.protobuf.Value. All values of a block are examined at
once, as offsets in the joined bytes of its mods; :mod:`connector.core.value_texts` writes the texts. Values of uncommon
kinds are parsed and converted as the row decoder converts them.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from google.cloud.spanner_v1 import types

from connector.core.changes import Int64s
from connector.core.message_classes import message_classes
from connector.core.value_texts import PADDING, Bytes, member_names, object_texts, value_fragments, varints
from connector.spanner.decoding.mutable_walk import proto_value

_AT_ONCE = 128 * 1024
"""Bytes of mods that are converted together; this temporarily takes ten times as much memory.

Larger blocks exceed what the allocator keeps, and the time of asking the system for memory then outweighs the rest.
"""

_ChangeStreamRecord = types.ChangeStreamRecord.pb()
_OneMod = message_classes(
    {
        "Record": {"data_change_record": (1, "Data")},
        "Data": {"mods": (7, "Mod")},
        "Mod": {"keys": (1, "repeated bytes")},
    }
)["Record"]
"""A ChangeStreamRecord with one mod. Values keep their depth, because parsers limit how deep messages nest."""

_PAYLOADS = 3
"""A mod's fields are keys, old_values and new_values, numbered from 1."""

_FIRST_TAG, _TAG_STEP = 0x0A, 0x08
_INDEX_TAG, _VALUE_TAG = 0x08, 0x12


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
    every = pa.concat_arrays([*fragments, member_names(columns)])
    texts = object_texts(text, _PAYLOADS * len(mods), name, fragment, every)
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

    def others(indexes: Int64s) -> list[object]:
        values = _parsed([data[begin[one] : end[one]].tobytes() for one in indexes.tolist()])
        column[indexes] = [value.column_metadata_index for value in values]
        return [proto_value(value) for value in values]

    return column, *value_fragments(data, tag, begin, at, end, others)


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


def _parsed(values: list[bytes]) -> Sequence[types.ChangeStreamRecord.DataChangeRecord.ModValue]:
    """Parses ModValues, all in one record."""
    if not values:
        return ()
    record = _OneMod(data_change_record={"mods": {"keys": values}}).SerializeToString()
    found: Sequence[types.ChangeStreamRecord.DataChangeRecord.ModValue] = (
        _ChangeStreamRecord.FromString(record).data_change_record.mods[0].keys
    )
    return found
