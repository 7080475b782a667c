"""A spool and dead letters of an older program, when sinks without names shared a folder of dead letters.

``former_layout`` was written by that program. One of its tables has the name of a sink.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from spark_sink.dead_letters_command import main

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
    """How many dead letters each table has, as the command lists them."""
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
