"""A spool and dead letters of an older program, when sinks without names shared a folder of dead letters.

``former_layout`` was written by that program. One of its tables has the name of a sink.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from connector.config import validated
from spark_sink.dead_letters_command import main
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.sink_type import spark_sink_type
from tests.spark_sink.sinks.shared.dead_letter_rows import put
from tests.spark_sink.sqlite_sink.sink import SINK, SqliteConfig

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
SINKS: dict[str, dict[str, object]] = {
    "files": {"format": "jsonl"},
    "bigquery": {"dataset": "replica"},
    "spanner": {"database": "other"},
    "tables": {"path": "lake"},
}
LISTED = {
    "files": {"files": 2},
    "bigquery": {"files": 4, "Singers": 4},
    "spanner": {"Singers": 2},
    "tables": {"Singers": 2},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "former_layout", tmp_path / "former")
    return tmp_path / "former"


def configured(folder: Path, kind: str) -> str:
    sink = {"path": str(folder / "out")} if kind == "files" else {}
    node = {
        "source": SOURCE,
        "spool": {"path": str(folder / "spool")},
        "sink": {"type": kind, "dead_letters": str(folder / "dead-letters"), **SINKS[kind], **sink},
    }
    path = folder / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(node))
    return str(path)


def listed(folder: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """The numbers of dead letters by table, as the command lists them."""
    assert main(["list", configured(folder, kind), "--json"]) == 0
    counts = Counter[str]()
    for line in json.loads(capsys.readouterr().out):
        counts[line["table"]] += line["letters"]
    return dict(counts)


@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_finds_its_own_dead_letters_among_those_of_all(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(folder, kind, capsys) == LISTED[kind]


def test_dead_letters_of_files_are_replayed_and_those_of_the_others_stay(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", configured(folder, "files")]) == 0
    assert "2 dead letters accepted, 0 rejected again" in capsys.readouterr().out
    lines = [line for path in (folder / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["payload"]["Id"] for line in lines) == [2, 3]
    assert {kind: listed(folder, kind, capsys) for kind in SINKS} == {**LISTED, "files": {}}


def store_of(kind: str, folder: Path, **named: object) -> DeadLetters:
    config = validated({"source": SOURCE, "sink": {"type": kind, **SINKS[kind], **named, "dead_letters": str(folder)}})
    return DeadLetters.of(spark_sink_type(config), config.sink)


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("0123abcd_files_7_0", ["files"]),
        ("0123abcd_spanner.spanner_7_0", ["spanner"]),
        ("0123abcd_7_0_1", ["bigquery"]),
        ("0123abcd_7_0_89abcdef01234567_1", ["bigquery"]),
        ("0123abcd_tables_0000000000000007_0000000000000009", ["tables"]),
        ("0123abcd_another_7_0", []),
        ("0123abcd_files_of_another_7_0", []),
        ("0123abcd_89abcdef01234567", []),
        ("notes", []),
    ],
)
def test_a_sink_finds_in_the_shared_folder_what_it_wrote_there_and_nothing_else(
    tmp_path: Path, name: str, owners: list[str]
) -> None:
    put(DeadLetters(str(tmp_path)), name, 1)
    assert [kind for kind in SINKS if store_of(kind, tmp_path).files()] == owners


def test_a_sink_with_a_name_has_nothing_in_the_shared_folder(tmp_path: Path) -> None:
    put(DeadLetters(str(tmp_path)), "0123abcd_files_7_0", 1)
    assert not store_of("files", tmp_path, name="archive").files()


def test_a_sink_of_ones_own_finds_in_the_shared_folder_what_it_wrote_there(tmp_path: Path) -> None:
    sink = SqliteConfig(path="db", dead_letters=str(tmp_path / "sqlite"))
    for name in ("0123abcd_sqlite_7_0", "0123abcd_sqlite.sqlite_7_1", "0123abcd_files_7_0", "0123abcd_7_0_1"):
        put(DeadLetters(str(tmp_path)), name, 1)
    found = DeadLetters.of(SINK, sink).files()
    assert [file.name for file in found] == ["0123abcd_sqlite.sqlite_7_1", "0123abcd_sqlite_7_0"]


def test_a_file_that_is_written_again_is_gone_from_the_shared_folder(tmp_path: Path) -> None:
    shared = DeadLetters(str(tmp_path))
    put(shared, "0123abcd_files_7_0", 1)
    put(shared, "0123abcd_files_7_1", 2)
    store = store_of("files", tmp_path)
    put(store, "0123abcd_files_7_0", 3)
    assert [(file.path, file.count) for file in shared.files()] == [("Singers/0123abcd_files_7_1.jsonl", 1)]
    assert [file.path for file in store.files()] == [
        "Singers/0123abcd_files_7_1.jsonl",
        "Singers/0123abcd_files_7_0.jsonl",
    ]
    store.discard("Singers", "0123abcd_files_7")
    assert not store.files()
    assert not shared.files()
