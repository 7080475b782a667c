"""The file sink's files in Cloud Storage: each is one object, which appears whole or not at all.

What is pending lies on the executor's disk, in one temporary file without a name: whatever kills the process, the
system frees it. Publishing uploads it from there, in chunks if it is large, with a guard: it replaces nothing. An
object that is there already is a success if it holds the same bytes, by its checksum, and an error if not.
"""

import io
import os
import tempfile
from contextlib import suppress
from typing import IO

import google_crc32c

from connector.storage.bucket import PATIENCE, Bucket
from spark_sink.errors import SinkError

_BUFFER = 256 * 1024
"""Bytes of a file that are in memory before they go to the disk."""

_LARGE = 8 * 1024 * 1024
"""Bytes of a file from which on it is worth a question whether it is there already."""


class GcsDestination:
    """Objects below ``gs://bucket/prefix``; each folder is known by an object of its name and a slash.

    Args:
        url: ``gs://bucket/prefix``.
        endpoint: an emulator's address, or empty.
        patience: seconds for which what may pass by itself is retried.
    """

    def __init__(self, url: str, endpoint: str = "", *, patience: float = PATIENCE) -> None:
        self._bucket = Bucket(url, failure=SinkError, option="sink.path", endpoint=endpoint or None, patience=patience)
        self._scratch = _Scratch()

    def begin(self, path: str) -> "GcsFile":
        """Begins a file; a writer that was killed has left nothing of it."""
        return GcsFile(self._bucket, self._scratch, path)

    def put(self, path: str, data: bytes) -> None:
        """Uploads a small file unless it is there with these bytes; an older program's is replaced."""
        found = self._bucket.find(path)
        checksum = google_crc32c.value(data)
        if found is None or (found.size, found.crc32c) != (len(data), f"{checksum:08x}"):
            self._bucket.put(path, data)

    def mark_folder(self, path: str) -> None:
        """Creates the folder's object, without which Dataflow's reader does not find the files."""
        with suppress(FileExistsError):
            self._bucket.put(f"{path}/", b"", generation=0)


class GcsFile:
    """A file that lies on this machine until it is uploaded."""

    def __init__(self, bucket: Bucket, scratch: "_Scratch", path: str) -> None:
        self._bucket = bucket
        self._scratch = scratch
        self._path = path
        self._buffer = bytearray()
        self._extents: list[_Extent] = []
        self._checksum = 0
        self._size = 0
        self._held = True
        scratch.hold()

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self.rest()

    def rest(self) -> None:
        """Gives its memory back."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        self._checksum = google_crc32c.extend(self._checksum, data)
        self._extents.append(_Extent(self._size, len(data), self._scratch.write(data)))
        self._size += len(data)

    def publish(self) -> None:
        """Uploads it.

        Raises:
            SinkError: Cloud Storage refuses, or another file of that name is there.
        """
        if self._size < _LARGE or not self._is_there():
            file = io.BufferedReader(_Pieces(self._scratch, self._extents, self._size))
            try:
                self._bucket.upload(self._path, file, self._size, generation=0)
            except FileExistsError:
                if not self._is_there():
                    raise SinkError(
                        f"{self._bucket.url}/{self._path} came and went while it was written",
                        hint="Find out who else writes there, and run it again.",
                    ) from None
        self.abandon()

    def abandon(self) -> None:
        """Leaves nothing of it on this machine."""
        self._buffer.clear()
        self._extents.clear()
        if self._held:
            self._held = False
            self._scratch.let_go()

    def _is_there(self) -> bool:
        found = self._bucket.find(self._path)
        if found is None:
            return False
        if (found.size, found.crc32c) != (self._size, f"{self._checksum:08x}"):
            raise SinkError(
                f"{self._bucket.url}/{self._path} is there already, with other bytes",
                hint="The sink never overwrites: move that object away if something else wrote it, and run it again.",
            )
        return True


class _Extent:
    """Some bytes of a file, and where they lie."""

    __slots__ = ("at", "first", "size")

    def __init__(self, first: int, size: int, at: int) -> None:
        self.first = first
        self.size = size
        self.at = at


class _Scratch:
    """A temporary file without a name that pending files share; it is emptied when none is left."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0
        self._pending = 0

    def hold(self) -> None:
        """One more file lies here."""
        self._pending += 1

    def let_go(self) -> None:
        """One file less lies here."""
        self._pending -= 1
        if self._pending == 0 and self._file is not None:
            self._file.close()
            self._file, self._size = None, 0

    def write(self, data: bytes) -> int:
        """Adds bytes at the end; returns where they lie."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="spanner-cdc-", buffering=0)  # noqa: SIM115
            at = self._size
            while data:
                written = os.pwrite(self._file.fileno(), data, self._size)
                self._size += written
                data = data[written:]
        except OSError as error:
            raise SinkError(
                f"cannot write to the temporary folder {tempfile.gettempdir()}: {error.strerror or error}",
                hint="Free space there, or set TMPDIR to a folder that holds a minute of files, and run it again.",
            ) from error
        return at

    def read(self, at: int, size: int) -> bytes:
        """Bytes from a place on."""
        assert self._file is not None
        return os.pread(self._file.fileno(), size, at)


class _Pieces(io.RawIOBase):
    """Reads a file out of its extents."""

    def __init__(self, scratch: _Scratch, extents: list[_Extent], size: int) -> None:
        self._scratch = scratch
        self._extents = extents
        self._size = size
        self._at = 0
        self._index = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is: an upload that broke off goes on from where the server has it."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Goes to a place."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._index = 0
        return self._at

    def readinto(self, buffer: object) -> int:
        """Reads the next bytes; no more than one extent's."""
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
