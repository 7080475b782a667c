"""The files that are written, and their contents."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from connector.core.records import ColumnType, Mod
from connector.core.timestamps import MINUTE, SECOND, parse
from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import LocalFile
from spark_sink.errors import SinkError
from spark_sink.sinks.files import writer as files_module
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter
from spark_sink.sources.files.files import read_file
from tests.spark_sink.sinks.files.written import ALBUMS, AT_ONCE, AVRO, BY_MINUTE, avro_events, contents, written
from tests.spark_sink.spools import NAME, NO_DEAD_LETTERS, SINGERS, START, SpoolMaker, record


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
    writer = FileWriter(spool.spool, spool.spool_id, destination, BY_MINUTE, NO_DEAD_LETTERS)
    for group in file_groups(spool.spool.manifests(1, 3), by_minute=True):
        for file in writer.write(group):
            folder = file.path.rpartition("/")[0]
            assert destination.asked.count(("mark", folder)) == 1
            assert destination.asked.index(("begin", file.path)) < destination.asked.index(("mark", folder))
    assert len([asked for asked, _ in destination.asked if asked == "mark"]) == 4


def test_a_file_ends_before_it_grows_past_its_size(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(3, rows=4)
    whole = written(spool, tmp_path / "whole")[0].bytes
    parts = written(spool, tmp_path / "out", FileOptions(gzip=False, rotate_bytes=whole // 3, by_minute=True))
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
    for name, limit in (("_SLICE", 2000), ("_WAITING", 9000)):
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
    shape = FileOptions(gzip=compressed, rotate_bytes=10_000, by_minute=True, format=written_as)
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


def test_names_that_would_leave_the_folder_are_quoted(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 5, [1], table="../../etc.a/b", columns=(*SINGERS, NAME)[:2]))
    (file,) = written(spool, tmp_path / "out")
    assert file.path.startswith("%2E.%2F..%2Fetc_a%2Fb/2026/")


def test_a_folder_whose_name_would_be_too_long_for_a_disk_is_shortened_and_still_the_tables_own(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    schema, table = "s" * 128, "t" * 127
    names = [f"{schema}.{table}{end}" for end in "ab"] + [f"{schema[1:]}.{table}", f"{schema[2:]}.{table}"]
    spool.seal(*(record(START + at, [1], table=name) for at, name in enumerate(names)))
    folders = [file.path.partition("/")[0] for file in written(spool, tmp_path / "out")]
    assert len(set(folders)) == 4
    assert sorted(map(len, folders)) == [252, 252, 254, 255]
    assert f"{schema[1:]}_{table}" in folders, "one that a disk takes is as it was"


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
