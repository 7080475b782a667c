"""Rows on disk, divided by a hash of their keys, so that two sides of any size are compared a bucket at a time.

A bucket that is too large is divided once more, so that memory is bounded whatever the size of either side.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path

import msgspec

from connector.proof.verify.rows import RowChange

BUCKET_BYTES = 16_000_000
"""Bytes of a destination's events that a bucket is meant to hold."""

LEAST_BUCKETS, MOST_BUCKETS = 256, 4096
"""The least is for a destination that lacks most of the rows: Spanner's are divided alike."""

LARGE_BYTES = 32_000_000
"""Bytes of a bucket, of both sides, above which it is divided."""

_HELD_BYTES = 32_000_000
"""Bytes of rows in memory after which all are written."""

_PREFIX = 4

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(list[RowChange])


def buckets_for(size: int) -> int:
    """The number of buckets into which rows of so many bytes are divided."""
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, -(-size // BUCKET_BYTES)))


class Buckets:
    """The rows of one side.

    Args:
        folder: an empty folder.
        count: how many buckets there are; both sides have as many.
        salt: what the hash of a key depends on, so that the keys of one bucket have several in another division.
    """

    def __init__(self, folder: Path, count: int, salt: bytes = b"") -> None:
        self._folder = folder
        self.count = count
        self._salt = salt
        self._held: defaultdict[int, list[RowChange]] = defaultdict(list)
        self._bytes = 0
        folder.mkdir()

    def add(self, row: RowChange, number: int | None = None) -> None:
        """Adds a row to a bucket; without its number to that of its key."""
        if number is None:
            digest = blake2b(f"{row.table}\0{row.key}".encode(), digest_size=4, salt=self._salt).digest()
            number = int.from_bytes(digest) % self.count
        self._held[number].append(row)
        self._bytes += len(row.payload) + len(row.key) + 200
        if self._bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is in memory.

        Raises:
            OSError: the disk is full.
        """
        for number, rows in self._held.items():
            data = _encoder.encode(rows)
            with self._path(number).open("ab") as file:
                file.write(len(data).to_bytes(_PREFIX))
                file.write(data)
        self._held.clear()
        self._bytes = 0

    def rows(self, number: int) -> Iterator[RowChange]:
        """The rows of a bucket, in the order in which they were added."""
        try:
            with self._path(number).open("rb") as file:
                while prefix := file.read(_PREFIX):
                    yield from _decoder.decode(file.read(int.from_bytes(prefix)))
        except FileNotFoundError:
            return

    def size(self, number: int) -> int:
        """The bytes of a bucket on disk."""
        path = self._path(number)
        return path.stat().st_size if path.exists() else 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:04}"


Rows = Callable[[], Iterator[RowChange]]


def parts_of(one: Buckets, other: Buckets, number: int, folder: Path) -> Iterator[tuple[Rows, Rows]]:
    """A bucket of two sides, or its parts if it is too large: each holds all rows of its keys.

    Args:
        one: a side.
        other: the other side.
        number: the bucket.
        folder: an existing folder, for the parts of one bucket at a time.

    Raises:
        OSError: the disk is full.
    """
    size = one.size(number) + other.size(number)
    if size <= LARGE_BYTES:
        yield partial(one.rows, number), partial(other.rows, number)
        return
    count = max(2, min(MOST_BUCKETS, -(-size // BUCKET_BYTES)))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        sides = []
        for name, side in (("one", one), ("other", other)):
            parts = Buckets(Path(place, name), count, b"part")
            for row in side.rows(number):
                parts.add(row)
            parts.flush()
            sides.append(parts)
        first, second = sides
        for part in range(count):
            yield partial(first.rows, part), partial(second.rows, part)
