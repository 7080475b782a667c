"""Every program of docs/embedding.md runs as it stands, against a server that speaks Spanner's protocol."""

import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import connector
from connector import Epoch, Spool
from emulator import Scenario, ScriptedServer
from tests.connector.api import embedding_page
from tests.connector.api.embedding_page import output, programs
from tests.connector.api.streams import drawn, expected, serving, settings, transactions, written

SCENARIO = drawn()
MIDDLE = SCENARIO.committed[len(SCENARIO.committed) // 2].commit_timestamp_ns


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(SCENARIO) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return embedding_page.written(tmp_path)


def contents(database: Path) -> dict[tuple[str, str], object]:
    """The rows that the page's sink has stored."""
    with sqlite3.connect(database) as opened:
        return {(name, key): json.loads(values) for name, key, values in opened.execute('SELECT * FROM "rows"')}


def final_rows(scenario: Scenario) -> dict[tuple[str, str], object]:
    """The rows that there are after all transactions."""
    rows: dict[tuple[str, str], object] = {}
    for transaction in expected(scenario):
        for table, mod_type, key, values in transaction:
            rows[table, json.dumps(key)] = values
            if mod_type == "DELETE":
                del rows[table, json.dumps(key)]
    return rows


def test_every_python_block_of_the_page_is_a_program_that_a_test_runs() -> None:
    blocks = embedding_page.PAGE.read_text(encoding="utf-8").count("```python")
    here = Path(__file__).read_text(encoding="utf-8")
    assert blocks == len(programs())
    assert all(f'"{name}"' in here for name in programs())


def test_the_configuration_of_the_page_is_valid() -> None:
    config = connector.load_config(yaml.safe_load(embedding_page.configuration()))
    assert config.source.change_stream == "Everything"


def test_transactions_are_printed_whole_and_in_commit_order(server: ScriptedServer, folder: Path) -> None:
    written(folder / "config.yaml", settings(server))
    lines = output(folder, "print_transactions.py").splitlines()
    committed = transactions(SCENARIO)
    headings = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    assert [int(lines[number].split()[0]) for number in headings] == [of[0].commit_timestamp_ns for of in committed]
    sizes = [after - before - 1 for before, after in zip(headings, [*headings[1:], len(lines)], strict=True)]
    assert sizes == [len(of) for of in committed]


def test_a_second_run_resumes_after_the_first_ones_checkpoint(server: ScriptedServer, folder: Path) -> None:
    written(folder / "config.yaml", settings(server, end=MIDDLE))
    first = output(folder, "resume.py").splitlines()
    assert output(folder, "resume.py") == ""
    written(folder / "config.yaml", settings(server))
    second = output(folder, "resume.py").splitlines()
    committed = transactions(SCENARIO)
    assert 0 < len(first) < len(committed)
    assert [int(line.split()[-1]) for line in first + second] == [len(of) for of in committed]


def test_the_sink_of_the_page_holds_the_final_rows(server: ScriptedServer, folder: Path) -> None:
    for end in (MIDDLE, None):
        written(folder / "config.yaml", settings(server, end=end))
        output(folder, "sqlite_sink.py")
    assert contents(folder / "replica.db") == final_rows(SCENARIO)


def test_the_daemon_drains_on_a_signal_and_its_spool_is_read_into_arrow_and_by_a_sink(
    server: ScriptedServer, folder: Path
) -> None:
    written(folder / "config.yaml", settings(server, ends=False, spool=folder / "spool"))
    last = SCENARIO.committed[-1].commit_timestamp_ns
    with embedding_page.started(folder, "daemon.py") as process:
        deadline = time.monotonic() + 300
        while not any(epoch.high >= last for epoch in sealed(folder)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "drained\n"), err

    output(folder, "spool_sink.py")
    assert contents(folder / "from_spool.db") == final_rows(SCENARIO)

    told = output(folder, "spool_to_arrow.py")
    assert f"{len(SCENARIO.committed)} events" in told
    assert f"replica is done with epoch {Spool(folder / 'spool').latest}" in told


def sealed(folder: Path) -> list[Epoch]:
    spool = Spool(folder / "spool")
    return list(spool.epochs()) if spool.latest else []


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ({}, 0, "epoch 1 rows"),
        ({"change_stream": "Nothing"}, 2, "the configuration is refused:"),
        ({"start": "2020-01-01T00:00:00Z"}, 3, "Spanner no longer retains the data:"),
    ],
)
def test_errors_are_handled_by_kind(
    source: dict[str, object], code: int, message: str, server: ScriptedServer, folder: Path
) -> None:
    written(folder / "config.yaml", settings(server, source=source))
    assert message in output(folder, "errors.py", code=code)
