"""Breakages of storage: the disks and the buckets of the spool and of the sink's files."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests import cloud_storage
from tests.breakages.breakage import Breakage, Scene
from tests.breakages.source import delivering, reading
from tests.cloud_storage import CloudStorage, Fault, Proxy

_MB = 1_000_000
_ONE_SERVER = threading.Lock()
"""An environment variable has the server's address."""


def mount(*arguments: str) -> bool:
    """Runs ``mount``; returns whether it succeeded."""
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    """A disk of its own of 64 MB."""
    folder.mkdir()
    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)):
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(folder: Path) -> None:
    """Writes a file that takes all space."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(_MB // 16))
        except OSError:
            return


def _make_read_only(folder: Path) -> None:
    """Remounts a disk, which is refused while a file on it is open for writing."""
    while not mount("-o", "remount,ro", str(folder)):
        time.sleep(0.02)


@contextmanager
def _full_spool_disk(folder: Path) -> Iterator[Scene]:
    with _disk(folder / "disk") as disk:
        path = disk / "spool"
        path.mkdir()
        with reading(
            folder,
            breaks=lambda *_: _fill(disk),
            ready=lambda service: service.is_ready() and any(path.glob("manifests/*")),
            sections={"spool": {"path": str(path)}},
        ) as scene:
            yield scene


@contextmanager
def _read_only_sink(folder: Path) -> Iterator[Scene]:
    with (
        _disk(folder / "events") as disk,
        delivering(folder, lambda: _make_read_only(disk)) as scene,
    ):
        yield scene


@contextmanager
def _spool_bucket(folder: Path) -> Iterator[Scene]:
    """The spool is in a bucket, which is deleted."""
    with _ONE_SERVER, cloud_storage.serving() as server:
        bucket = server.new_bucket()
        sections = {"spool": {"path": f"{bucket}/spool"}}
        with reading(folder, breaks=lambda *_: server.delete_bucket(bucket), sections=sections) as scene:
            yield scene


@contextmanager
def _sink_bucket(folder: Path, *, breaks: Callable[[CloudStorage, str, Proxy], object]) -> Iterator[Scene]:
    """The sink's files are in a bucket, behind a proxy."""
    with _ONE_SERVER, cloud_storage.serving() as server, cloud_storage.proxied(server) as proxy:
        bucket = server.new_bucket()
        with delivering(folder, lambda: breaks(server, bucket, proxy), sink={"path": f"{bucket}/sink"}) as scene:
            yield scene


def _gone(name: str, scene: Callable[[Path], AbstractContextManager[Scene]], of: str) -> Breakage:
    done = f"The bucket {of} is deleted with everything in it."
    return Breakage(name, done, "there is no bucket", scene, code=1)


BREAKAGES = (
    Breakage(
        "The spool's disk is full",
        "A file of another program takes all space that is left.",
        "No space left on device",
        _full_spool_disk,
        code=1,
        short=True,
    ),
    Breakage(
        "The sink's folder is read-only",
        "The disk of the files is remounted read-only.",
        "Read-only file system",
        _read_only_sink,
        code=1,
    ),
    _gone("The spool's bucket is gone", _spool_bucket, "of the spool"),
    _gone(
        "The sink's bucket is gone",
        partial(_sink_bucket, breaks=lambda server, bucket, _: server.delete_bucket(bucket)),
        "of the files",
    ),
    Breakage(
        "The sink's bucket answers with errors",
        "Every request of the sink is answered with 503.",
        "503 Service Unavailable",
        partial(_sink_bucket, breaks=lambda *between: between[2].faults.append(Fault(status=503))),
        named=frozenset({"sink_failing"}),
    ),
)
