"""Whether GoogleSQL rows are framed as rows of one data change record each are: field by field, and mod by mod.

What :mod:`connector.merging` parses has lost its borders. Here they are looked at, in all rows at once and without an
object for any of them: tags and lengths have to be where a writer of exactly these fields puts them. What is framed
otherwise, if only by a field more, is left to the plain walk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.changes import Int64s
from connector.mod_values import PADDING, varints

_Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]

_ITEM, _NULL, _STRING, _BOOL, _LIST = 0x0A, 0x08, 0x1A, 0x20, 0x32
"""Tags: of a ListValue's item, and of the kinds of google.protobuf.Value."""

_FIELDS = (
    _STRING, _STRING, _STRING, _BOOL, _STRING, _LIST, _LIST, _STRING, _STRING, _STRING, _STRING, _STRING, _BOOL,
)  # fmt: skip
"""Of a data change record."""

_BEHIND = 8
_STRING_FIELDS = tuple(number for number, tag in enumerate(_FIELDS) if tag == _STRING)

_NO_OTHERS = np.array(
    [
        int.from_bytes(bytes((_ITEM, 2, *heartbeats, _ITEM, 2, *children)), "little")
        for heartbeats in ((_LIST, 0), (_NULL, 0))
        for children in ((_LIST, 0), (_NULL, 0))
    ],
    np.uint64,
)
"""The eight bytes behind the array of the data change record: two arrays that are empty or NULL."""

_SHORT = np.array(
    [_ITEM | size << 8 | _STRING << 16 | (size - 2) << 24 if 2 <= size < 0x80 else 0 for size in range(256)], np.uint32
)
"""By its second byte, the first four bytes of an item that is a string, as long as its length is one byte."""

_FLAG = _ITEM | 2 << 8 | _BOOL << 16
_TEXTS = 3
"""Of a mod."""

_TABLED = 1 << 14
_HEADER_BYTES = 8
_LONGEST = (1 << 21) - _HEADER_BYTES
"""What has a header of eight bytes at most is shorter."""

_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_HEADER_BYTES + 1)], np.uint64)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the fields of data change records stand in the joined bytes of their rows.

    By number of the field, and for each row: what a string and a list hold goes from ``starts`` to before ``ends``,
    and a BOOL stands at ``starts``.
    """

    data: bytes
    starts: list[Int64s]
    ends: list[Int64s]

    def texts(self) -> dict[int, pa.Array]:
        """The strings of each field that is one.

        Raises:
            ValueError: one of them is not UTF-8 (Arrow's errors are ValueErrors).
        """
        starts, ends = ([some[field] for field in _STRING_FIELDS] for some in (self.starts, self.ends))
        columns = by_column(self.data, np.stack(starts, axis=1), np.stack(ends, axis=1))
        return dict(zip(_STRING_FIELDS, columns, strict=True))

    def are_filled(self, *fields: int) -> bool:
        """Whether all strings of these fields hold something."""
        return not any(bool((self.starts[field] == self.ends[field]).any()) for field in fields)

    def pieces(self, field: int) -> list[bytes]:
        """What the lists of a field hold."""
        data = self.data
        return [data[s:e] for s, e in zip(self.starts[field].tolist(), self.ends[field].tolist(), strict=True)]

    def flags(self, field: int) -> npt.NDArray[np.bool_]:
        """A field's BOOLs."""
        return np.frombuffer(self.data, np.uint8)[self.starts[field]].astype(np.bool_)


def data_changes(rows: Sequence[bytes]) -> Places | None:
    """Where the fields are of rows, bytes of a google.protobuf.Value, that each are one data change record.

    None where one of them is not, or has other fields than the known ones.

    Raises:
        IndexError: as one that is not.
    """
    lengths = list(map(len, rows))
    openings = list(map(_opening, lengths))
    if not all(openings) or not all(map(bytes.startswith, rows, openings)):
        return None
    joined = b"".join([*rows, PADDING])
    data = np.frombuffer(joined, np.uint8)
    stops = np.cumsum(np.array(lengths, np.int64))
    begin = np.append(0, stops[:-1]) + np.array(list(map(len, openings)), np.int64)
    stops -= _BEHIND
    behind = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))[stops]
    if not bool((behind == _NO_OTHERS[0]).all() or np.isin(behind, _NO_OTHERS).all()):
        return None
    for strings in (_short_strings, _strings):
        places = _fields(joined, data, begin, strings)
        if places is not None:
            # Each field ends behind its start, so that all are within their rows if the last ends where it has to.
            return places if bool((places.starts[-1] + 1 == stops).all()) else None
    return None


def between(data: bytes, starts: Int64s, ends: Int64s, order: Int64s | None = None) -> pa.BinaryArray:
    """The bytes between such places, each of which ends before the next one starts; ``order`` numbers them anew."""
    if not len(starts):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    both = pa.BinaryArray.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return both.take(pa.array(np.arange(0, 2 * len(starts), 2) if order is None else 2 * order))


def by_column(data: bytes, starts: Int64s, ends: Int64s) -> list[pa.Array]:
    """The texts between places in rows and columns, a row after another: an array of strings for each column.

    Raises:
        ValueError: one of them is not UTF-8.
    """
    rows, columns = starts.shape
    order = np.arange(rows * columns).reshape(rows, columns).T.ravel()
    texts = between(data, starts.ravel(), ends.ravel(), order).cast(pa.string())
    return [texts.slice(column * rows, rows) for column in range(columns)]


_Strings = Callable[[_Bytes, npt.NDArray[np.uint32], Int64s], tuple[Int64s, Int64s] | None]
"""Takes where strings are to stand; gives where what they hold starts and ends, or None where one is not there."""


def _fields(joined: bytes, data: _Bytes, at: Int64s, strings: _Strings) -> Places | None:
    words = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))
    starts, ends = [], []
    for tag in _FIELDS:
        if tag == _BOOL:
            found = (at + 3, at + 4) if bool(((words[at] & 0xFEFFFFFF) == _FLAG).all()) else None
        else:
            found = strings(data, words, at) if tag == _STRING else _of_any_length(data, at, tag)
        if found is None:
            return None
        start, at = found
        starts.append(start)
        ends.append(at)
    return Places(joined, starts, ends)


def _short_strings(_: _Bytes, words: npt.NDArray[np.uint32], at: Int64s) -> tuple[Int64s, Int64s] | None:
    found = words[at]
    size = found >> 8 & 0xFF
    return (at + 4, at + 2 + size) if bool((found == _SHORT[size]).all()) else None


def _strings(data: _Bytes, _: npt.NDArray[np.uint32], at: Int64s) -> tuple[Int64s, Int64s] | None:
    return _of_any_length(data, at, _STRING)


def _of_any_length(data: _Bytes, at: Int64s, tag: int) -> tuple[Int64s, Int64s] | None:
    """Where items of one kind start and end that stand at these places; None where one of them does not."""
    size, inner = varints(data, at + 1)
    inside, begin = varints(data, inner + 1)
    known = (data[at] == _ITEM) & (data[inner] == tag) & (inside >= 0) & (begin + inside == inner + size)
    return (begin, begin + inside) if bool(known.all()) else None


def mods(joined: bytes, lists: Int64s, lengths: Int64s) -> tuple[Int64s, Int64s] | None:
    """How many mods each record has, and where each text starts; None where a mod is anything but three strings.

    Args:
        joined: the bytes of all records' google.protobuf.ListValues of mods, with padding behind them.
        lists: how long each of these is.
        lengths: of all strings, as a parser finds them that does not know which mod they are of.

    Raises:
        IndexError: as where a mod is anything else.
    """
    if len(lengths) % _TEXTS:
        return None
    data = np.frombuffer(joined, np.uint8)
    words = np.ndarray(len(data) - _HEADER_BYTES + 1, "<u8", data, strides=(1,))
    headers, sizes = _headers(lengths, _STRING)
    inner = sizes.reshape(-1, _TEXTS).sum(axis=1)
    if int(inner.max(initial=0)) >= _LONGEST:
        return None
    mod_headers, mod_sizes = _headers(inner, _LIST)
    ends, list_ends = np.append(0, np.cumsum(mod_sizes)), np.cumsum(lists)
    last = np.searchsorted(ends, list_ends)
    if not np.array_equal(ends[last], list_ends) or ends[-1] != list_ends[-1]:
        return None
    begin = np.cumsum(sizes) - sizes + np.repeat(np.cumsum(mod_sizes - inner), _TEXTS)
    known = _stand(words, begin, headers, sizes - lengths) and _stand(words, ends[:-1], mod_headers, mod_sizes - inner)
    return (np.diff(last, prepend=0), begin + sizes - lengths) if known else None


def _stand(words: _Words, at: Int64s, headers: _Words, sizes: Int64s) -> bool:
    """Whether these headers, of so many bytes, stand at these places."""
    return bool(((words[at] & _MASKS[sizes]) == headers).all())


def _headers(lengths: Int64s, tag: int) -> tuple[_Words, Int64s]:
    """What stands before contents of these lengths in an item of a list, and the size of the whole items."""
    if not len(lengths) or int(lengths.max()) >= _TABLED:
        return _made(lengths, tag)
    words, sizes = _table(tag)
    return words[lengths], sizes[lengths]


@lru_cache(2)
def _table(tag: int) -> tuple[_Words, Int64s]:
    return _made(np.arange(_TABLED), tag)


def _made(lengths: Int64s, tag: int) -> tuple[_Words, Int64s]:
    inner, digits = _varint(lengths)
    sizes = 1 + digits + lengths
    outer, more = _varint(sizes)
    shift = (8 * (1 + more)).astype(np.uint64)
    words = np.uint64(_ITEM) | outer << np.uint64(8) | (np.uint64(tag) | inner << np.uint64(8)) << shift
    return words, 1 + more + sizes


def _varint(numbers: Int64s) -> tuple[_Words, Int64s]:
    """The bytes of numbers, seven bits a byte, as those of one little-endian number, and how many they are."""
    size = 1 + (numbers >= 1 << 7).astype(np.int64) + (numbers >= 1 << 14) + (numbers >= 1 << 21)
    word = numbers & 0x7F | (numbers & 0x7F << 7) << 1 | (numbers & 0x7F << 14) << 2 | (numbers & 0x7F << 21) << 3
    word |= np.where(size > 1, 0x80, 0) | np.where(size > 2, 0x8000, 0) | np.where(size > 3, 0x800000, 0)
    return word.astype(np.uint64), size


@lru_cache(65536)
def _opening(size: int) -> bytes:
    """What stands before the first field of a row's only record, in a row of so many bytes; nothing if none can."""
    opening = b""
    for level, tag in enumerate((_LIST, _ITEM, _LIST, _ITEM, _LIST, _ITEM, _LIST)):
        if level == 3:  # the array of data change records
            size -= _BEHIND
        header = _header(size, tag)
        if not header:
            return b""
        opening += header
        size -= len(header)
    return opening


def _header(size: int, tag: int) -> bytes:
    """A tag and a length, such that with what they stand before they are so many bytes."""
    for digits in range(1, 5):
        length = size - 1 - digits
        if length >= 0 and max(length.bit_length() - 1, 0) // 7 + 1 == digits:
            more = [length >> 7 * digit & 0x7F | 0x80 for digit in range(digits - 1)]
            return bytes([tag, *more, length >> 7 * (digits - 1)])
    return b""
