"""What every storage of a spool promises, held for each."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from connector.errors import SpoolInUseError
from connector.spool.reading import Spool
from connector.storage.store import FileStore, update

HOLD_LOCK = """
import sys
from connector.spool.reading import Spool
with Spool.at(sys.argv[1]).storage.locked("writer.lock", "taken"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["local", "gs"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "spool") if request.param == "local" else f"{request.getfixturevalue('bucket')}/a/spool"


@pytest.fixture
def storage(path: str) -> FileStore:
    return Spool.at(path).storage


def test_what_is_created_is_read(storage: FileStore) -> None:
    storage.create("manifests/1.json", b"one")
    assert storage.read("manifests/1.json").to_pybytes() == b"one"
    assert storage.list("manifests") == ["1.json"]
    assert storage.exists("manifests/1.json")


def test_buffers_are_written_as_bytes_are(storage: FileStore) -> None:
    storage.create("a", pa.py_buffer(b"one"))
    storage.replace("b", pa.py_buffer(b"two"))
    assert [data.to_pybytes() for data in storage.read_each(["a", "b"])] == [b"one", b"two"]


def test_an_empty_file_is_read(storage: FileStore) -> None:
    storage.create("empty", b"")
    assert storage.read("empty").to_pybytes() == b""


def test_a_large_file_comes_back_as_it_went(storage: FileStore) -> None:
    data = os.urandom(1 << 20) * 20
    storage.replace("segments/large", pa.py_buffer(data))
    assert storage.read("segments/large").to_pybytes() == data


def test_create_never_overwrites(storage: FileStore) -> None:
    storage.create("a", b"one")
    for data in (b"two", b"one"):
        with pytest.raises(FileExistsError):
            storage.create("a", data)
    assert storage.read("a").to_pybytes() == b"one"


def test_replace_overwrites(storage: FileStore) -> None:
    storage.replace("a", b"one")
    held = storage.read("a")
    storage.replace("a", b"two")
    assert storage.read("a").to_pybytes() == b"two"
    assert held.to_pybytes() == b"one"


def test_update_replaces_only_what_its_caller_knows(storage: FileStore) -> None:
    update(storage, "a", None, b"one")
    update(storage, "a", b"one", b"two")
    for before in (None, b"one", b"three"):
        with pytest.raises(FileExistsError):
            update(storage, "a", before, b"four")
    with pytest.raises(FileExistsError):
        update(storage, "b", b"one", b"two")
    assert storage.read("a").to_pybytes() == b"two"
    assert not storage.exists("b")


def test_what_is_not_there_is_not_found(storage: FileStore) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a")
    assert not storage.exists("a")
    assert storage.list("nowhere") == []
    storage.delete("a")
    storage.delete("a", "b")
    storage.sweep("nowhere")


def test_a_folder_is_listed_in_order_and_without_what_lies_deeper(storage: FileStore) -> None:
    for name in ("folder/b", "folder/a", "folder/deeper/c", "folders/d"):
        storage.create(name, b"")
    assert [name for name in storage.list("folder") if name != "deeper"] == ["a", "b"]


def test_many_files_are_read_in_turn_and_deleted(storage: FileStore) -> None:
    paths = [f"folder/{number:03d}" for number in range(50)]
    for path in paths:
        storage.create(path, path.encode())
    assert [data.to_pybytes().decode() for data in storage.read_each(paths)] == paths
    storage.delete(*paths[1:])
    assert storage.list("folder") == ["000"]


def test_of_many_files_one_that_is_not_there_ends_the_reading(storage: FileStore) -> None:
    storage.create("a", b"one")
    read = storage.read_each(["a", "b", "a"])
    assert next(read).to_pybytes() == b"one"
    with pytest.raises(FileNotFoundError):
        next(read)


def test_an_odd_name_is_a_name(storage: FileStore) -> None:
    for name in ("a b%2F+&?#ä", "c=d,e;f@g"):
        storage.create(f"folder/{name}", name.encode())
        assert storage.read(f"folder/{name}").to_pybytes().decode() == name
    assert storage.list("folder") == ["a b%2F+&?#ä", "c=d,e;f@g"]


def test_a_file_is_named_in_full(storage: FileStore, path: str) -> None:
    assert storage.full() == path
    assert storage.full("manifests/1.json") == f"{path}/manifests/1.json"


def test_a_lock_is_held_once_and_says_by_whom(storage: FileStore, path: str) -> None:
    for other in (storage, Spool.at(path).storage):
        with (
            storage.locked("writer.lock", "it is taken"),
            pytest.raises(SpoolInUseError, match=rf"it is taken \(process {os.getpid()}\b"),
            other.locked("writer.lock", "it is taken"),
        ):
            pytest.fail("a lock was taken twice")


def test_a_lock_that_was_given_back_can_be_taken(storage: FileStore) -> None:
    for _ in range(2):
        with storage.locked("consumers/a.lock", "taken") as check:
            check()
            storage.replace("a", b"one")


def test_a_lock_is_freed_when_its_process_is_killed(storage: FileStore, path: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert _line(holder.stdout) == b"held\n"
        with (
            pytest.raises(SpoolInUseError, match=rf"taken \(process {holder.pid}\b"),
            storage.locked("writer.lock", "taken"),
        ):
            pytest.fail("a lock was taken twice")
        holder.kill()
        holder.wait()
        with storage.locked("writer.lock", "taken"):
            pass


def _line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def test_names_are_listed_from_one_on_and_before_another(storage: FileStore) -> None:
    for name in ("1-b", "1-a", "2", "3"):
        storage.create(f"folder/{name}", b"")
    assert storage.list("folder") == ["1-a", "1-b", "2", "3"]
    assert storage.list("folder", "1-b") == ["1-b", "2", "3"]
    assert storage.list("folder", end="2") == ["1-a", "1-b"]
    assert storage.list("folder", "1-b", "3") == ["1-b", "2"]
    assert storage.list("folder", "4") == storage.list("nowhere", "1", "2") == []
