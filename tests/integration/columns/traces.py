"""Looks for values in everything that a run has left behind: each file, and what compressed ones hold."""

import gzip
import os
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

_PADDINGS = 3


def forms(value: bytes) -> Iterator[bytes]:
    """The value as it is, as hexadecimal digits, and in base64, wherever it begins in what is encoded."""
    yield value
    yield value.hex().encode()
    for before in range(_PADDINGS):
        whole = b64encode(b"\0" * before + value)
        yield whole[4 if before else 0 : len(whole) - 4]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file below a folder, decompressed."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        yield path, data
        if path.suffix == ".arrow":
            yield path, repr(pa.ipc.open_file(data).read_all().to_pylist()).encode()
        elif path.suffix == ".gz":
            yield path, gzip.decompress(data)


@contextmanager
def kept_files(folder: Path, kept: Path) -> Iterator[None]:
    """Links each file that appears below a folder into another, where it stays when its owner deletes it."""
    kept.mkdir()
    ended = threading.Event()

    def link() -> None:
        for parent, _, names in os.walk(folder):  # which passes over a folder that is gone
            for path in (Path(parent, name) for name in names):
                with suppress(OSError):  # it is gone
                    target = kept / str(path.stat().st_ino)
                    if path.is_file() and not target.exists():
                        os.link(path, target)

    def link_until_ended() -> None:
        while not ended.wait(0.25):
            link()
        link()  # what has appeared since the last look

    thread = threading.Thread(target=link_until_ended)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def found_in(folder: Path, values: Iterable[bytes]) -> dict[bytes, set[str]]:
    """The files, relative to a folder, that have some form of each value."""
    wanted = {value: list(forms(value)) for value in values}
    found: dict[bytes, set[str]] = {}
    for path, data in contents(folder):
        for value, texts in wanted.items():
            if any(text in data for text in texts):
                found.setdefault(value, set()).add(str(path.relative_to(folder)))
    return found
