"""The files that the file sink writes, without Spark."""

import gzip
import json
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from connector.core.records import ColumnType, Mod
from connector.core.timestamps import MINUTE, SECOND, parse
from connector.storage.local import LocalStore
from connector.storage.local_files import LocalFile
from spark_sink.errors import SinkError
from spark_sink.files import writer as files_module
from spark_sink.files.plan import FileShape, file_groups
from spark_sink.files.writer import FileWriter, WrittenFile
from spark_sink.read_back.files import read_file
from spark_sink.sink.destination import destination_at
from tests.spark_sink.spools import LETTERS, NAME, SINGERS, START, SpoolMaker, record

ALBUMS = (*SINGERS, ColumnType("Sales", '{"code":"INT64"}', False, 3))
BY_MINUTE = FileShape(gzip=False, rotate_bytes=250_000_000, by_minute=True)
AVRO = FileShape(gzip=False, rotate_bytes=250_000_000, by_minute=True, format="avro")
AT_ONCE = FileShape(gzip=False, rotate_bytes=250_000_000, by_minute=False)


def written(spool: SpoolMaker, root: Path, shape: FileShape = BY_MINUTE) -> list[WrittenFile]:
    manifests = spool.spool.manifests(1, spool.spool.latest())
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, LETTERS)
    return [file for group in file_groups(manifests, by_minute=shape.by_minute) for file in writer.write(group)]


def avro_events(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_table_has_one_file_a_minute_in_datastreams_folders(spool: SpoolMaker, tmp_path: Path) -> None:
    at = parse("2026-03-01T10:04:58Z")
    spool.seal(record(at, [1, 2]), record(at + 1, [3], table="music.Albums"))
    spool.seal(record(at + SECOND, [4]))
    spool.seal(record(at + 2 * SECOND, [5]))
    root = tmp_path / "out"
    keys = spool.spool.manifest(3).schema_keys
    assert [file.path for file in written(spool, root)] == [
        f"d_Singers/2026/03/01/10/04/{keys['Singers']}_spanner-cdc_{spool.spool_id}_1_0.jsonl",
        f"music_Albums/2026/03/01/10/04/{keys['music.Albums']}_spanner-cdc_{spool.spool_id}_1_0.jsonl",
        f"d_Singers/2026/03/01/10/05/{keys['Singers']}_spanner-cdc_{spool.spool_id}_3_0.jsonl",
    ]
    assert len(contents(root)) == 3


def test_a_line_is_an_event_in_commit_order(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 5, [1, 2]), record(START + 6, [1], mod_type="DELETE"))
    (file,) = written(spool, tmp_path / "out")
    lines = (tmp_path / "out" / file.path).read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [(event["payload"]["Id"], event["source_metadata"]["change_type"]) for event in events] == [
        (1, "INSERT"),
        (2, "INSERT"),
        (1, "DELETE"),
    ]
    assert file.rows == len(lines) == 3
    assert file.bytes == (tmp_path / "out" / file.path).stat().st_size


def test_each_epoch_has_its_file_where_files_are_written_at_once(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(3)
    assert [file.path.rsplit("_", 2)[1] for file in written(spool, tmp_path / "out", AT_ONCE)] == ["1", "2", "3"]


def test_an_avro_file_is_in_the_same_folder_and_holds_the_same_events(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(3, rows=4)
    (line_file,) = written(spool, tmp_path / "jsonl")
    (avro_file,) = written(spool, tmp_path / "avro", AVRO)
    assert avro_file.path == line_file.path.removesuffix("jsonl") + "avro"
    lines = [json.loads(line) for line in (tmp_path / "jsonl" / line_file.path).read_text().splitlines()]
    events = avro_events(tmp_path / "avro" / avro_file.path)
    assert [(event["uuid"], event["payload"]) for event in events] == [(one["uuid"], one["payload"]) for one in lines]
    assert avro_file.rows == line_file.rows == 12
    assert avro_file.bytes == (tmp_path / "avro" / avro_file.path).stat().st_size


def test_an_avro_file_ends_at_its_size_and_at_a_change_of_the_schema(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(3, rows=40)
    spool.seal(record(spool.watermark + 1, [7], columns=ALBUMS, values={"Name": "n", "Sales": "9007199254740993"}))
    shape = replace(AVRO, rotate_bytes=15_000)
    files = written(spool, tmp_path / "out", shape)
    assert len(files) > 3
    assert max(file.bytes for file in files) <= 15_500
    events = [event for file in files for event in avro_events(tmp_path / "out" / file.path)]
    assert [event["payload"]["Id"] for event in events] == [*range(120), 7]
    assert events[-1]["payload"] == {"Id": 7, "Name": "n", "Sales": 9007199254740993}
    assert "Sales" not in events[0]["payload"]


@pytest.mark.parametrize("written_as", ["jsonl", "avro"])
def test_each_schema_has_a_file_where_that_is_asked_for(spool: SpoolMaker, tmp_path: Path, written_as: str) -> None:
    spool.seal(record(START + 5, [1]))
    spool.seal(record(START + 6, [1], columns=ALBUMS, values={"Sales": "2"}), record(START + 7, [1], table="music.B"))
    spool.seal(record(START + MINUTE, [2], columns=ALBUMS))
    without = written(spool, tmp_path / "without", replace(BY_MINUTE, format=written_as))
    assert written(spool, tmp_path / "out", replace(BY_MINUTE, format=written_as, schema_files=True)) == without
    described = {path: data for path, data in contents(tmp_path / "out").items() if path.endswith(".avsc")}
    folders_and_keys = {(file.path.split("/")[0], file.path.split("/")[-1].split("_")[0]) for file in without}
    assert set(described) == {f"{folder}/{key}.avsc" for folder, key in folders_and_keys}
    assert len(described) == 3
    for file in without:
        if written_as == "avro":
            with (tmp_path / "out" / file.path).open("rb") as opened:
                schema = fastavro.reader(opened).metadata["avro.schema"]
            assert (
                described[f"{file.path.split('/')[0]}/{file.path.split('/')[-1].split('_')[0]}.avsc"] == schema.encode()
            )


class Meanwhile(LocalStore):
    """While its first schema's file is being written, another task writes it too."""

    def __init__(self, root: Path, other: Callable[[], object]) -> None:
        super().__init__(root, failure=SinkError, option="sink.path")
        self._other: Callable[[], object] | None = other

    def begin(self, path: str) -> LocalFile:
        file = super().begin(path)
        self._meet(path)
        return file

    def put(self, path: str, data: bytes) -> None:
        self._meet(path)
        super().put(path, data)

    def _meet(self, path: str) -> None:
        if self._other is not None and path.endswith(".avsc"):
            other, self._other = self._other, None
            other()


def test_two_tasks_may_write_one_schemas_file(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    shape = replace(BY_MINUTE, schema_files=True)
    first, second = file_groups(spool.spool.manifests(1, 2), by_minute=True)

    def other() -> None:
        list(
            FileWriter(spool.spool, spool.spool_id, destination_at(str(tmp_path / "out")), shape, LETTERS).write(second)
        )

    destination = Meanwhile(tmp_path / "out", other)
    assert list(FileWriter(spool.spool, spool.spool_id, destination, shape, LETTERS).write(first))
    written(spool, tmp_path / "expected", shape)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    assert len(contents(tmp_path / "out")) == 3


def test_a_shared_file_is_put_however_writers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination, publish = destination_at(str(tmp_path)), LocalFile.publish

    def overtaken(self: LocalFile) -> None:
        monkeypatch.setattr(LocalFile, "publish", publish)
        destination.put("T/k.avsc", b"schema")  # which takes the other's temporary file for a leftover
        publish(self)

    monkeypatch.setattr(LocalFile, "publish", overtaken)
    destination.put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}


def test_what_a_killed_writer_left_of_a_shared_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "T").mkdir()
    (tmp_path / "T/.k.avsc.0a1b2c3d.tmp").write_bytes(b"half")
    (tmp_path / "T/k.avsc").write_bytes(b"an older program's")
    destination_at(str(tmp_path)).put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}
    (tmp_path / "T/.k.avsc.0a1b2c3d.tmp").write_bytes(b"half")
    destination_at(str(tmp_path)).put("T/k.avsc", b"schema")
    assert contents(tmp_path) == {"T/k.avsc": b"schema"}


def test_schemas_whose_timestamps_are_text_have_a_name_of_their_own(spool: SpoolMaker, tmp_path: Path) -> None:
    when = ColumnType("At", '{"code":"TIMESTAMP"}', False, 3)
    spool.seal(record(START, [1], columns=(*SINGERS, when)))
    for timestamps in ("micros", "text"):
        written(spool, tmp_path / "out", replace(AVRO, schema_files=True, timestamps=timestamps))
    key = spool.spool.manifest(1).schema_keys["Singers"]
    described = {path: data for path, data in contents(tmp_path / "out").items() if path.endswith(".avsc")}
    assert set(described) == {f"d_Singers/{key}.avsc", f"d_Singers/{key}_text.avsc"}
    assert b"timestamp-micros" in described[f"d_Singers/{key}.avsc"]
    assert b"timestamp-micros" not in described[f"d_Singers/{key}_text.avsc"]


class Recorded(LocalStore):
    """Notes what is asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, failure=SinkError, option="sink.path")
        self.asked: list[tuple[str, str]] = []

    def begin(self, path: str) -> LocalFile:
        self.asked.append(("begin", path))
        return super().begin(path)

    def make_folder(self, path: str) -> None:
        self.asked.append(("mark", path))
        super().make_folder(path)


def test_each_minute_folder_is_marked_once_all_its_files_are_written(spool: SpoolMaker, tmp_path: Path) -> None:
    for at in (START + SECOND, START + 2 * SECOND, START + MINUTE):
        spool.seal(record(at, [1]), record(at + 1, [2], table="B"))
    destination = Recorded(tmp_path / "out")
    writer = FileWriter(spool.spool, spool.spool_id, destination, BY_MINUTE, LETTERS)
    for group in file_groups(spool.spool.manifests(1, 3), by_minute=True):
        for file in writer.write(group):
            folder = file.path.rpartition("/")[0]
            assert destination.asked.count(("mark", folder)) == 1
            assert destination.asked.index(("begin", file.path)) < destination.asked.index(("mark", folder))
    assert len([asked for asked, _ in destination.asked if asked == "mark"]) == 4


def test_a_file_ends_before_it_grows_past_its_size(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(3, rows=4)
    whole = written(spool, tmp_path / "whole")[0].bytes
    parts = written(spool, tmp_path / "out", FileShape(gzip=False, rotate_bytes=whole // 3, by_minute=True))
    assert [file.path.rsplit("_", 1)[1] for file in parts] == [f"{n}.jsonl" for n in range(len(parts))]
    assert max(file.bytes for file in parts) <= whole // 3
    joined = b"".join((tmp_path / "out" / file.path).read_bytes() for file in parts)
    assert [joined] == list(contents(tmp_path / "whole").values())


@pytest.mark.parametrize("written_as", ["jsonl", "avro"])
def test_rows_that_wait_are_bounded_and_come_out_in_their_order(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, written_as: str
) -> None:
    shape = replace(BY_MINUTE, format=written_as)
    for number in range(9):
        at = START + (number + 1) * SECOND
        spool.seal(record(at, range(5)), record(at + 1, range(7), table="B"))
    expected = [(file.path, file.rows) for file in written(spool, tmp_path / "whole", shape)]
    lines = {name: data for name, data in contents(tmp_path / "whole").items() if written_as == "jsonl"}
    for name, limit in (("_PIECE", 2000), ("_WAITING", 9000)):
        monkeypatch.setattr(files_module, name, limit)
        assert [(file.path, file.rows) for file in written(spool, tmp_path / name, shape)] == expected
        for path, data in lines.items():
            assert (tmp_path / name / path).read_bytes() == data
    if written_as == "avro":
        for path, _ in expected:
            assert avro_events(tmp_path / "whole" / path) == avro_events(tmp_path / "_WAITING" / path)


@pytest.mark.parametrize("written_as", ["jsonl", "avro", "opencdc-jsonl"])
def test_large_old_values_are_not_held_uncounted(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, written_as: str
) -> None:
    megabyte = 1 << 20
    for number in range(30):
        old = Mod(f'{{"Id":"{number}"}}', '{"Name":"n"}', f'{{"Name":"{"x" * megabyte}"}}')
        spool.seal(replace(record(START + number, mod_type="UPDATE"), mods=(old,)))
    shape, most = replace(BY_MINUTE, format=written_as), 0
    encoding = files_module._encoding_of(shape, spool.spool.schema)
    encode = type(encoding).encode

    def watched(self: Any, series: Any, rows: Any) -> Any:
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)
        return encode(self, series, rows)

    monkeypatch.setattr(type(encoding), "encode", watched)
    before = pa.total_allocated_bytes()
    (file,) = written(spool, tmp_path / "out", shape)
    assert file.rows == 30
    assert most < 24 * megabyte  # what may wait of a table, and its copy in one piece


def test_a_deflated_avro_file_ends_where_one_that_is_not_ends(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(9, rows=40)
    shapes = [replace(AVRO, rotate_bytes=15_000, gzip=gzip) for gzip in (False, True)]
    plain, deflated = (written(spool, tmp_path / str(shape.gzip), shape) for shape in shapes)
    assert [file.rows for file in deflated] == [file.rows for file in plain]
    assert len(plain) > 3


def test_a_file_ends_where_the_schema_changes(spool: SpoolMaker, tmp_path: Path) -> None:
    wider = record(START + 7, [2], columns=ALBUMS, values={"Name": "n", "Sales": "9007199254740993"})
    spool.seal(record(START + 5, [1]))
    spool.seal(wider, record(START + 9, [3]))
    first, second = written(spool, tmp_path / "out")
    assert (first.rows, second.rows) == (1, 2)
    assert second.path.endswith("_1.jsonl")
    assert first.path.split("_")[:2] != second.path.split("_")[:2]
    assert b'"Sales":9007199254740993' in (tmp_path / "out" / second.path).read_bytes()


@pytest.mark.parametrize("written_as", ["jsonl", "avro"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_replay_writes_the_same_bytes_to_the_same_names(
    spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compressed: bool, written_as: str
) -> None:
    monkeypatch.setattr(files_module, "_OPEN_FILES", 2)
    at = START
    for _ in range(4):
        at += SECOND
        spool.seal(*(record(at + n, [n], table=f"T{n}") for n in range(4)))
    shape = FileShape(gzip=compressed, rotate_bytes=10_000, by_minute=True, format=written_as)
    files = written(spool, tmp_path / "out", shape)
    before = contents(tmp_path / "out")
    assert written(spool, tmp_path / "out", shape) == files
    assert contents(tmp_path / "out") == before
    assert len(files) == 4
    for name, data in before.items():
        if written_as == "avro":
            assert len(avro_events(tmp_path / "out" / name)) == 4
        else:
            assert len((gzip.decompress(data) if compressed else data).splitlines()) == 4


def test_files_are_private(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    (file,) = written(spool, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out" / file.path).stat().st_mode) == 0o600


def test_what_a_killed_writer_left_is_removed(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    (file,) = written(spool, tmp_path / "out")
    before = contents(tmp_path / "out")
    whole = tmp_path / "out" / file.path
    whole.with_name(f".{whole.name}.0a1b2c3d.tmp").write_bytes(b"half")
    whole.unlink()
    written(spool, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_file_that_was_taken_away_while_it_rested_is_not_begun_anew_with_its_tail(tmp_path: Path) -> None:
    whole, swept = destination_at(str(tmp_path)), destination_at(str(tmp_path)).begin("d_T/a.jsonl")
    swept.append(b"one\n")
    swept.rest()
    other = whole.begin("d_T/a.jsonl")  # of a replay, which takes the first for dead
    other.append(b"one\ntwo\n")
    other.rest()
    other.publish()
    with pytest.raises(SinkError, match=r"cannot write .*d_T/a\.jsonl: No such file"):
        swept.append(b"two\n")
    swept.abandon()
    assert contents(tmp_path) == {"d_T/a.jsonl": b"one\ntwo\n"}


def test_a_file_that_rested_goes_on_where_it_was(tmp_path: Path) -> None:
    file = destination_at(str(tmp_path)).begin("a")
    for piece in (b"one\n", b"two\n"):
        file.append(piece)
        file.rest()
    file.publish()
    assert contents(tmp_path) == {"a": b"one\ntwo\n"}


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes past a size fail, as on a full disk."""
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_disk_that_refuses_leaves_nothing_behind_and_the_replay_completes(
    spool: SpoolMaker, tmp_path: Path, *, compressed: bool
) -> None:
    spool.fill(3, rows=900)
    shape = FileShape(gzip=compressed, rotate_bytes=250_000_000, by_minute=True)
    (expected,) = written(spool, tmp_path / "whole", shape)
    with no_file_larger_than(20_000), pytest.raises(SinkError, match="cannot write"):
        written(spool, tmp_path / "out", shape)
    assert contents(tmp_path / "out") == {}
    assert written(spool, tmp_path / "out", shape) == [expected]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_path_that_is_no_folder_is_one_line_with_the_way_out(
    spool: SpoolMaker, tmp_path: Path, make_spool: Callable[..., SpoolMaker]
) -> None:
    spool.fill(1)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkError) as caught:
        written(spool, tmp_path / "out")
    assert str(caught.value).startswith(f"cannot write {tmp_path}/out/d_Singers/2026/03/01/10/00/")
    assert str(caught.value).endswith("or choose another with sink.path.")


def test_names_that_would_leave_the_folder_are_quoted(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 5, [1], table="../../etc.a/b", columns=(*SINGERS, NAME)[:2]))
    (file,) = written(spool, tmp_path / "out")
    assert file.path.startswith("%2E.%2F..%2Fetc_a%2Fb/2026/")


def test_a_group_is_a_contiguous_run_of_a_minute_and_empty_epochs_are_in_none(spool: SpoolMaker) -> None:
    spool.seal(high=START + SECOND)
    spool.seal(record(START + 2 * SECOND, [1]))
    spool.seal(high=START + 3 * SECOND)
    spool.seal(record(START + 4 * SECOND, [2]))
    spool.seal(record(START + MINUTE, [3]))
    groups = file_groups(spool.spool.manifests(1, 5), by_minute=True)
    assert [(group.first_epoch, len(group.segments)) for group in groups] == [(2, 2), (5, 1)]


TAGGED = (
    *SINGERS,
    ColumnType("Tags", '{"code":"ARRAY","array_element_type":{"code":"STRING"}}', False, 3),
    ColumnType("Sizes", '{"code":"ARRAY","array_element_type":{"code":"INT64"}}', False, 4),
    ColumnType("More", '{"code":"ARRAY","array_element_type":{"code":"INT64"}}', False, 5),
    ColumnType("Notes", '{"code":"ARRAY","array_element_type":{"code":"JSON"}}', False, 6),
)
ARRAYS: list[dict[str, object]] = [
    {"Tags": ["a", None, ""], "Sizes": ["1", "-9007199254740993"], "More": [], "Notes": ['{"a":1}', None]},
    {"Tags": [], "Sizes": None, "More": ["7"], "Notes": []},
    {},
]


def test_arrays_are_datastreams_records_where_that_is_asked_for(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(
        *(record(START + n, [n], columns=TAGGED, values=values) for n, values in enumerate(ARRAYS, 1)),
    )
    (file,) = written(spool, tmp_path / "out", replace(AVRO, arrays="multidimensional"))
    payloads = [event["payload"] for event in avro_events(tmp_path / "out" / file.path)]

    def record_of(*elements: object) -> object:
        one = [{"nestedArray": None, "elementValue": element} for element in elements]
        return {"nestedArray": one, "elementValue": None}

    assert [{name: payload[name] for name in ("Tags", "Sizes", "More", "Notes")} for payload in payloads] == [
        {
            "Tags": record_of("a", None, ""),
            "Sizes": record_of(1, -9007199254740993),
            "More": record_of(),
            "Notes": record_of('{"a":1}', None),
        },
        {"Tags": record_of(), "Sizes": None, "More": record_of(7), "Notes": record_of()},
        {"Tags": None, "Sizes": None, "More": None, "Notes": None},
    ]
    (batch,) = read_file(str(tmp_path / "out" / file.path))
    read_back = [json.loads(payload) for payload in batch.column("payload").to_pylist()]
    assert read_back[0]["Notes"] == [{"a": 1}, None]
    assert (read_back[1]["Tags"], read_back[1]["More"], read_back[2]["Tags"]) == ([], [7], None)


@pytest.mark.parametrize("form", ["jsonl", "avro"])
def test_the_object_is_the_folders_name_where_that_is_asked_for(spool: SpoolMaker, tmp_path: Path, form: str) -> None:
    spool.seal(record(START + 5, [1]), record(START + 6, [2], table="music.Albums"))
    shape = replace(BY_MINUTE, format=form, object_names="schema_table", schema_files=True)
    objects = {}
    for file in written(spool, tmp_path / "out", shape):
        path = tmp_path / "out" / file.path
        if form == "jsonl":
            (event,) = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            (event,) = avro_events(path)
            with path.open("rb") as stream:
                assert fastavro.reader(stream).writer_schema["name"] == event["object"]  # type: ignore[call-overload,index]
        objects[file.path.partition("/")[0]] = event["object"]
    assert objects == {"d_Singers": "d_Singers", "music_Albums": "music_Albums"}
    described = list((tmp_path / "out").rglob("*_schema_table.avsc"))
    assert {json.loads(path.read_bytes())["name"] for path in described} == set(objects)
