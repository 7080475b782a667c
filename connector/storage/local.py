"""Where a spool's files lie: what a storage promises, and the one on a local disk.

A file appears whole or not at all. ``create`` never overwrites, which is what makes a manifest the one place where
two daemons meet; ``update`` overwrites what its caller knows; ``replace`` is for what has one owner. Files are durable
when a call returns, and on a local disk private to their user. The other storage is
:class:`connector.storage.gcs.GcsStorage`.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from connector.errors import SpoolError, SpoolInUseError

_TEMPORARY = ".tmp-"


class Storage(Protocol):
    """What a spool needs of the place where its files lie; :class:`LocalStorage` says what each method does."""

    @property
    def rewrite_interval(self) -> float:
        """Seconds that should lie between two writes of one file."""

    @property
    def poll_interval(self) -> float:
        """Seconds that should lie between two looks at what is new."""

    @property
    def takeover(self) -> float:
        """Seconds after which the lock of a process that was killed is free."""

    def full(self, path: str = "") -> str: ...  # noqa: D102
    def create(self, path: str, data: bytes | pa.Buffer) -> None: ...  # noqa: D102
    def replace(self, path: str, data: bytes | pa.Buffer) -> None: ...  # noqa: D102
    def update(self, path: str, before: bytes | None, data: bytes) -> None: ...  # noqa: D102
    def read(self, path: str) -> pa.Buffer: ...  # noqa: D102
    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]: ...  # noqa: D102
    def exists(self, path: str) -> bool: ...  # noqa: D102
    def list(self, folder: str, start: str = "", end: str = "") -> list[str]: ...  # noqa: D102
    def delete(self, *paths: str) -> None: ...  # noqa: D102
    def sweep(self, folder: str) -> None: ...  # noqa: D102
    def locked(self, path: str, taken: str) -> AbstractContextManager[Callable[[], None]]: ...  # noqa: D102


class LocalStorage:
    """Files below a folder, named by relative paths with forward slashes.

    Raises:
        SpoolError: from every method, where the disk refuses (full, read-only, no permission), with the path.
    """

    rewrite_interval = 0.0
    poll_interval = 0.01
    takeover = 0.0

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    def full(self, path: str = "") -> str:
        """A file's path on this machine; without a path, the folder's."""
        return str(self.root / path)

    def create(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a new file, whole and durable.

        Raises:
            FileExistsError: there is one already; it is left as it is.
        """
        with self._faults(path):
            temporary = self._write(path, data)
            try:
                os.link(temporary, self.root / path)
            finally:
                temporary.unlink()
            self._sync_folder(path)

    def replace(self, path: str, data: bytes | pa.Buffer) -> None:
        """Writes a file, in place of the one that may be there; readers see the one or the other."""
        with self._faults(path):
            self._write(path, data).replace(self.root / path)
            self._sync_folder(path)

    def update(self, path: str, before: bytes | None, data: bytes) -> None:
        """Writes a file in place of one with the bytes ``before``, or of none; the writer's lock is held meanwhile.

        Raises:
            FileExistsError: something else is there, or nothing any more; it is left as it is.
        """
        if contents(self, path) != before:
            raise FileExistsError(self.full(path))
        self.replace(path, data)

    def read(self, path: str) -> pa.Buffer:
        """The bytes of a file, memory-mapped.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._faults(path):
            target = self.root / path
            if target.stat().st_size == 0:
                return pa.py_buffer(b"")
            with pa.memory_map(str(target)) as mapped:
                return mapped.read_buffer()

    def read_each(self, paths: Iterable[str]) -> Iterator[pa.Buffer]:
        """The bytes of files in turn; see :meth:`read`."""
        return map(self.read, paths)

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        with self._faults(path):
            return (self.root / path).exists()

    def list(self, folder: str, start: str = "", end: str = "") -> list[str]:
        """The names of the files in a folder, sorted; empty where there is no such folder.

        Only names from ``start`` on, inclusive, and before ``end``, exclusive, where these are given.
        """
        with self._faults(folder):
            try:
                names = os.listdir(self.root / folder)  # noqa: PTH208 - a path a file is slow where there are 100,000
            except FileNotFoundError:
                return []
            kept = (name for name in names if name >= start and (not end or name < end))
            return sorted(name for name in kept if not name.startswith(_TEMPORARY))

    def delete(self, *paths: str) -> None:
        """Deletes files; one that is gone already is no error."""
        for path in paths:
            with self._faults(path), suppress(FileNotFoundError):
                (self.root / path).unlink()

    def sweep(self, folder: str) -> None:
        """Deletes what writers that were killed left half-written in a folder; only its one writer may call it."""
        with self._faults(folder):
            for leftover in (self.root / folder).glob(f"{_TEMPORARY}*"):
                leftover.unlink(missing_ok=True)

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[Callable[[], None]]:
        """Holds a file's lock, which the system frees when the process dies, however it dies.

        Gives what raises SpoolInUseError once the lock was lost, for those who do not write here; this one never is.

        Raises:
            SpoolInUseError: another process holds it; the message is ``taken`` and who that is.
        """
        with self._faults(path):
            self._folder(path)
            descriptor = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode(errors="replace").strip()
                raise SpoolInUseError(f"{taken} (process {holder or 'unknown'})") from None
            with self._faults(path):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield lambda: None
        finally:
            os.close(descriptor)

    def _folder(self, path: str) -> Path:
        folder = (self.root / path).parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(folder.parent)
        return folder

    def _write(self, path: str, data: bytes | pa.Buffer) -> Path:
        temporary = self._folder(path) / f"{_TEMPORARY}{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _sync_folder(self, path: str) -> None:
        _sync((self.root / path).parent)

    @contextmanager
    def _faults(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError as error:
            raise SpoolError(f"cannot use {self.root / path}: {_reason(error)}", hint=_way_out(error)) from error


def contents(storage: Storage, path: str) -> bytes | None:
    """The bytes of a small file, or None where there is none: what :meth:`LocalStorage.update` compares."""
    try:
        data: bytes = storage.read(path).to_pybytes()
    except FileNotFoundError:
        return None
    return data


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _way_out(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "Free space on that disk and start again: nothing is lost, reading goes on from the last epoch."
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return "Give this user write access to that path, or choose another with spool.path."
        case _:
            return "Repair the disk, or choose another path with spool.path."
