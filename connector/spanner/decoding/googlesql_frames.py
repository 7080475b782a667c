"""Proves that GoogleSQL rows hold exactly one data change record each, field by field and mod by mod.

What :mod:`connector.spanner.decoding.merging` parses has lost its borders. The lengths of the parsed fields determine
where each tag and length must be in the bytes if the rows hold exactly these fields. Here all those places are compared
at once. Rows with any difference, such as one additional field, are left to the row decoder.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from connector.core.changes import Int64s
from connector.spanner.decoding.chunks import header_of

_Words = npt.NDArray[np.uint64]

_ITEM, _NULL, _STRING, _BOOL, _LIST = 0x0A, 0x08, 0x1A, 0x20, 0x32
"""Tags of a ListValue's item, and of the kinds of google.protobuf.Value."""

_FIELDS = (
    _STRING, _STRING, _STRING, _BOOL, _STRING, _LIST, _LIST, _STRING, _STRING, _STRING, _STRING, _STRING, _BOOL,
)  # fmt: skip
"""Tags of a data change record's fields."""

BOOL_BYTES = 1
"""Bytes of a BOOL after its tag."""

_TRAILER_BYTES = 8
_TRAILERS = np.array(
    [
        int.from_bytes(bytes((_ITEM, 2, *heartbeats, _ITEM, 2, *children)), "little")
        for heartbeats in ((_LIST, 0), (_NULL, 0))
        for children in ((_LIST, 0), (_NULL, 0))
    ],
    np.uint64,
)
"""The bytes after the array of data change records: the other two arrays, each of which is empty or NULL."""

_HEADER_BYTES = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_HEADER_BYTES + 1)], np.uint64)

_LONGEST = (1 << 21) - _HEADER_BYTES
"""Contents shorter than this have a header of at most eight bytes."""

_TABLE_LENGTHS = 1 << 15
_TABLE_OF = np.zeros(256, np.int64)
_TABLE_OF[[_LIST, _BOOL]] = _TABLE_LENGTHS, 2 * _TABLE_LENGTHS - BOOL_BYTES
"""The index of the first header with a tag in the table of headers; a BOOL has only one."""

_FIELD_TAGS, _STRING_TAG, _LIST_TAG = np.array(_FIELDS)[:, None], np.array(_STRING), np.array(_LIST)


def are_data_changes(rows: Sequence[bytes], joined: bytes, lengths: Int64s) -> bool:
    """True if each row is exactly one data change record of the known fields.

    Args:
        rows: each row as the bytes of a google.protobuf.Value.
        joined: the same rows, concatenated.
        lengths: the content length of each field (first axis) in each row: the bytes of a string or list, or
            :data:`BOOL_BYTES`.

    Raises:
        IndexError: a row is something else.
    """
    sizes = list(map(len, rows))
    openings = list(map(_opening, sizes))
    if not all(map(bytes.startswith, rows, openings)) or int(lengths.max()) >= _LONGEST:
        return False
    words = _words(joined)
    row_sizes = np.fromiter(sizes, np.int64, len(sizes))
    stops = row_sizes.cumsum()
    starts = stops - row_sizes
    stops -= _TRAILER_BYTES
    trailers = words[stops]
    if not bool((trailers == _TRAILERS[0]).all() or np.isin(trailers, _TRAILERS).all()):
        return False
    starts += np.fromiter(map(len, openings), np.int64, len(rows))
    headers, masks, items = _headers(lengths, _FIELD_TAGS)
    ends = items.cumsum(axis=0)
    ends += starts
    return bool((ends[-1] == stops).all()) and _match(words, ends - items, headers, masks)


def mod_counts(joined: bytes, lists: Int64s, lengths: Int64s) -> Int64s | None:
    """Returns each record's number of mods, or None if a mod is anything but three strings.

    Args:
        joined: the bytes of all records' google.protobuf.ListValues of mods, followed by at least eight bytes.
        lists: the length of each of these lists.
        lengths: the lengths of the strings, a row for each mod.

    Raises:
        IndexError: a mod is anything else.
    """
    stops = lists.cumsum()
    if not len(lengths):
        return None if stops[-1] else np.zeros(len(lists), np.int64)
    if int(stops[-1]) >= _LONGEST and int(lengths.max()) >= _LONGEST:
        return None
    headers, masks, items = _headers(lengths, _STRING_TAG)
    inside = items[:, 0] + items[:, 1] + items[:, 2]
    if int(stops[-1]) >= _LONGEST and int(inside.max()) >= _LONGEST:
        return None
    mod_headers, mod_masks, mods = _headers(inside, _LIST_TAG)
    ends = mods.cumsum()
    begins = items.cumsum().reshape(items.shape) - items
    begins += (mods - inside).cumsum()[:, None]
    words = _words(joined)
    if not _match(words, ends - mods, mod_headers, mod_masks) or not _match(words, begins, headers, masks):
        return None
    if np.array_equal(ends, stops):  # the usual case: one mod for each record
        return np.ones(len(lists), np.int64)
    ends = np.append(0, ends)
    last = np.searchsorted(ends, stops)
    return np.diff(last, prepend=0) if np.array_equal(ends[last], stops) and ends[-1] == stops[-1] else None


def _words(data: bytes) -> _Words:
    """Returns the eight bytes from each offset on, as a little-endian number."""
    return np.ndarray(len(data) - _HEADER_BYTES + 1, "<u8", data, strides=(1,))


def _match(words: _Words, at: Int64s, headers: _Words, masks: _Words) -> bool:
    """True if the bytes at these offsets are these headers; a mask selects the bytes of a header."""
    found = words[at]
    found &= masks
    return bool((found == headers).all())


def _headers(lengths: Int64s, tags: Int64s) -> tuple[_Words, _Words, Int64s]:
    """Returns the headers of list items with these content lengths, the headers' masks, and the items' sizes."""
    if int(lengths.max()) >= _TABLE_LENGTHS:
        return _built(lengths, tags)
    headers, masks, sizes = _table()
    at = lengths + _TABLE_OF[tags]
    return headers[at], masks[at], sizes[at]


@lru_cache(1)
def _table() -> tuple[_Words, _Words, Int64s]:
    lengths = np.arange(_TABLE_LENGTHS)
    of_kinds = _built(lengths, _STRING_TAG), _built(lengths, _LIST_TAG), _built(np.array([BOOL_BYTES]), np.array(_BOOL))
    headers, masks, sizes = (np.concatenate(some) for some in zip(*of_kinds, strict=True))
    return headers, masks, sizes


def _built(lengths: Int64s, tags: Int64s) -> tuple[_Words, _Words, Int64s]:
    inner, digits = _varint(lengths)
    has_length = tags != _BOOL
    inner, digits = inner * has_length, digits * has_length
    outer, more = _varint(1 + digits + lengths)
    headers = _ITEM | outer << 8 | (tags | inner << 8) << 8 * (1 + more)
    before = 2 + more + digits
    return headers.astype(np.uint64), _MASKS[before], before + lengths


def _varint(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Encodes numbers as varints, each as the bytes of a little-endian number; returns these and their sizes."""
    size = 1 + (numbers >= 1 << 7).astype(np.int64) + (numbers >= 1 << 14)
    word = numbers & 0x7F | (numbers & 0x7F << 7) << 1 | (numbers & 0x7F << 14) << 2
    word |= np.where(size > 1, 0x80, 0) | np.where(size > 2, 0x8000, 0)
    return word, size


@lru_cache(65536)
def _opening(size: int) -> bytes:
    """Returns the bytes before the first field in a one-record row of ``size`` bytes; a zero byte if impossible."""
    opening = b""
    for level, tag in enumerate((_LIST, _ITEM, _LIST, _ITEM, _LIST, _ITEM, _LIST)):
        if level == 3:  # the array of data change records
            size -= _TRAILER_BYTES
        header = header_of(size, tag)
        if not header:
            return b"\0"
        opening += header
        size -= len(header)
    return opening
