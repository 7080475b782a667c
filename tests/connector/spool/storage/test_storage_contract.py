"""Promises of every storage of a spool."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from connector.errors import SpoolInUseError
from connector.spool.reading import Spool
from connector.spool.storage.store import FileStore, update

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
    assert storage.list("folder") == ["a", "b"]


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


def test_files_are_found_with_their_size_and_a_version_that_changes(storage: FileStore) -> None:
    storage.replace("folder/a", b"one")
    first = storage.find("folder/a")
    assert first is not None
    assert (first.path, first.size) == ("folder/a", 3)
    assert storage.read_version("folder/a") == (b"one", first.version)
    storage.replace("folder/a", b"three")
    second = storage.find("folder/a")
    assert second is not None
    assert (second.size, second.version != first.version) == (5, True)
    assert storage.find("folder/b") is None
    with pytest.raises(FileNotFoundError):
        storage.read_version("folder/b")


def test_a_version_is_replaced_only_while_it_is_there(storage: FileStore) -> None:
    storage.replace("a", b"one")
    _, first = storage.read_version("a")
    storage.replace("a", b"two", version=first)
    with pytest.raises(FileExistsError):
        storage.replace("a", b"three", version=first)
    with pytest.raises(FileExistsError):
        storage.replace("b", b"three", version=first)
    assert storage.read("a").to_pybytes() == b"two"
    assert storage.delete_version("a", storage.read_version("a")[1])
    assert not storage.exists("a")
    assert storage.delete_version("a", first)


def test_all_files_are_walked_at_any_depth_and_by_how_their_paths_begin(storage: FileStore) -> None:
    for path in ("b", "a/c/d", "a/b", "ab/c"):
        storage.create(path, path.encode())
    storage.make_folder("folder")
    pending = storage.begin("a/pending")
    pending.append(b"x")
    assert [(file.path, file.size) for file in storage.walk()] == [("a/b", 3), ("a/c/d", 5), ("ab/c", 4), ("b", 1)]
    assert [file.path for file in storage.walk("a/")] == ["a/b", "a/c/d"]
    assert [file.path for file in storage.walk("a/c")] == ["a/c/d"]
    assert [file.path for file in storage.walk("a")] == ["a/b", "a/c/d", "ab/c"]
    assert list(storage.walk("nowhere/x")) == []
    assert storage.find("a/b") in storage.walk()
    pending.abandon()


def test_a_file_is_read_as_a_stream_that_can_seek(storage: FileStore) -> None:
    storage.create("a", b"0123456789")
    with storage.open("a") as stream:
        assert stream.read(3) == b"012"
        stream.seek(7)
        assert stream.read() == b"789"
    with pytest.raises(FileNotFoundError), storage.open("b"):
        pytest.fail("a file that is not there was opened")


def test_a_pending_file_is_there_once_it_is_published_and_one_that_is_abandoned_never(storage: FileStore) -> None:
    published, abandoned = storage.begin("folder/a"), storage.begin("folder/b")
    for file in (published, abandoned):
        for part in (b"one,", b"two"):
            file.append(part)
            file.rest()
    assert storage.list("folder") == []
    published.publish()
    abandoned.abandon()
    assert storage.list("folder") == ["a"]
    assert storage.read("folder/a").to_pybytes() == b"one,two"


def test_put_leaves_a_file_that_has_these_bytes_and_replaces_another(storage: FileStore) -> None:
    storage.put("folder/a", b"one")
    version = storage.read_version("folder/a")[1]
    storage.put("folder/a", b"one")
    assert storage.read_version("folder/a") == (b"one", version)
    storage.put("folder/a", b"two")
    assert storage.read_version("folder/a")[0] == b"two"


def test_names_are_listed_from_one_on_and_before_another(storage: FileStore) -> None:
    for name in ("1-b", "1-a", "2", "3"):
        storage.create(f"folder/{name}", b"")
    assert storage.list("folder") == ["1-a", "1-b", "2", "3"]
    assert storage.list("folder", "1-b") == ["1-b", "2", "3"]
    assert storage.list("folder", end="2") == ["1-a", "1-b"]
    assert storage.list("folder", "1-b", "3") == ["1-b", "2"]
    assert storage.list("folder", "4") == storage.list("nowhere", "1", "2") == []
