"""Files on a local disk that appear whole: a temporary name, fsync, a rename, and fsync of the folder."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from connector.errors import SpannerCdcError, advice

_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class DiskErrors:
    """Translates the system's errors into the store's.

    Args:
        failure: the error to raise.
        option: the option that chose the path, for hints.
    """

    failure: type[SpannerCdcError]
    option: str

    def of(self, access: Literal["read", "write"], path: Path | str, error: OSError) -> SpannerCdcError:
        """The error for a path that cannot be read or written."""
        hint = advice(error, option=self.option, access=access)
        hint = hint or f"Repair the disk, or choose another path with {self.option}."
        return self.failure(f"cannot {access} {path}: {error.strerror or error}", hint=hint)

    def linking(self, path: Path, error: OSError) -> SpannerCdcError:
        """The error for a path that cannot be given to a file that is written already."""
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            return self.of("write", path, error)
        return self.failure(
            f"cannot link {path}: {error.strerror or error}",
            hint=f"Its file system may have no hard links, which are needed: choose another path with {self.option}.",
        )

    @contextmanager
    def on_reading(self, path: Path) -> Iterator[None]:
        """Around system calls that read; FileNotFoundError passes."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.of("read", path, error) from error

    @contextmanager
    def on_writing(self, path: Path) -> Iterator[None]:
        """Around system calls that write."""
        try:
            yield
        except OSError as error:
            raise self.of("write", path, error) from error


class LocalFile:
    """A file under a temporary name beside its own.

    Args:
        path: of the file; its folder exists.
        errors: translates the system's errors.

    Raises:
        SpannerCdcError: from every method but ``abandon`` and ``link``, if the disk refuses.
    """

    def __init__(self, path: Path, errors: DiskErrors) -> None:
        self.path = path
        self._errors = errors
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        self._stream: BinaryIO | None = None
        with errors.on_writing(path):
            descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        inherit_owner(descriptor, path.parent)
        self._stream = os.fdopen(descriptor, "wb", _BUFFER)

    def append(self, data: bytes | memoryview) -> None:
        """Adds bytes at its end."""
        with self._errors.on_writing(self.path):
            if self._stream is None:
                # Without O_CREAT: if another writer has removed the file, a new one would hold only its tail.
                descriptor = os.open(self._temporary, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                self._stream = os.fdopen(descriptor, "ab", _BUFFER)
            self._stream.write(data)

    def rest(self) -> None:
        """Makes what was written durable and closes the descriptor."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        with self._errors.on_writing(self.path), stream:
            stream.flush()
            os.fsync(stream.fileno())

    def publish(self) -> None:
        """Renames it to its own name, durably; replaces what may be there."""
        with self._errors.on_writing(self.path):
            self._temporary.replace(self.path)
            sync_folder(self.path.parent)

    def link(self) -> None:
        """Gives it its own name, durably, only if there is no such file.

        Raises:
            FileExistsError: there is one.
            OSError: the disk refuses.
        """
        os.link(self._temporary, self.path)
        self._temporary.unlink()
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Removes the temporary file."""
        stream, self._stream = self._stream, None
        with suppress(OSError):  # the next writer of this file, or the folder's, removes what is left
            self._temporary.unlink(missing_ok=True)
        if stream is not None:
            with suppress(OSError):  # a disk that refused a write refuses to flush too; the file is gone
                stream.close()


def is_temporary(name: str) -> bool:
    """True if a file of that name is one that is being written, or was when its writer was killed."""
    return name.startswith(".tmp-") or (name.startswith(".") and name.endswith(".tmp"))


def remove_leftovers(path: Path) -> None:
    """Removes the temporary files that killed writers of this file left behind.

    Raises:
        OSError: the disk refuses.
    """
    for leftover in path.parent.glob(f".{_literal(path.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)


def make_folders(folder: Path, root: Path) -> None:
    """Makes a folder and those above it, durably; the root and what is below it are private to their user.

    Their user is the owner of the folder in which they are made (:func:`inherit_owner`).

    Raises:
        OSError: the disk refuses.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700 if one.is_relative_to(root) else 0o777, exist_ok=True)
        _inherit_owner_of_folder(one)
        sync_folder(one.parent)


def inherit_owner(descriptor: int, folder: Path) -> None:
    """Gives what root has made in another user's folder to that user, whose service could not read it otherwise.

    Args:
        descriptor: of the file; it must not have been opened through a link, by which that user would get any file.
        folder: where it is.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # a file system without owners, or one that lets root give nothing away
        owner = folder.stat()
        if owner.st_uid != 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _inherit_owner_of_folder(folder: Path) -> None:
    if os.geteuid() != 0:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        inherit_owner(descriptor, folder.parent)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable.

    Raises:
        OSError: the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _literal(name: str) -> str:
    """A pattern that matches only this name."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
