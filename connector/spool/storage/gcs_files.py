"""Files on their way into Cloud Storage: each is one object, which appears whole or not at all.

Pending files lie on this machine's disk, in one temporary file without a name: whatever kills the process, the system
frees it. Publishing uploads a file from there, in chunks if it is large, with the precondition that there is no such
object. An object that is there with the same bytes, by its checksum, is a success; with other bytes it is an error.
"""

import errno
import io
import os
import tempfile
from typing import IO, NamedTuple

import google_crc32c

from connector.errors import SpannerCdcError, advice
from connector.spool.storage.bucket import Bucket

_BUFFER = 256 * 1024
"""Bytes of a file that are in memory before they go to the disk."""

_ROOM = "Free space there, or set TMPDIR to a folder that holds a minute of files, and run it again."

_LARGE = 8 * 1024 * 1024
"""Bytes of a file from which on it is worth a request to learn whether it is there already."""


class GcsFile:
    """A file that lies on this machine until it is uploaded.

    Args:
        bucket: where it goes.
        scratch: where it lies meanwhile.
        path: relative to the bucket's prefix.
        failure: the error to raise.

    Raises:
        SpannerCdcError: ``failure``, from every method but ``abandon``.
    """

    def __init__(self, bucket: Bucket, scratch: "Scratch", path: str, failure: type[SpannerCdcError]) -> None:
        self._bucket = bucket
        self._scratch = scratch
        self._path = path
        self._failure = failure
        self._buffer = bytearray()
        self._extents: list[_Extent] = []
        self._checksum = 0
        self._size = 0
        self._holds_scratch = True
        scratch.acquire()

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self.rest()

    def rest(self) -> None:
        """Writes its memory to the disk."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        self._checksum = google_crc32c.extend(self._checksum, data)
        self._extents.append(_Extent(self._size, len(data), self._scratch.write(data)))
        self._size += len(data)

    def publish(self) -> None:
        """Uploads it.

        Raises:
            SpannerCdcError: Cloud Storage refuses, or another file of that name is there.
        """
        if self._size < _LARGE or not self._is_there():
            file = io.BufferedReader(_ExtentReader(self._scratch, self._extents, self._size))
            try:
                self._bucket.upload(self._path, file, self._size, generation=0)
            except FileExistsError:
                if not self._is_there():
                    raise self._failure(
                        f"{self._bucket.url}/{self._path} was written and deleted by another program during the upload",
                        hint="Find out what else writes there, and run it again.",
                    ) from None
        self.abandon()

    def abandon(self) -> None:
        """Frees its place on this machine."""
        self._buffer.clear()
        self._extents.clear()
        if self._holds_scratch:
            self._holds_scratch = False
            self._scratch.release()

    def _is_there(self) -> bool:
        found = self._bucket.find(self._path)
        if found is None:
            return False
        if (found.size, found.crc32c) != (self._size, f"{self._checksum:08x}"):
            raise self._failure(
                f"{self._bucket.url}/{self._path} is there already, with other bytes",
                hint="The sink never overwrites: move that object away if something else wrote it, and run it again.",
            )
        return True


class _Extent(NamedTuple):
    """Some bytes of a file: ``first`` is their offset in the file, ``at`` their offset in the temporary file."""

    first: int
    size: int
    at: int


class Scratch:
    """A temporary file without a name that pending files share; it is emptied when none is left.

    Args:
        failure: the error to raise if the disk refuses.
    """

    def __init__(self, failure: type[SpannerCdcError]) -> None:
        self._failure = failure
        self._file: IO[bytes] | None = None
        self._size = 0
        self._pending = 0

    def acquire(self) -> None:
        """Counts one more pending file."""
        self._pending += 1

    def release(self) -> None:
        """Counts one pending file less."""
        self._pending -= 1
        if self._pending == 0 and self._file is not None:
            self._file.close()
            self._file, self._size = None, 0

    def write(self, data: bytes) -> int:
        """Adds bytes at the end; returns their offset."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="spanner-cdc-", buffering=0)  # noqa: SIM115
            at = self._size
            while data:
                written = os.pwrite(self._file.fileno(), data, self._size)
                self._size += written
                data = data[written:]
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise self._failure(
                f"cannot write to the temporary folder {_temporary_folder()}: {error.strerror or error}",
                hint=_ROOM if is_full else advice(error, option="TMPDIR", access="write") or _ROOM,
            ) from error
        return at

    def read(self, at: int, size: int) -> bytes:
        """At most ``size`` bytes from offset ``at`` on."""
        assert self._file is not None
        return os.pread(self._file.fileno(), size, at)


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - a name in a message


class _ExtentReader(io.RawIOBase):
    """Reads a file from its extents."""

    def __init__(self, scratch: Scratch, extents: list[_Extent], size: int) -> None:
        self._scratch = scratch
        self._extents = extents
        self._size = size
        self._at = 0
        self._index = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True: an upload that broke off continues from the offset that the server has."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to an offset."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._index = 0
        return self._at

    def readinto(self, buffer: object) -> int:
        """Reads the next bytes, of one extent at most."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while self._index < len(self._extents):
            extent = self._extents[self._index]
            skip = self._at - extent.first
            if skip < extent.size:
                data = self._scratch.read(extent.at + skip, min(len(view), extent.size - skip))
                view[: len(data)] = data
                self._at += len(data)
                return len(data)
            self._index += 1
        return 0
