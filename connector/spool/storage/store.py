"""The file store: what the spool, the sinks, the dead letters and the reading back need of the place of their files.

There are two: :class:`connector.spool.storage.local.LocalStore` on a disk and
:class:`connector.spool.storage.gcs.GcsStore` in Cloud Storage; :func:`connector.spool.storage.opening.open_store` opens
the one that a path names. Files are named by paths relative to the store's root, with forward slashes. A file appears
whole or not at all, and it is durable when the call returns. On a local disk files and folders are private to their
user.

Every method raises the error class that the store was opened with if the disk or Cloud Storage refuses; the message
names the path. FileExistsError and FileNotFoundError stand for themselves where a method lists them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when the store looked it up.

    Attributes:
        path: relative to the store's root.
        size: in bytes.
        version: changes whenever the file is written: an object's generation; a local file's inode, size and time.
    """

    path: str
    size: int
    version: str


class PendingFile(Protocol):
    """A file that is being written in order, and that is not visible until it is published."""

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""

    def rest(self) -> None:
        """Releases memory and descriptors until more is appended; what was appended so far is safe."""

    def publish(self) -> None:
        """Gives the file its name, durably. Call :meth:`rest` first; nothing may be appended afterwards."""

    def abandon(self) -> None:
        """Removes what was written, as well as it can; raises nothing. After :meth:`publish` it does nothing."""


class FileReader(Protocol):
    """Reads the files of a store."""

    def full(self, path: str = "") -> str:
        """The absolute path or URL of a file; of the root without ``path``."""

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file; memory-mapped on a local disk.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """The bytes of files in the order of ``paths``; Cloud Storage is read in parallel.

        Raises:
            FileNotFoundError: when the turn comes to a file that is not there.
        """

    def read_version(self, path: str) -> tuple[bytes, str]:
        """The bytes of a file and their version (:attr:`StoredFile.version`).

        Raises:
            FileNotFoundError: there is no such file.
        """

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file as a stream that can seek; Cloud Storage's is downloaded first, into a temporary file.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def exists(self, path: str) -> bool:
        """True if there is such a file."""

    def find(self, path: str) -> StoredFile | None:
        """A file's size and version; None if there is no such file."""

    def list(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the files in a folder, sorted, without those being written; empty if there is no folder.

        Args:
            folder: relative to the root.
            start: the first name, inclusive; empty for no bound.
            end: the end of the names, exclusive; empty for no bound.
        """

    def walk(self, beginning: str = "") -> Sequence[StoredFile]:
        """Every file at any depth whose path begins with ``beginning``, sorted by path, without those being written."""


class FileStore(FileReader, Protocol):
    """Reads and writes the files of a store."""

    @property
    def rewrite_interval(self) -> float:
        """Seconds that should pass between two writes of one file."""

    @property
    def poll_interval(self) -> float:
        """Seconds that should pass between two looks for new files."""

    @property
    def takeover(self) -> float:
        """Seconds after which the lock of a process that was killed is free."""

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a new file.

        Raises:
            FileExistsError: there is one already, which is left unchanged. In Cloud Storage it may be this caller's
                own, if the first answer was lost.
        """

    def replace(self, path: str, data: bytes | pa.Buffer, *, version: str | None = None) -> None:
        """Writes a file in place of the one that may be there; readers see either the old or the new one.

        Args:
            path: of the file.
            data: its bytes.
            version: of the file to replace; None replaces whatever is there, or nothing.

        Raises:
            FileExistsError: the file has another version, or it is gone. In Cloud Storage it may be this caller's own
                write, if the first answer was lost.
        """

    def put(self, path: str, data: bytes) -> None:
        """Writes a file unless it is there with these bytes; several processes may do so at once."""

    def begin(self, path: str) -> PendingFile:
        """Starts a file, and removes what a writer of this file left behind when it was killed."""

    def make_folder(self, path: str) -> None:
        """Creates a folder for readers that look for folders (Dataflow's do); repeating it has no effect."""

    def delete(self, *paths: str) -> None:
        """Deletes files; one that is gone already is not an error."""

    def delete_version(self, path: str, version: str) -> bool:
        """Deletes a file if it still has that version; returns whether there is no such file any more."""

    def sweep(self, folder: str) -> None:
        """Deletes unfinished files that killed writers left in a folder; only the folder's one writer may call it."""

    def locked(self, path: str, taken: str) -> AbstractContextManager[Callable[[], None]]:
        """Holds a lock for this process; it is freed when the process ends, however it ends.

        The context's value is a function that raises SpoolInUseError once the lock is lost.

        Args:
            path: the lock's file.
            taken: the message if another process holds it; the holder is added.

        Raises:
            SpoolInUseError: another process holds it.
        """


def contents(store: FileReader, path: str) -> bytes | None:
    """The bytes of a small file, or None if there is no such file."""
    try:
        data: bytes = store.read(path).to_pybytes()
    except FileNotFoundError:
        return None
    return data


def update(store: FileStore, path: str, before: bytes | None, data: bytes) -> None:
    """Writes a file only in place of one with the bytes ``before``, or of none if that is None.

    In Cloud Storage a generation precondition guards it; on a local disk the caller holds the writer's lock.

    Raises:
        FileExistsError: something else is there, or nothing any more; it is left unchanged.
    """
    try:
        held, version = store.read_version(path)
    except FileNotFoundError:
        held, version = None, ""
    if held != before:
        raise FileExistsError(store.full(path))
    try:
        if held is None:
            store.create(path, data)
        else:
            store.replace(path, data, version=version)
    except FileExistsError:
        if contents(store, path) != data:  # else it is this caller's own write, whose answer was lost
            raise
