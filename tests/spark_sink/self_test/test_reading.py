"""Commands of a self-test: one that fails is a check with its words, and none is awaited for longer than it must be."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_sink.self_test.commands import Done, SelfTestCommands
from spark_sink.self_test.options import Names, Options
from spark_sink.self_test.reading import StreamReading
from spark_sink.self_test.report import ProbeStatus, SelfTestReport
from spark_sink.self_test.run import SelfTest
from spark_sink.self_test.tables import CHANGED, MUTABLE, WHOLE
from spark_sink.self_test.workload import Committed

BROKEN = (sys.executable, "-c", "import sys; sys.exit('it is broken')")


def test_an_audit_that_ends_without_a_report_is_a_check_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, names = Options("p", "i"), Names()
    report = SelfTestReport(options, names)
    test = cast("Any", SimpleNamespace(options=options, names=names, id="d", committed=[]))
    monkeypatch.setattr(StreamReading, "_spool_differences", lambda *_: [])
    reading = StreamReading(test, SelfTestCommands(tmp_path, BROKEN), tmp_path, report)
    reading.check_spool(WHOLE, 0)
    _, audit = report.checks
    assert audit.name == "audit of the spool of the stream whole"
    assert (audit.status, audit.detail) == (ProbeStatus.FAILED, "exit code 1: it is broken")


def test_a_daemon_is_drained_once_the_last_commit_is_sealed_and_not_at_the_end_of_its_minute() -> None:
    awaited: list[int] = []

    def finish(last: int) -> Done:
        awaited.append(last)
        return Done(0, b"", "")

    @contextmanager
    def live(_kind: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(finish=finish)

    test = SimpleNamespace(
        clock_skew=lambda: 0.0,
        streams=[WHOLE],
        refused={CHANGED: "no", MUTABLE: "no"},
        write=lambda: None,
        committed=[Committed(5, ()), Committed(7, ())],
        now=lambda: 9,
    )
    options, names = Options("p", "i"), Names()
    report = SelfTestReport(options, names)
    reading = SimpleNamespace(test=test, report=report, live=live)
    for name in ("check_spool", "check_tail", "observe_events"):
        setattr(reading, name, lambda *_: [])
    end = SelfTest(options, names, lambda _: None)._write_and_read(cast("Any", reading), 1)
    assert (awaited, end) == ([7], 9)
