"""The dead-letter store: on a local disk, and in a bucket."""

import errno
import json
import os
import stat
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.timestamps import parse
from connector.envelope.envelope import SCHEMA
from connector.spool.storage.bucket import Bucket
from connector.spool.storage.locations import in_cloud_storage
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.cloud_storage import EMULATOR, CloudStorage, Fault, Proxy
from tests.property.effort import effort
from tests.spark_sink.sinks.shared.dead_letter_rows import SECRET, put, rows_of
from tests.spark_sink.spools import START, SpoolMaker, record

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see gcs_proxy

FIRST, LAST = parse("0001-01-01T00:00:00Z") // 1000, parse("9999-12-31T23:59:59.999999Z") // 1000


@pytest.fixture(params=["local", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The root of a store; nothing is there yet."""
    return str(tmp_path / "a/letters") if request.param == "local" else f"{request.getfixturevalue('bucket')}/a/letters"


@pytest.fixture
def local(tmp_path: Path) -> Path:
    return tmp_path / "letters"


def kept(letters: DeadLetters) -> list[tuple[pa.RecordBatch, list[str]]]:
    return [letters.read(file) for file in letters.files()]


def write(root: str, path: str, data: bytes) -> None:
    """Writes a file, as another program would."""
    if in_cloud_storage(root):
        Bucket(root, failure=SinkError, option="x").put(path, data)
    else:
        target = Path(root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


# Writing.


def test_an_event_of_the_daemon_is_given_back_exactly(root: str, spool: SpoolMaker) -> None:
    spool.seal(
        record(START + 123_456_789, [1, 2], values={"Name": "ä\n\u2028🎸"}), record(START + 10**9, mod_type="DELETE")
    )
    rows = next(spool.spool.batches(spool.spool.manifest(1).files[0]))
    assert rows.num_rows == 3
    DeadLetters(root).put("Singers", "1", rows, ["a", "b", "a"])
    ((read, reasons),) = kept(DeadLetters(root))
    assert read.equals(rows)
    assert read.schema == SCHEMA
    assert reasons == ["a", "b", "a"]


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(kind):
        odd = st.sampled_from(
            ["", "\0", "\n", "\r\n", "\u2028", "\x85", "null", '{"a": 1.50e0}', "\\u00e4", "🎸", "\x7f"]
        )
        values: st.SearchStrategy[Any] = odd | st.text()
    elif pa.types.is_int64(kind):
        values = st.integers(-(2**63), 2**63 - 1)
    elif pa.types.is_boolean(kind):
        values = st.booleans()
    elif pa.types.is_timestamp(kind):
        values = st.integers(FIRST, LAST)
    elif pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_type), max_size=4)
    else:
        values = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    return st.none() | values


EVENTS = st.fixed_dictionaries({field.name: values_of(field.type) for field in SCHEMA})


@effort(50)
@given(
    st.lists(st.tuples(EVENTS, st.text()), min_size=1, max_size=5),
    st.integers(0, 4),
    st.text().filter(lambda text: len(text.encode()) < 60),
)
def test_any_event_is_given_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, letters: Sequence[tuple[Any, str]], first: int, name: str
) -> None:
    rows = pa.RecordBatch.from_pylist([event for event, _ in letters], schema=SCHEMA).slice(first)
    reasons = [reason for _, reason in letters][first:]
    place = DeadLetters(str(tmp_path_factory.mktemp("letters")))
    place.put(name, name, rows, reasons)
    read = kept(place)
    assert [(batch.to_pylist(), told) for batch, told in read] == ([(rows.to_pylist(), reasons)] if reasons else [])
    assert all(batch.equals(rows) for batch, _ in read)
    assert [file.table for file in place.files()] == [name or "%"] * bool(reasons)


def test_a_line_is_a_reason_and_the_events_columns(local: Path) -> None:
    put(DeadLetters(str(local)), "spool_7_0", 1, 2)
    (file,) = (path for path in local.rglob("*") if path.is_file())
    assert file.relative_to(local).as_posix() == "Singers/spool_7_0.jsonl"
    first, second = map(json.loads, file.read_text().splitlines())
    assert list(first) == ["reason", "event"]
    assert first["reason"] == second["reason"] == "too large"
    assert list(first["event"]) == SCHEMA.names
    assert first["event"]["payload"] == '{"Id":"1"}'


def test_columns_of_other_widths_are_taken(root: str) -> None:
    rows = rows_of(1, 2)
    wide = rows.set_column(10, "payload", rows.column("payload").cast(pa.large_string()))
    DeadLetters(root).put("Singers", "1", wide, ["a", "b"])
    assert kept(DeadLetters(root))[0][0].equals(rows)


def test_many_rows_are_one_file(root: str) -> None:
    put(DeadLetters(root), "1", *range(3000))
    ((rows, reasons),) = kept(DeadLetters(root))
    assert rows.equals(rows_of(*range(3000)))
    assert len(reasons) == 3000


def test_the_same_name_again_takes_the_files_place(root: str) -> None:
    for reason, numbers in (("a", [1, 2]), ("b", [1, 2]), ("b", [1, 2]), ("b", [1, 2, 3])):
        put(DeadLetters(root), "1", *numbers, reason=reason)
    ((rows, reasons),) = kept(DeadLetters(root))
    assert rows.equals(rows_of(1, 2, 3))
    assert reasons == ["b"] * 3


def test_every_row_has_a_reason(root: str) -> None:
    with pytest.raises(ValueError, match="2 rows have 1 reasons"):
        DeadLetters(root).put("Singers", "1", rows_of(1, 2), ["a"])
    assert DeadLetters(root).files() == []


def test_nothing_is_made_before_the_first_dead_letter(local: Path) -> None:
    letters = DeadLetters(str(local))
    letters.put("Singers", "1", rows_of(), [])
    assert letters.files() == []
    assert not local.exists()


def test_local_files_are_private(tmp_path: Path) -> None:
    put(DeadLetters(str(tmp_path / "a/b")), "1", 1)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*")}
    assert modes == {"b": 0o700, "Singers": 0o700, "1.jsonl": 0o600}


def test_names_stay_in_their_place_and_come_back(root: str) -> None:
    names = ["../up", "a/b", ".hidden", "..", "sales.Invoices", "T 0ä%", "x" * 128 + "." + "y" * 120]
    letters = DeadLetters(root)
    for number, name in enumerate(names):
        put(letters, name, number, table=name)
    assert [file.table for file in letters.files()][:6] == names[:6]
    assert letters.files()[6].table.startswith("x" * 128)
    for name in names:
        (file,) = letters.files(name)
        assert letters.read(file)[0].column("object").to_pylist() == [name]
    assert letters.files("T") == []


# Listing.


def test_files_are_listed_oldest_first_with_the_count_of_each_reason(root: str) -> None:
    letters = DeadLetters(root)
    letters.put("Singers", "a_10", rows_of(30, 10), ["too large", "no such column"])
    put(letters, "b_9", 2, 3, 4)
    put(letters, "z", 9, table="Albums")
    put(letters, "y", 9, table="Singers")
    told = [(file.path, file.table, file.count, file.reasons) for file in letters.files()]
    assert told == [
        ("Singers/b_9.jsonl", "Singers", 3, {"too large": 3}),
        ("Singers/y.jsonl", "Singers", 1, {"too large": 1}),
        ("Albums/z.jsonl", "Albums", 1, {"too large": 1}),
        ("Singers/a_10.jsonl", "Singers", 2, {"too large": 1, "no such column": 1}),
    ]


def test_other_files_are_ignored(root: str) -> None:
    put(DeadLetters(root), "1", 1)
    for path in ("README.md", "Singers/notes.txt", "Singers/x/1.jsonl", "1.jsonl"):
        write(root, path, b"not ours")
    assert [file.path for file in DeadLetters(root).files()] == ["Singers/1.jsonl"]


@pytest.mark.parametrize(
    "line",
    [
        f"{SECRET}".encode(),
        b'"\xff"',
        b'{"reason":"a"}',
        b'{"event":{}}',
        json.dumps({"reason": "a", "event": {}, SECRET: 1}).encode(),
        json.dumps({"reason": "a", "event": {SECRET: 1}}).encode(),
        json.dumps({"reason": "a", "event": {"epoch": SECRET}}).encode(),
        json.dumps({"reason": "a", "event": {"payload": 1}}).encode(),
        json.dumps({"reason": "a", "event": {"read_timestamp": SECRET}}).encode(),
        json.dumps({"reason": "a", "event": {"source_metadata": {SECRET: 1}}}).encode(),
        json.dumps({"reason": "a", "event": {"source_metadata": SECRET}}).encode(),
    ],
)
def test_a_file_that_is_damaged_is_one_line_without_its_values(root: str, line: bytes) -> None:
    put(DeadLetters(root), "1", 1)
    ((rows, _),) = kept(DeadLetters(root))
    write(root, "Singers/2.jsonl", line + b"\n")
    with pytest.raises(SinkError, match=rf"cannot read {root}/Singers/2\.jsonl") as raised:
        kept(DeadLetters(root))
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert "\n" not in str(raised.value)
    assert rows.num_rows == 1


def test_columns_that_are_not_there_are_null(root: str) -> None:
    write(root, "Singers/1.jsonl", b'{"reason":"a","event":{"object":"Singers"}}\n')
    ((rows, reasons),) = kept(DeadLetters(root))
    assert rows.schema == SCHEMA
    assert rows.to_pylist() == [{**dict.fromkeys(SCHEMA.names), "object": "Singers"}]
    assert reasons == ["a"]


# Removing.


def test_a_file_is_removed_and_replaced(root: str) -> None:
    letters = DeadLetters(root)
    for number in (1, 2, 3):
        put(letters, str(number), number, number + 10)
    first, second, third = letters.files()
    assert letters.remove(first)
    assert letters.replace(second, rows_of(12), ["still too large"])
    assert letters.replace(third, rows_of(), [])
    ((rows, reasons),) = kept(letters)
    assert rows.equals(rows_of(12))
    assert reasons == ["still too large"]


def test_a_file_that_is_gone_is_not_found_and_removing_it_again_succeeds(root: str) -> None:
    letters = DeadLetters(root)
    put(letters, "1", 1)
    (file,) = letters.files()
    assert letters.remove(file)
    assert letters.remove(file)
    assert not letters.replace(file, rows_of(1), ["a"])
    with pytest.raises(FileNotFoundError):
        letters.read(file)
    assert letters.files() == []


def test_a_file_that_was_replaced_stays(root: str) -> None:
    letters = DeadLetters(root)
    put(letters, "1", 1)
    (file,) = letters.files()
    put(letters, "1", 1, 2)
    assert not letters.replace(file, rows_of(1), ["a"])
    with pytest.raises(FileNotFoundError):
        letters.read(file)
    if not in_cloud_storage(root):  # the server for tests does not guard deletes
        assert not letters.remove(file)
    ((rows, _),) = kept(letters)
    assert rows.equals(rows_of(1, 2))


def test_an_object_is_deleted_by_its_generation(bucket: str, gcs_proxy: Proxy) -> None:
    letters = DeadLetters(bucket)
    put(letters, "1", 1)
    (file,) = letters.files()
    assert letters.remove(file)
    (request,) = (request for request in gcs_proxy.requests if request.startswith("DELETE"))
    assert f"ifGenerationMatch={file.version}" in request


def test_what_an_attempt_left_is_discarded_and_nothing_else(root: str) -> None:
    letters = DeadLetters(root)
    letters.discard("Singers", "a_1")
    for name in ("a_1_0", "a_1_1", "a_11_0", "b_1_0"):
        put(letters, name, 1)
    letters.discard("Singers", "a_1")
    letters.discard("Albums", "b_1")
    assert {file.path for file in letters.files()} == {"Singers/a_11_0.jsonl", "Singers/b_1_0.jsonl"}


def test_the_dead_letters_of_one_table_are_listed_alone(root: str) -> None:
    letters = DeadLetters(root)
    for table in ("Singers", "Singers2", "s.Singers"):
        put(letters, "1", 1, table=table)
    assert [file.table for file in letters.files("Singers")] == ["Singers"]
    assert letters.files("Nobody") == []


def test_a_table_without_lines_has_no_dead_letters(root: str) -> None:
    letters = DeadLetters(root)
    for table in ("Singers", "Albums", "Songs"):
        put(letters, "0f_1_0", 1, table=table)
    write(root, "Singers/0f_1_0.jsonl", b"")
    assert letters.folders() == {"Albums", "Songs"}
    put(letters, "0f_2_0", 2)
    assert letters.folders("0f_2") == {"Singers"}
    assert [(file.table, file.name, file.count) for file in letters.files("Singers")] == [
        ("Singers", "0f_1_0", 0),
        ("Singers", "0f_2_0", 1),
    ]


def test_a_file_that_goes_while_they_are_listed_is_not_among_them(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = DeadLetters(root)
    put(letters, "1", 1)
    put(letters, "2", 2)
    found = letters._found()
    letters.remove(letters.files()[0])
    monkeypatch.setattr(letters, "_found", lambda *_: found)
    assert [file.path for file in letters.files()] == ["Singers/2.jsonl"]


# Errors.


def test_a_disk_that_is_full_is_one_line_and_leaves_what_was_there(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = DeadLetters(str(local))
    put(letters, "1", 1)

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(SinkError, match=r"cannot write .*1\.jsonl: No space left on device\. Free space"):
            put(letters, "1", 1, 2)
    ((rows, _),) = kept(letters)
    assert rows.equals(rows_of(1))
    assert [path.name for path in (local / "Singers").iterdir()] == ["1.jsonl"]


def test_a_folder_that_cannot_be_made_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkError, match=r"Not a directory\. .* choose another with sink\.dead_letters\.") as raised:
        put(DeadLetters(str(tmp_path / "file/letters")), "1", 1)
    assert "sink.path" not in str(raised.value)


def test_what_a_killed_writer_left_is_removed_with_the_next_dead_letter(local: Path) -> None:
    put(DeadLetters(str(local)), "1", 1)
    leftover = local / "Singers/.1.jsonl.0123.tmp"
    leftover.write_bytes(b'{"reason')
    assert len(DeadLetters(str(local)).files()) == 1
    put(DeadLetters(str(local)), "1", 1)
    assert not leftover.exists()


def test_a_bucket_that_is_not_there_names_the_option(cloud_storage: CloudStorage) -> None:
    assert cloud_storage.url
    with pytest.raises(SinkError, match=r"there is no bucket no-such-one\. .*sink\.dead_letters\."):
        put(DeadLetters("gs://no-such-one/x"), "1", 1)


def test_an_answer_that_is_lost_is_a_success(bucket: str, gcs_proxy: Proxy) -> None:
    letters = DeadLetters(bucket)
    put(letters, "1", 1, 2)
    (file,) = letters.files()
    lost = Fault(meets=lambda method, _: method == "POST", passes=True, times=1)
    gcs_proxy.faults.append(lost)
    assert letters.replace(file, rows_of(2), ["a"])
    assert lost.hits == 1
    assert kept(letters)[0][0].equals(rows_of(2))


def test_an_emulators_address_may_be_given(
    cloud_storage: CloudStorage, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(EMULATOR)
    put(DeadLetters(bucket, cloud_storage.url), "1", 1)
    assert list(cloud_storage.objects(bucket)) == ["Singers/1.jsonl"]


def test_dead_letters_are_written_and_read_without_spark() -> None:
    modules = "spark_sink.sinks.shared.dead_letters, spark_sink.dead_letters_command"
    code = f"import sys; sys.modules['pyspark'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
