"""Retries of other processes are reported in the spool by those that live, and are alarms everywhere."""

import time
from pathlib import Path

import pytest

from connector.core.health.retries import BACKFILL, SINK, SPANNER, Cause, RetryLog
from connector.core.timestamps import SECOND
from connector.daemon.states.report import status_of, status_text
from connector.spool.consumers import consumers, register
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.storage.failing import FAILING
from connector.spool.writing import initialize
from connector.telemetry import retrying
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.retrying import (
    REPORTED_AFTER,
    RETRYING,
    STALE,
    Attempts,
    Heard,
    RetryReporter,
    attempts,
    reporting_retries,
    retries_of_others,
)

NOW = 1_700_000_000 * SECOND
REFUSED = Cause("cannot write table replica.Albums of BigQuery", detail="it answers 503", hint="Look at it.")


class Process:
    """A process that fails each second from a time on, and looks at what it is to report."""

    def __init__(self, spool: Spool, what: str = SINK, subject: str = "bigquery") -> None:
        self.spool = spool
        self.log = RetryLog()
        self.now = NOW
        self.reporter = RetryReporter(spool, what, subject, log=self.log, clock=lambda: self.now)

    def fails(self, seconds: int, what: str = SINK, part: str = "a task") -> None:
        for _ in range(seconds):
            self.log.failed(what, REFUSED, self.now, part=part)
            self.reporter.look()
            self.now += SECOND

    @property
    def files(self) -> list[str]:
        return [name for name in self.spool.storage.list("consumers") if RETRYING in name]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool.at(tmp_path / "spool")
    initialize(spool, SourceName(project="p", instance="ii", database="d", change_stream="s"), 1, "now", [])
    return spool


def test_what_heals_soon_is_never_written_and_what_lasts_is_until_it_heals(spool: Spool) -> None:
    process = Process(spool)
    process.fails(REPORTED_AFTER // SECOND)
    assert process.files == []
    process.fails(40)
    assert len(process.files) == 1
    (retry,) = retries_of_others(spool, process.now)
    assert (retry.what, retry.subject, retry.since, str(retry.cause)) == (
        *(SINK, "bigquery", NOW),
        "cannot write table replica.Albums of BigQuery (it answers 503)",
    )
    process.log.healed(SINK, part="a task")
    process.reporter.look()
    assert (process.files, retries_of_others(spool, process.now)) == ([], [])


def test_a_document_is_written_every_ten_seconds_at_most(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    process = Process(spool)
    replace = spool.storage.replace

    def counted(path: str, data: bytes) -> None:
        written.append(process.now)
        replace(path, data)

    monkeypatch.setattr(spool.storage, "replace", counted)
    process.fails(60)
    assert 4 <= len(written) <= 6


def test_half_a_minute_passes_until_it_is_an_alarm_and_a_killed_process_raises_none_for_long(spool: Spool) -> None:
    process = Process(spool)
    process.fails(20)
    assert retries_of_others(spool, process.now) == []
    process.fails(20)
    assert retries_of_others(spool, process.now)
    assert retries_of_others(spool, process.now + STALE) == []
    assert process.files
    assert retries_of_others(spool, process.now + 2 * 3600 * SECOND, tidy=True) == []
    assert process.files == []


@pytest.mark.parametrize("fast", [-7200, -60, -20, 0, 20, 60, 7200])
def test_what_a_machine_with_a_wrong_clock_retries_is_an_alarm_of_the_daemon(spool: Spool, fast: int) -> None:
    process, heard, raised = Process(spool), Heard(), []
    process.now += fast * SECOND
    for second in range(60):
        process.fails(1)
        if found := retries_of_others(spool, NOW + second * SECOND, tidy=True, heard=heard):
            raised.append((second, found[0].since))
    assert raised[0][0] <= 30
    assert abs(raised[-1][1] - NOW) <= 20 * SECOND
    assert [second for second, _ in raised] == list(range(raised[0][0], 60)), "it stays"
    ended = NOW + 60 * SECOND + STALE
    assert retries_of_others(spool, ended, tidy=True, heard=heard) == [], "of a process that was killed"


def test_processes_that_fail_at_the_same_are_one_alarm_since_the_first_of_them(spool: Spool) -> None:
    first, second = Process(spool), Process(spool)
    second.now = NOW + 5 * SECOND
    first.fails(40)
    second.fails(40)
    (retry,) = retries_of_others(spool, second.now)
    assert (retry.since, retry.parts) == (NOW, 0)
    first.log.healed(SINK, part="a task")
    first.reporter.look()
    (retry,) = retries_of_others(spool, second.now)
    assert retry.since == NOW + 5 * SECOND


def test_the_partitions_that_executors_cannot_read_are_counted(spool: Spool) -> None:
    processes = [Process(spool, SPANNER, "") for _ in range(2)]
    for number, process in enumerate(processes):
        process.fails(40, SPANNER, f"partition {number}")
    (retry,) = retries_of_others(spool, processes[0].now)
    assert (retry.what, retry.subject, retry.parts) == (SPANNER, "", 2)


def test_a_damaged_document_and_one_of_a_later_version_say_nothing(spool: Spool) -> None:
    spool.storage.replace(f"consumers/files{RETRYING}1", b"{")
    assert retries_of_others(spool, NOW) == []


def test_a_document_is_no_consumer_and_none_is_written_where_there_is_no_spool(spool: Spool, tmp_path: Path) -> None:
    register(spool, "bigquery", now=1)
    Process(spool).fails(40)
    assert [one.consumer for one in consumers(spool)] == ["bigquery"]
    Process(Spool.at(tmp_path / "none")).fails(40)
    assert not (tmp_path / "none").exists()


def test_status_and_page_name_it_also_when_no_daemon_runs(spool: Spool) -> None:
    process = Process(spool)
    process.now = time.time_ns() - 60 * SECOND
    process.fails(60)
    report = status_of(spool, 0)
    assert "ERROR sink_failing: cannot write table replica.Albums of BigQuery (it answers 503), since " in (
        status_text(report, with_errors=False)
    )
    states = ConsumerStates(spool)
    states.read()
    assert [str(retry.cause) for retry in states.retries] == [str(REFUSED)]


def test_a_task_reports_while_it_retries_and_takes_it_back_when_it_ends(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "_LOOK", 0.01)
    monkeypatch.setattr(retrying, "REPORTED_AFTER", 0)
    process = Process(spool)
    FAILING.failed(SINK, Cause("of a task before"), 1, part="gone")
    with reporting_retries(spool, BACKFILL, "files", of_task=True):
        with attempts(lambda _: REFUSED, "table Albums") as tried:
            tried.failed(OSError())
            FAILING.failed(SINK, REFUSED, time.time_ns() + 20 * SECOND, part=tried.part)
            while not process.files:
                time.sleep(0.01)
        document = spool.storage.read(f"consumers/{process.files[0]}").to_pybytes()
        assert b"it answers 503" in document
        assert b"of a task before" not in document
    assert process.files == []


def test_attempts_that_are_over_are_not_retried_any_more() -> None:
    tried = Attempts(lambda _: REFUSED, "table Albums")
    tried.failed(OSError())
    later = time.time_ns() + 60 * SECOND
    assert [retry.attempts for retry in FAILING.lasting(later)] == [1]
    tried.over()
    assert FAILING.lasting(later) == []
