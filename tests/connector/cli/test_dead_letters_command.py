"""`spanner-cdc dead-letters`, which runs a command of the sinks in a process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}
DEAD_LETTER = {"reason": "too large", "event": {"object": "Singers", "payload": "{}"}}

REPLAY = """
import signal, sys, time, types
from contextlib import contextmanager
from pathlib import Path

@contextmanager
def replay_into(config):
    def send(name, rows):
        Path("sent").touch()
        if Path("wait").exists():
            while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
                time.sleep(0.005)
        return [(0, "still too large")] if Path("refuse").exists() else []
    yield types.SimpleNamespace(send=send, tried=lambda table, left: None)

sys.modules["spark_sink.sinks.bigquery.replay"] = types.ModuleType("spark_sink.sinks.bigquery.replay")
sys.modules["spark_sink.sinks.bigquery.replay"].replay_into = replay_into
"""
"""A stand-in for BigQuery in the process that the command starts."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder, with a configuration and two files of dead letters."""
    (tmp_path / "python").mkdir()
    (tmp_path / "python/sitecustomize.py").write_text(REPLAY)
    table = tmp_path / "dead-letters/bigquery/Singers"
    table.mkdir(parents=True)
    for name in "ab":
        (table / f"0{name}_7_0_1.jsonl").write_text(json.dumps(DEAD_LETTER) + "\n")
    configure(tmp_path, type="bigquery", dataset="x")
    return tmp_path


def configure(folder: Path, **sink: object) -> None:
    (folder / "-config.yaml").write_text(yaml.safe_dump({"source": SOURCE, "sink": sink}))


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "connector", "dead-letters", *arguments, "--", "-config.yaml"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = started(folder, *arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "dead-letters/bigquery/Singers").iterdir())


@pytest.mark.long
def test_dead_letters_are_listed(folder: Path) -> None:
    code, out, err = ran(folder, "list", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [{"table": "Singers", "reason": "too large", "letters": 2, "files": 2}]


def test_dead_letters_are_replayed_and_the_exit_code_is_passed_on(folder: Path) -> None:
    assert ran(folder, "replay", "--table", "-Other") == (
        0,
        f"{folder}/dead-letters/bigquery: no dead letters of table -Other, but of Singers\n",
        "",
    )
    (folder / "refuse").touch()
    assert ran(folder, "replay") == (
        1,
        "0 dead letters accepted, 2 rejected again (`spanner-cdc dead-letters list` has the reasons)\n",
        "",
    )
    (folder / "refuse").unlink()
    assert files(folder) == ["0a_7_0_1.jsonl", "0b_7_0_1.jsonl"]
    assert ran(folder, "replay", "--table", "Singers", "--verbose", "--log-format", "json") == (
        0,
        "2 dead letters accepted, 0 rejected again\n",
        "",
    )
    assert files(folder) == []


@pytest.mark.long
def test_a_sink_lists_its_own_dead_letters_only(folder: Path) -> None:
    (folder / "dead-letters/files/Singers").mkdir(parents=True)
    (folder / "dead-letters/files/Singers/0a1b_files_7_0.jsonl").write_text(
        json.dumps({**DEAD_LETTER, "reason": "NaN"}) + "\n"
    )
    assert "2 dead letters in 2 files: too large" in ran(folder, "list")[1]
    configure(folder, type="files")
    code, out, err = ran(folder, "list")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{folder}/dead-letters/files: 1 dead letter in 1 file",
        "  Singers: 1 dead letter in 1 file: NaN",
    ]


@pytest.mark.long
def test_a_signal_is_passed_on_and_the_current_file_is_finished(folder: Path) -> None:
    (folder / "wait").touch()
    process = started(folder, "replay")
    while not (folder / "sent").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (
        130,
        "1 dead letter accepted, 0 rejected again\n1 file not replayed\n",
        "",
    )
    assert files(folder) == ["0b_7_0_1.jsonl"]
