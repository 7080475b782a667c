"""`spanner-cdc self-test` against the official emulator: good where all is good, and 1 where anything differs."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Emulator, connect
from spark_sink.self_test import __main__ as command
from spark_sink.self_test.probes import change_stream
from spark_sink.self_test.reading import StreamReading
from spark_sink.self_test.run import SelfTest
from tests.integration.commands import Background

pytestmark = pytest.mark.emulator

PROJECT, INSTANCE = "self-test-project", "self-test-instance"
FAULTY = (sys.executable, str(Path(__file__).with_name("faulty_program.py")))


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The command takes SIGTERM for Ctrl-C in its process, which is that of the tests here."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    host = os.environ.get("SPANNER_EMULATOR_HOST")
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    os.environ.pop("SPANNER_EMULATOR_HOST", None)
    if host:
        os.environ["SPANNER_EMULATOR_HOST"] = host


@pytest.fixture
def arguments(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(change_stream, "WATCHED", 0.5)
    return ["--project", PROJECT, "--instance", INSTANCE, "--emulator-host", emulator.host, "--json", "--seed", "0"]


def remaining(emulator: Emulator) -> list[str]:
    """The databases of the emulator that self-tests have left, and their instance."""
    instance = connect(emulator.host, PROJECT).instance(INSTANCE)
    return [INSTANCE, *(one.name for one in instance.list_databases())] if instance.exists() else []


def report_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.long
def test_it_is_good_on_postgresql_and_deletes_what_it_made(
    emulator: Emulator, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main([*arguments, "--dialect", "postgresql", "--without-spark"])
    out, err = capsys.readouterr()
    report = report_of(out)
    assert code == 0, report
    assert [(one["name"], one["status"]) for one in report["checks"]] == [
        ("daemon and spool of the stream whole", "good"),
        ("audit of the spool of the stream whole", "good"),
        ("tail of the stream whole", "good"),
        ("tail of the stream changed", "good"),
        ("tail of the stream mutable", "skipped"),
        ("sinks", "skipped"),
    ]
    verdicts = {one["about"]: one["verdict"] for one in report["observations"]}
    assert verdicts["both bounds of a query are inclusive (IMMUTABLE_KEY_RANGE)"] == "confirmed"
    assert "too far in the past" in str(report["observations"])
    assert verdicts["splits that are asked for by AddSplitPoints"] == "not probed"
    seen = {one["about"]: one["detail"] for one in report["observations"]}
    assert seen["splits that are asked for by AddSplitPoints"].startswith("refused: UNIMPLEMENTED")
    assert seen["a heartbeat of 100 ms (IMMUTABLE_KEY_RANGE)"].startswith("accepted: ")
    assert "costs nothing" in err
    assert remaining(emulator) == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_record_that_is_dropped_and_a_row_that_is_altered_are_named_and_not_what_the_emulator_skips(
    emulator: Emulator, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    differences = StreamReading._spool_differences
    skipped = iter([["missing: a transaction that the emulator has skipped"]])
    monkeypatch.setattr(
        StreamReading, "_spool_differences", lambda self, kind: next(skipped, None) or differences(self, kind)
    )
    monkeypatch.setattr(SelfTest, "_probe", lambda *_: None)  # takes some seconds, and is tested elsewhere
    code = command.main(arguments, FAULTY)
    report = report_of(capsys.readouterr().out)
    assert code == 1
    bad = {one["name"]: one["differences"] for one in report["checks"] if one["status"] not in ("good", "skipped")}
    assert set(bad) - {"files: verify"} == {"tail of the stream whole", "files: its events"}
    assert "live queries of the emulator" in {one["about"] for one in report["observations"]}
    (omitted,) = bad["tail of the stream whole"]
    assert omitted.startswith("missing: INSERT self_test_")
    (altered,) = bad["files: its events"]
    assert altered.startswith("different: INSERT self_test_")
    assert altered.endswith("note has another value")
    assert remaining(emulator) == []


def test_a_command_that_fails_ends_it_and_what_was_made_is_deleted(
    emulator: Emulator, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = (sys.executable, "-c", "import sys; sys.exit('it is broken')")
    code = command.main([*arguments, "--without-spark"], broken)
    report = report_of(capsys.readouterr().out)
    assert code == 1
    assert report["error"] == "`spanner-cdc read` ended before its start is recorded: it is broken"
    assert remaining(emulator) == []


def test_a_database_that_is_named_keeps_what_was_in_it(
    emulator: Emulator, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect(emulator.host, PROJECT)
    instance = client.instance(INSTANCE, f"{client.project_name}/instanceConfigs/emulator-config", node_count=1)
    instance.create().result(60)
    try:
        database = instance.database("mine", ddl_statements=["CREATE TABLE Mine (Id INT64) PRIMARY KEY (Id)"])
        database.create().result(60)
        broken = (sys.executable, "-c", "")
        assert command.main([*arguments, "--without-spark", "--database", "mine"], broken) == 1
        assert report_of(capsys.readouterr().out)["left_over"] == []
        database.reload()
        assert [statement.split()[:3] for statement in database.ddl_statements] == [["CREATE", "TABLE", "Mine"]]
        assert command.main([*arguments, "--without-spark", "--database", "other"]) == 2
        assert "there is no database other" in report_of(capsys.readouterr().out)["error"]
    finally:
        instance.delete()


def test_ctrl_c_deletes_what_was_made(emulator: Emulator, tmp_path: Path) -> None:
    arguments = ["--project", PROJECT, "--instance", INSTANCE, "--without-spark"]
    with Background("self-test", *arguments, log=tmp_path / "log", host=emulator.host) as running:
        running.await_log("while a daemon reads")
        done = running.stop(signal.SIGINT)
    assert done.code == 130, done.err
    assert remaining(emulator) == []
