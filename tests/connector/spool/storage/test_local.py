"""The storage on a local disk, beside what every storage promises (test_storage_contract)."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connector.errors import SpoolError
from connector.spool.reading import Spool, schema_path
from connector.spool.storage import local_files
from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import DiskErrors, LocalFile
from connector.spool.writing import initialize
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, SINGERS


@pytest.fixture
def storage(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "spool", failure=SpoolError, option="spool.path")


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


def files(storage: LocalStore) -> list[str]:
    return sorted(str(path.relative_to(storage.root)) for path in storage.root.rglob("*") if path.is_file())


def test_writing_leaves_only_files(storage: LocalStore) -> None:
    storage.create("a", b"one")
    storage.replace("b", b"two")
    with pytest.raises(FileExistsError):
        storage.create("a", b"three")
    assert files(storage) == ["a", "b"]


def test_files_and_folders_are_private(storage: LocalStore) -> None:
    storage.create("manifests/1.json", b"one")
    assert (storage.root / "manifests/1.json").stat().st_mode & 0o777 == 0o600
    assert (storage.root / "manifests").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for another user")
def test_what_root_makes_in_another_users_spool_belongs_to_that_user(storage: LocalStore) -> None:
    storage.root.mkdir()
    os.chown(storage.root, 65534, 65533)
    storage.create("manifests/1.json", b"one")
    storage.put("consumers/a/b.json", b"one")
    storage.replace("state.json", b"one")
    storage.make_folder("segments")
    with storage.locked("lock", "it runs"):
        pass
    made = [path.lstat() for path in storage.root.rglob("*")]
    assert len(made) == 8
    assert {(one.st_uid, one.st_gid) for one in made} == {(65534, 65533)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for another user")
def test_a_lock_of_a_third_user_stays_that_users(storage: LocalStore) -> None:
    storage.root.mkdir()
    os.chown(storage.root, 65534, 65533)
    (storage.root / "lock").touch()
    os.chown(storage.root / "lock", 1234, 1233)
    with storage.locked("lock", "it runs"):
        pass
    found = (storage.root / "lock").stat()
    assert (found.st_uid, found.st_gid) == (1234, 1233)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for another user")
def test_a_link_in_another_users_spool_gives_that_user_nothing(storage: LocalStore, tmp_path: Path) -> None:
    storage.root.mkdir()
    os.chown(storage.root, 65534, 65534)
    precious = tmp_path / "precious"
    precious.write_bytes(b"all of it")
    (storage.root / "symbolic").symlink_to(precious)
    (storage.root / "hard").hardlink_to(precious)
    with pytest.raises(SpoolError, match="cannot write"), storage.locked("symbolic", "it runs"):
        pass
    with storage.locked("hard", "it runs"):
        pass
    assert precious.stat().st_uid == 0


def test_folders_below_the_root_are_private_however_deep(storage: LocalStore) -> None:
    file = storage.begin("a/b/c")
    file.rest()
    file.publish()
    assert [(storage.root / path).stat().st_mode & 0o777 for path in ("", "a", "a/b", "a/b/c")] == [0o700] * 3 + [0o600]


def test_a_temporary_file_of_an_older_program_is_not_listed_and_swept(storage: LocalStore) -> None:
    storage.create("folder/a", b"")
    (storage.root / "folder/.tmp-0123").write_bytes(b"half")
    (storage.root / "folder/.a.0123.tmp").write_bytes(b"half")
    assert storage.list("folder") == ["a"]
    assert [file.path for file in storage.walk()] == ["folder/a"]
    storage.sweep("folder")
    assert files(storage) == ["folder/a"]


def test_a_folder_is_listed_in_order_without_what_is_half_written(storage: LocalStore) -> None:
    for name in ("b", "a", ".tmp-0"):
        storage.create(f"folder/{name}", b"")
    assert storage.list("folder") == ["a", "b"]


def test_what_killed_writers_left_is_swept(storage: LocalStore) -> None:
    for name in ("a", ".tmp-0"):
        storage.create(f"folder/{name}", b"")
    storage.sweep("folder")
    assert files(storage) == ["folder/a"]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_file_that_fails_on_its_way_leaves_nothing(
    storage: LocalStore, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    storage.create("other", b"")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(SpoolError, match="Input/output error") as raised:
        storage.create("a", b"one")
    assert files(storage) == ["other"]
    assert str(storage.root / "a") in str(raised.value)


def test_a_file_system_without_hard_links_is_named_as_the_cause(
    storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(SpoolError, match=r"a: Operation not permitted\. Its file system may have no hard links"):
        storage.create("a", b"one")
    assert files(storage) == []


def test_a_process_that_is_killed_between_writing_and_naming_leaves_no_file(
    storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KilledError):
        storage.replace("folder/a", b"one")
    assert storage.list("folder") == []


def test_a_full_disk_is_one_line_and_leaves_no_part_of_a_file(tiny: Path) -> None:
    storage = LocalStore(tiny, failure=SpoolError, option="spool.path")
    storage.create("a", b"x" * 30_000)
    for write in (storage.create, storage.replace):
        with pytest.raises(SpoolError, match=r"b: No space left on device\. Free space") as raised:
            write("b", b"x" * 60_000)
        assert "\n" not in str(raised.value)
    assert files(storage) == ["a"]
    storage.create("b", b"it fits")


def test_a_file_that_does_not_fit_leaves_the_one_that_it_would_replace(tiny: Path) -> None:
    storage = LocalStore(tiny, failure=SpoolError, option="spool.path")
    storage.replace("a", b"old")
    with pytest.raises(SpoolError):
        storage.replace("a", b"x" * 100_000)
    assert storage.read("a").to_pybytes() == b"old"


def test_a_read_only_disk_is_one_line_and_can_be_read(tiny: Path) -> None:
    storage = LocalStore(tiny, failure=SpoolError, option="spool.path")
    storage.create("a", b"one")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    for write in (storage.create, storage.replace):
        with pytest.raises(SpoolError, match=r"Read-only file system\. That file system is read-only"):
            write("b", b"two")
    with pytest.raises(SpoolError, match="Read-only file system"):
        storage.delete("a")
    with pytest.raises(SpoolError, match="Read-only file system"), storage.locked("writer.lock", "taken"):
        pytest.fail("a lock was taken")
    assert storage.read("a").to_pybytes() == b"one"


def test_an_error_of_the_disk_is_reported_even_if_the_file_has_its_bytes(
    storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("floor.json", b"1")
    found = storage.find("floor.json")
    assert found is not None
    failures = [OSError(errno.EIO, "Input/output error")]

    def sync(folder: Path) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(local_files, "sync_folder", sync)
    with pytest.raises(SpoolError, match="Input/output error"):
        storage.replace("floor.json", b"2", version=found.version)


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[str, bytes], None]) -> None:
    """Acts once, between the first write of a temporary file and its rename."""
    write, acts = LocalStore._write, [act]

    def written(store: LocalStore, path: str, data: bytes) -> LocalFile:
        file = write(store, path, data)
        if acts:
            acts.pop()(path, data)
        return file

    monkeypatch.setattr(LocalStore, "_write", written)


def test_a_schema_that_two_processes_write_at_once_is_there_for_both(
    storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LocalStore(storage.root, failure=SpoolError, option="spool.path")
    meanwhile(monkeypatch, other.put)
    initialize(Spool(storage), NAME, AT, "now", [SINGERS])
    assert files(storage) == [schema_path(SINGERS.key), "spool.json"]


def test_a_file_whose_folder_is_swept_while_it_is_written_is_there(
    storage: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda *_: storage.sweep("schemas"))
    storage.put("schemas/a.json", b"{}")
    assert files(storage) == ["schemas/a.json"]
    assert storage.read("schemas/a.json").to_pybytes() == b"{}"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "Raise the limit of open files"),
        (errno.ENFILE, "All open files of this machine are in use"),
        (errno.ENOSPC, "Free space on that disk"),
        (errno.EDQUOT, "Free space on that disk"),
        (errno.EROFS, "That file system is read-only"),
        (errno.EACCES, "Give this user write access"),
        (errno.ENAMETOOLONG, "Choose a shorter path with spool.path"),
        (errno.EIO, "Repair the disk"),
    ],
)
def test_each_error_of_the_system_has_its_own_advice(number: int, advice: str) -> None:
    found = DiskErrors(SpoolError, "spool.path").of("write", "/spool/a", OSError(number, os.strerror(number)))
    assert advice in found.hint
