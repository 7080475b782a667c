"""Everything that a self-test makes is deleted, or listed with the command that deletes it."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_sink.self_test import __main__ as command
from spark_sink.self_test.database import Leftovers
from spark_sink.self_test.options import Names, Options
from spark_sink.self_test.report import Check, ProbeStatus, SelfTestReport
from spark_sink.self_test.run import SelfTest
from tests.unread import unread

NAMED = ["--project", "p", "--instance", "i", "--emulator-host", "localhost:1"]


@pytest.fixture
def signals() -> Iterator[None]:
    """The command takes SIGTERM for Ctrl-C in its process, which is that of the tests here."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The databases that self-tests have deleted; each makes one and fails."""
    found: list[str] = []

    def run(_: SelfTest, __: Path, ___: SelfTestReport, left: Leftovers) -> None:
        left.add("database d", "gcloud delete d", lambda: found.append("d"))
        raise OSError("no network")

    monkeypatch.setattr(SelfTest, "_run", run)
    return found


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("streams", [("stderr",), ("stdout",), ("stdout", "stderr")], ids="+".join)
def test_it_deletes_what_it_made_and_keeps_its_exit_code_though_nobody_reads_its_output(
    deleted: list[str], streams: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        for name in streams:
            stack.enter_context(unread(name))
        assert command.main([*NAMED, "--json", "--verbose"]) == 1
    assert deleted == ["d"]


def test_it_deletes_what_it_made_though_its_progress_cannot_be_said(deleted: list[str]) -> None:
    def say(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        SelfTest(Options("p", "i"), Names(), say).run(lambda _: None)
    assert deleted == ["d"]


@pytest.mark.usefixtures("signals", "deleted")
def test_with_json_each_line_of_its_log_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*NAMED, "--verbose", "--log-format", "json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (lines[-1]["action"], lines[-1]["exit_code"]) == ("command_failed", 1)
    assert "no network" in lines[-1]["message"]
    assert "_run" in lines[-1]["frames"]


def test_the_newest_is_deleted_first_and_what_fails_is_listed_with_its_command() -> None:
    left, deleted = Leftovers(), list[str]()

    def fail() -> None:
        raise OSError("no network")

    left.add("database d", "gcloud delete d", lambda: deleted.append("d"))
    left.add("bucket b", "gcloud delete b", fail)
    left.add("table t", "gcloud delete t", lambda: deleted.append("t"))
    assert left.delete() == [("bucket b (no network)", "gcloud delete b")]
    assert deleted == ["t", "d"]
    assert left.delete() == []


def test_a_second_interrupt_lists_all_that_is_left() -> None:
    left = Leftovers()

    def stop() -> object:
        raise KeyboardInterrupt

    left.add("database d", "gcloud delete d", lambda: None)
    left.add("table t", "gcloud delete t", stop)
    assert left.delete() == [("table t", "gcloud delete t"), ("database d", "gcloud delete d")]


def test_a_report_is_bad_if_anything_differs_failed_or_is_left_over() -> None:
    report = SelfTestReport(Options("p", "i"), Names())
    report.checks.append(Check("files", ProbeStatus.SKIPPED, "no Spark"))
    assert report.to_json()["result"] == "good"
    report.left_over.append(("database d", "gcloud delete d"))
    assert report.to_json()["result"] == "bad"
    assert "gcloud delete d" in report.to_text()
    report.left_over.clear()
    report.checks.append(Check("tail", ProbeStatus.DIFFERENT, "1 differences", ("missing: a row",)))
    assert "missing: a row" in report.to_text()
    assert report.to_json()["result"] == "bad"


def test_what_will_be_made_and_may_cost_is_announced_by_name() -> None:
    names = Names("0badcafe")
    lines = Options("p", "i", dataset="d", bucket="gs://b/").announced(names)
    assert [line.split(",")[0] for line in lines] == [
        "makes a database self-test-0badcafe (googlesql) in instance p/i",
        "makes objects below gs://b/self_test_0badcafe/",
        "makes tables self_test_0badcafe_... in BigQuery's dataset p.d",
        "costs some cents of storage",
    ]
    (first, cost) = Options("p", "i", database="mine", emulator_host="localhost:1").announced(names)
    assert (
        first == "makes tables and change streams self_test_0badcafe_... in database mine, and deletes them at its end"
    )
    assert cost == "costs nothing: it runs against an emulator"
