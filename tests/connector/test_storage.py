import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from connector.errors import SpoolError, SpoolInUseError
from connector.storage import LocalStorage

HOLD_LOCK = """
import sys
from connector.storage import LocalStorage
with LocalStorage(sys.argv[1]).locked("writer.lock", "taken"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "spool")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def files(storage: LocalStorage) -> list[str]:
    return sorted(str(path.relative_to(storage.root)) for path in storage.root.rglob("*") if path.is_file())


def test_what_is_created_is_read(storage: LocalStorage) -> None:
    storage.create("manifests/1.json", b"one")
    assert storage.read("manifests/1.json").to_pybytes() == b"one"
    assert files(storage) == ["manifests/1.json"]


def test_an_empty_file_is_read(storage: LocalStorage) -> None:
    storage.create("empty", b"")
    assert storage.read("empty").to_pybytes() == b""


def test_create_never_overwrites(storage: LocalStorage) -> None:
    storage.create("a", b"one")
    with pytest.raises(FileExistsError):
        storage.create("a", b"two")
    assert storage.read("a").to_pybytes() == b"one"
    assert files(storage) == ["a"]


def test_replace_overwrites(storage: LocalStorage) -> None:
    storage.replace("a", b"one")
    held = storage.read("a")
    storage.replace("a", b"two")
    assert storage.read("a").to_pybytes() == b"two"
    assert held.to_pybytes() == b"one"


def test_files_and_folders_are_private(storage: LocalStorage) -> None:
    storage.create("manifests/1.json", b"one")
    assert (storage.root / "manifests/1.json").stat().st_mode & 0o777 == 0o600
    assert (storage.root / "manifests").stat().st_mode & 0o777 == 0o700


def test_what_is_not_there_is_not_found(storage: LocalStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a")
    assert storage.list("nowhere") == []
    storage.delete("a")
    storage.sweep("nowhere")


def test_a_folder_is_listed_in_order_without_what_is_half_written(storage: LocalStorage) -> None:
    for name in ("b", "a", ".tmp-0"):
        storage.create(f"folder/{name}", b"")
    assert storage.list("folder") == ["a", "b"]


def test_what_killed_writers_left_is_swept(storage: LocalStorage) -> None:
    for name in ("a", ".tmp-0"):
        storage.create(f"folder/{name}", b"")
    storage.sweep("folder")
    assert files(storage) == ["folder/a"]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_file_that_fails_on_its_way_leaves_nothing(
    storage: LocalStorage, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    storage.create("other", b"")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(SpoolError, match="Input/output error") as raised:
        storage.create("a", b"one")
    assert files(storage) == ["other"]
    assert str(storage.root / "a") in str(raised.value)


def test_a_process_that_is_killed_between_writing_and_naming_leaves_no_file(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KilledError):
        storage.replace("folder/a", b"one")
    assert storage.list("folder") == []


def test_a_full_disk_is_told_in_one_line_and_leaves_no_part_of_a_file(tiny: Path) -> None:
    storage = LocalStorage(tiny)
    storage.create("a", b"x" * 30_000)
    for write in (storage.create, storage.replace):
        with pytest.raises(SpoolError, match=r"b: No space left on device\. Free space") as raised:
            write("b", b"x" * 60_000)
        assert "\n" not in str(raised.value)
    assert files(storage) == ["a"]
    storage.create("b", b"it fits")


def test_a_file_that_does_not_fit_leaves_the_one_that_it_would_replace(tiny: Path) -> None:
    storage = LocalStorage(tiny)
    storage.replace("a", b"old")
    with pytest.raises(SpoolError):
        storage.replace("a", b"x" * 100_000)
    assert storage.read("a").to_pybytes() == b"old"


def test_a_read_only_disk_is_told_in_one_line_and_can_be_read(tiny: Path) -> None:
    storage = LocalStorage(tiny)
    storage.create("a", b"one")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    for write in (storage.create, storage.replace):
        with pytest.raises(SpoolError, match=r"Read-only file system\. Give this user write access"):
            write("b", b"two")
    with pytest.raises(SpoolError, match="Read-only file system"):
        storage.delete("a")
    with pytest.raises(SpoolError, match="Read-only file system"), storage.locked("writer.lock", "taken"):
        pytest.fail("a lock was taken")
    assert storage.read("a").to_pybytes() == b"one"


def test_a_lock_is_held_once_and_says_by_whom(storage: LocalStorage) -> None:
    with (
        storage.locked("writer.lock", "it is taken"),
        pytest.raises(SpoolInUseError, match=f"it is taken \\(process {os.getpid()}\\)"),
        storage.locked("writer.lock", "it is taken"),
    ):
        pytest.fail("a lock was taken twice")


def test_a_lock_that_was_given_back_can_be_taken(storage: LocalStorage) -> None:
    for _ in range(2):
        with storage.locked("consumers/a.lock", "taken"):
            pass


def _line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def test_a_lock_is_freed_when_its_process_is_killed(storage: LocalStorage) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(storage.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert _line(holder.stdout) == b"held\n"
        with (
            pytest.raises(SpoolInUseError, match=f"taken \\(process {holder.pid}\\)"),
            storage.locked("writer.lock", "taken"),
        ):
            pytest.fail("a lock was taken twice")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with storage.locked("writer.lock", "taken"):
            pass
