"""The file store on a local disk (:class:`connector.spool.storage.store.FileStore`).

What is being written lies beside its file, under a hidden temporary name. ``create`` never overwrites, which is what
makes a manifest the one place where two daemons meet.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from connector.errors import SpannerCdcError, SpoolInUseError
from connector.spool.storage.local_files import (
    DiskErrors,
    LocalFile,
    inherit_owner,
    is_temporary,
    make_folders,
    remove_leftovers,
    sync_folder,
)
from connector.spool.storage.locations import absolute
from connector.spool.storage.store import StoredFile

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStore:
    """Reads and writes files below a folder; see :class:`connector.spool.storage.store.FileStore`.

    Args:
        root: the folder; it need not exist.
        failure: the error to raise if the disk refuses.
        option: the option that chose ``root``, for hints.
    """

    rewrite_interval = 0.0
    poll_interval = 0.01
    takeover = 0.0

    def __init__(self, root: str | Path, *, failure: type[SpannerCdcError], option: str) -> None:
        self.root = Path(absolute(str(root)))
        self._errors = DiskErrors(failure, option)

    def full(self, path: str = "") -> str:
        """The absolute path of a file; of the root without ``path``."""
        return str(self.root / path)

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file, memory-mapped."""
        target = self.root / path
        with self._errors.on_reading(target):
            if target.stat().st_size == 0:
                return pa.py_buffer(b"")
            with pa.memory_map(str(target)) as mapped:
                return mapped.read_buffer()

    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """The bytes of files in turn."""
        return map(self.read, paths)

    def read_version(self, path: str) -> tuple[bytes, str]:
        """The bytes of a file and their version."""
        target = self.root / path
        with self._errors.on_reading(target), target.open("rb") as file:
            return file.read(), _version(os.fstat(file.fileno()))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A file as a stream."""
        target = self.root / path
        with self._errors.on_reading(target):
            stream = target.open("rb")
        with stream:
            yield stream

    def exists(self, path: str) -> bool:
        """True if there is such a file."""
        target = self.root / path
        with self._errors.on_reading(target):
            return target.exists()

    def find(self, path: str) -> StoredFile | None:
        """A file's size and version; None if there is no such file."""
        target = self.root / path
        try:
            with self._errors.on_reading(target):
                found = target.stat()
        except FileNotFoundError:
            return None
        return StoredFile(path, found.st_size, _version(found))

    def list(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the files in a folder, sorted, without those being written."""
        target = self.root / folder
        try:
            with self._errors.on_reading(target), os.scandir(target) as entries:
                names = [entry.name for entry in entries if not entry.is_dir()]
        except FileNotFoundError:
            return []
        within = (name for name in names if name >= start and (not end or name < end))
        return sorted(name for name in within if not is_temporary(name))

    def walk(self, beginning: str = "") -> Sequence[StoredFile]:
        """Every file at any depth whose path begins with ``beginning``, sorted by path."""

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise self._errors.of("read", error.filename, error) from error

        found = []
        top = self.root / beginning.rpartition("/")[0]
        for folder, _, names in os.walk(top, onerror=refuse):
            within = folder[len(str(self.root)) :].lstrip("/")
            for name in names:
                path = f"{within}/{name}" if within else name  # text: there may be thousands, and a Path costs most
                if path.startswith(beginning) and not is_temporary(name):
                    try:
                        status = os.lstat(f"{folder}/{name}")
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        raise self._errors.of("read", f"{folder}/{name}", error) from error
                    found.append(StoredFile(path, status.st_size, _version(status)))
        return sorted(found, key=lambda file: file.path)

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a new file, durably."""
        file = self._write(path, data)
        try:
            file.link()
        except FileExistsError:
            raise
        except OSError as error:
            raise self._errors.linking(file.path, error) from error
        finally:
            file.abandon()

    def replace(self, path: str, data: bytes | pa.Buffer, *, version: str | None = None) -> None:
        """Writes a file in place of the one that may be there.

        No lock is held between the look at ``version`` and the write: the caller holds the writer's, or the processes
        that write this file at once write the same bytes. An error of the disk is always reported: what the caller does
        next, such as deleting epochs below a new floor, relies on the file.
        """
        if version is not None:
            found = self.find(path)
            if found is None or found.version != version:
                raise FileExistsError(self.full(path))
        file = self._write(path, data)
        try:
            file.publish()
        finally:
            file.abandon()

    def put(self, path: str, data: bytes) -> None:
        """Writes a file unless it is there with these bytes.

        Leftovers of killed writers are removed only once it is there: a writer that is alive and loses its temporary
        file that way finds the file, and succeeds. One that loses it to the sweep of a folder's writer writes it again.
        """
        target = self.root / path
        if not _holds(target, data):
            try:
                self.replace(path, data)
            except SpannerCdcError:
                if not _holds(target, data):
                    self.replace(path, data)
        with self._errors.on_writing(target):
            sync_folder(target.parent)  # another process may have made the file, or the folder, just now
            if target.parent != self.root:
                sync_folder(target.parent.parent)
            remove_leftovers(target)

    def begin(self, path: str) -> LocalFile:
        """Starts a file under a temporary name."""
        target = self._folder(path) / Path(path).name
        with self._errors.on_writing(target):
            remove_leftovers(target)
        return LocalFile(target, self._errors)

    def make_folder(self, path: str) -> None:
        """Makes the folder, durably."""
        with self._errors.on_writing(self.root / path):
            make_folders(self.root / path, self.root)

    def delete(self, *paths: str) -> None:
        """Deletes files; one that is gone already is not an error."""
        for path in paths:
            with self._errors.on_writing(self.root / path), suppress(FileNotFoundError):
                (self.root / path).unlink()

    def delete_version(self, path: str, version: str) -> bool:
        """Deletes a file, durably, if it still has that version; returns whether there is no such file any more."""
        found = self.find(path)
        if found is None or found.version != version:
            return found is None
        target = self.root / path
        with self._errors.on_writing(target):
            target.unlink(missing_ok=True)
            sync_folder(target.parent)
        return True

    def sweep(self, folder: str) -> None:
        """Deletes the temporary files in a folder; only its one writer may call it."""
        target = self.root / folder
        with self._errors.on_writing(target):
            for leftover in target.glob(".*"):
                if is_temporary(leftover.name):
                    leftover.unlink(missing_ok=True)

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[Callable[[], None]]:
        """Holds a file's lock, which the system frees when the process ends; it is never lost before."""
        with self._errors.on_writing(self.root / path):
            folder = self._folder(path)
            descriptor = os.open(folder / Path(path).name, _LOCK_FLAGS, 0o600)
        try:
            found = os.fstat(descriptor)
            if found.st_uid == 0 and found.st_nlink == 1:  # a lock of another user stays that user's
                inherit_owner(descriptor, folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode(errors="replace").strip()
                raise SpoolInUseError(f"{taken} (process {holder or 'unknown'})") from None
            with self._errors.on_writing(self.root / path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield lambda: None
        finally:
            os.close(descriptor)

    def _folder(self, path: str) -> Path:
        folder = (self.root / path).parent
        with self._errors.on_writing(self.root / path):
            make_folders(folder, self.root)
        return folder

    def _write(self, path: str, data: bytes | pa.Buffer) -> LocalFile:
        file = LocalFile(self._folder(path) / Path(path).name, self._errors)
        try:
            file.append(data if isinstance(data, bytes) else memoryview(data))
            file.rest()
        except SpannerCdcError:
            file.abandon()
            raise
        return file


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False  # then it is written, or refused with the reason


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
