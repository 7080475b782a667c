"""Rows on disk, divided by a hash of their keys, so that two sides of any size are compared a bucket at a time."""

from collections import defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from connector.verify.rows import RowChange

BUCKET_BYTES = 16_000_000
"""Bytes of a destination's events that a bucket is meant to hold."""

LEAST_BUCKETS, MOST_BUCKETS = 256, 4096
"""The least is for a destination that lacks most of the rows: Spanner's are divided alike."""

_HELD_BYTES = 32_000_000
"""Bytes of rows in memory after which all are written."""

_PREFIX = 4

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(list[RowChange])


def buckets_for(size: int) -> int:
    """How many buckets rows of so many bytes are divided into."""
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, -(-size // BUCKET_BYTES)))


class Buckets:
    """The rows of one side.

    Args:
        folder: an empty folder.
        count: how many buckets there are; both sides have as many.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.count = count
        self._held: defaultdict[int, list[RowChange]] = defaultdict(list)
        self._bytes = 0
        folder.mkdir()

    def add(self, row: RowChange, number: int | None = None) -> None:
        """Adds a row to a bucket; without its number to that of its key."""
        if number is None:
            digest = blake2b(f"{row.table}\0{row.key}".encode(), digest_size=4).digest()
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

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:04}"
