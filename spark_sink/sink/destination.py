"""Where the file sink's files go: a file appears there whole or not at all.

A file is begun under its path relative to the root, written in order, and published, which gives it its name; until
then nobody sees it. A replay publishes the same bytes under the same path, which is success, not a conflict.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from connector.storage.locations import in_cloud_storage, with_extra_gcs
from spark_sink.errors import SinkError, refused

_BUFFER = 256 * 1024


class PendingFile(Protocol):
    """A file that nobody sees yet. Every method but ``abandon`` raises SinkError where the destination refuses."""

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""

    def rest(self) -> None:
        """Gives back what it holds open until more is appended; what was appended is safe there."""

    def publish(self) -> None:
        """Gives the file its name, durably. It was told to rest, and nothing is appended any more."""

    def abandon(self) -> None:
        """Leaves nothing of it behind, as well as can be; raises nothing."""


class Destination(Protocol):
    """A root below which files go; paths are relative to it, with slashes, and hold only names that are safe there."""

    def begin(self, path: str) -> PendingFile:
        """Begins a file, and removes what a writer that was killed left of it.

        Raises:
            SinkError: the destination refuses.
        """

    def put(self, path: str, data: bytes) -> None:
        """Makes a small file be there whose path decides its bytes; several writers may do so at once.

        Raises:
            SinkError: the destination refuses.
        """

    def mark_folder(self, path: str) -> None:
        """Makes a folder known to readers that look for folders, before a file in it is published; again does nothing.

        Raises:
            SinkError: the destination refuses.
        """


def destination_at(root: str, endpoint: str = "") -> Destination:
    """The destination that ``sink.path`` names; ``endpoint`` is an emulator's, or empty."""
    if not in_cloud_storage(root):
        return LocalDestination(Path(root))
    with with_extra_gcs(SinkError):
        from spark_sink.sink.gcs_destination import GcsDestination
    return GcsDestination(root, endpoint)


class LocalDestination:
    """A folder of a local disk. A file is written under a temporary name, made durable, and renamed.

    Args:
        root: the folder; it is made when the first file is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, path: str) -> "LocalFile":
        """Begins a file under a temporary name."""
        _sweep(self._root / path)
        return LocalFile(self._root / path)

    def put(self, path: str, data: bytes) -> None:
        """Writes a file unless it is there with these bytes.

        What killed writers left is removed only once it is there: one that is alive finds it, and is content.
        """
        target = self._root / path
        if not _holds(target, data):
            file = LocalFile(target)
            try:
                file.append(data)
                file.rest()
                file.publish()
            except SinkError:
                if not _holds(target, data):
                    raise
            finally:
                file.abandon()
        _sweep(target)

    def mark_folder(self, path: str) -> None:
        """Makes the folder: there a folder is a folder."""
        _make_folder(self._root / path)


class LocalFile:
    """A file under a temporary name beside its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO | None = None
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        _make_folder(path.parent, for_file=path)
        try:
            descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(path, error) from error
        self._stream = os.fdopen(descriptor, "wb", _BUFFER)

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""
        try:
            if self._stream is None:
                # Never made anew: it would hold the tail alone if another writer removed it meanwhile.
                descriptor = os.open(self._temporary, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                self._stream = os.fdopen(descriptor, "ab", _BUFFER)
            self._stream.write(data)
        except OSError as error:
            raise refused(self.path, error) from error

    def rest(self) -> None:
        """Makes what was written durable and gives the descriptor back."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        try:
            with stream:
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise refused(self.path, error) from error

    def publish(self) -> None:
        """Renames it, durably."""
        try:
            self._temporary.replace(self.path)
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused(self.path, error) from error

    def abandon(self) -> None:
        """Removes it."""
        stream, self._stream = self._stream, None
        with suppress(OSError):  # what is left is removed by the next writer of this file
            self._temporary.unlink(missing_ok=True)
        if stream is not None:
            with suppress(OSError):  # the disk that refused a write refuses to flush; the file is gone
                stream.close()


def _make_folder(folder: Path, *, for_file: Path | None = None) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise refused(for_file or folder, error) from error


def _sweep(path: Path) -> None:
    """Removes what a writer of this file that was killed left of it."""
    try:
        for leftover in path.parent.glob(f".{_literal(path.name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
    except OSError as error:
        raise refused(path, error) from error


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False  # then it is written, or refused with its reason


def _literal(name: str) -> str:
    """A name that holds characters which patterns give a meaning."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
