"""A daemon's states while it is asked for several things at once."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import cast

import pytest
import yaml

from connector.config.loading import load
from connector.core.health.retries import Cause
from connector.core.health.states import END_REACHED, NEVER, RetentionPeriod, StateRecord, StreamState
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.read import read
from connector.daemon.states import daemon, sink_reports, watching
from connector.daemon.states.daemon import Lifecycle, living
from connector.daemon.states.report import kept_by, objects_report, status_of, status_text
from connector.daemon.states.watching import _TableFaults
from connector.errors import SpoolError, StreamError
from connector.reader.stopping import StopRequest
from connector.spool.lifecycle import (
    PAUSE,
    ErrorEvent,
    add_error,
    errors_of,
    pause_of,
    request_pause,
    request_resume,
    state_of,
)
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.sink_report import NOTHING, SinkFailure, SinkReport, write_report
from connector.spool.storage import local
from connector.spool.writing import initialize
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.exporter import figures
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_background
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, pruned_whenever_read, sealed, writer_of


class Reader:
    """A reader that returns once it is stopped, and then when it is allowed to."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.drained = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()

    async def run(self) -> None:
        await self.stopped.wait()
        await self.drained.wait()


def within_seconds(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 300))


def test_a_pause_that_is_taken_back_does_not_return_after_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, durable = Spool.at(tmp_path), list[list[str]]()
    monkeypatch.setattr(local, "sync_folder", lambda folder: durable.append([path.name for path in folder.iterdir()]))
    request_pause(spool, 1)
    durable.clear()
    assert request_resume(spool)
    assert durable == [[]], "the folder was made durable without it"
    assert not request_resume(spool)


def test_a_pause_that_is_taken_back_while_the_reader_drains_does_not_end_the_daemon(tmp_path: Path) -> None:
    async def work() -> None:
        spool, reader, stop = Spool.at(tmp_path), Reader(), StopRequest(drain_timeout=60 * SECOND)
        life = Lifecycle(spool, NEVER)
        async with life.pausing(reader, stop):
            running = asyncio.create_task(reader.run())
            request_pause(spool, 1)
            await life.look()
            await reader.stopped.wait()
            assert request_resume(spool)
            await life.look()
            reader.drained.set()
            await running
        assert await life.continues(stop)
        assert not await life.continues(stop), "a reader that has reached its end"

    within_seconds(work())


def test_a_stop_ends_a_daemon_that_drains_for_a_pause(tmp_path: Path) -> None:
    async def work() -> None:
        spool, reader, stop = Spool.at(tmp_path), Reader(), StopRequest(drain_timeout=60 * SECOND)
        request_pause(spool, 1)
        life = Lifecycle(spool, NEVER)
        await life.look()
        async with life.pausing(reader, stop):
            await reader.stopped.wait()
            stop.request()
        assert not await life.continues(stop)
        assert life.record.state is StreamState.DRAINING, "it was never paused"

    within_seconds(work())


def test_a_sign_of_life_does_not_undo_a_later_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, released = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        writing.set()
        assert released.wait(60)
        add_error(*arguments)  # type: ignore[arg-type]

    async def work() -> None:
        spool = Spool.at(tmp_path)
        monkeypatch.setattr(daemon, "add_error", slow)
        monkeypatch.setattr(daemon, "_POLL", 0.01)
        life = Lifecycle(spool, NEVER)
        await life.enter(StreamState.RUNNING)
        monkeypatch.setattr(daemon, "SIGN_OF_LIFE", 0.0)
        reporting = asyncio.create_task(life.report("x", "a slow bucket"))
        await asyncio.to_thread(writing.wait, 60)
        entering = asyncio.create_task(life.enter(StreamState.PAUSED))
        looks = Looks(life.look)
        monkeypatch.setattr(life, "look", looks)
        living_on = asyncio.create_task(life.keep_alive())
        await looks.reached(1)  # its sign of life waits behind the state
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(reporting, entering)
        await looks.reached(3)
        living_on.cancel()
        await asyncio.wait({living_on})
        assert state_of(spool).state is life.record.state is StreamState.PAUSED

    within_seconds(work())


class Looks:
    """Counts looks for a pause."""

    def __init__(self, look: Callable[[], Coroutine[object, object, None]]) -> None:
        self._look = look
        self._number = 0
        self._changed = asyncio.Event()

    async def __call__(self) -> None:
        await self._look()
        self._number += 1
        self._changed.set()

    async def reached(self, number: int) -> None:
        while self._number < number:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.parametrize(("rewrite_interval", "seconds"), [(0.0, 1.0), (1.0, 5.0)])
def test_a_bucket_which_counts_reads_is_asked_less_often(
    rewrite_interval: float, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        spool = Spool.at(tmp_path)
        monkeypatch.setattr(spool.storage, "rewrite_interval", rewrite_interval)

        async def sleep(given: float) -> None:
            raise StreamError(f"{given}")

        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(StreamError, match=f"{seconds}"):
            await Lifecycle(spool, NEVER).keep_alive()

    within_seconds(work())


def test_an_error_of_several_lines_is_one_line_in_the_state(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path)

    async def work() -> None:
        async with living(spool, StopRequest(drain_timeout=60 * SECOND)):
            raise StreamError("it broke:\n  here\n  and there.", hint="Mend it.")

    with pytest.raises(StreamError):
        within_seconds(work())
    found = state_of(spool)
    assert (found.reason, found.hint) == ("it broke: here and there", "Mend it.")
    (event,) = errors_of(spool)
    assert (event.message, event.hint) == ("it broke: here and there", "Mend it.")


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 9, "since": "later"}'])
def test_a_request_to_pause_that_cannot_be_understood_pauses_and_can_be_taken_back(
    content: bytes, tmp_path: Path
) -> None:
    spool = Spool.at(tmp_path)
    spool.storage.replace(PAUSE, content)

    async def work() -> None:
        life = Lifecycle(spool, StateRecord(StreamState.NOT_STARTED, 0))
        await life.look()
        assert life.pause_requested

    within_seconds(work())
    request_pause(spool, 1)
    assert request_resume(spool)
    assert pause_of(spool) is None


def test_retention_that_runs_out_while_the_stream_is_paused_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        spool, now = Spool.at(tmp_path), time.time_ns()
        metrics = ReaderMetrics(sealed_watermark=now - 900 * SECOND, newest_epoch=1)
        life = Lifecycle(spool, NEVER)
        metrics.state = lambda: life.record
        await life.enter(StreamState.PAUSED)
        await life.retains(RetentionPeriod(1000 * SECOND))
        reported, report = asyncio.Event(), life.report

        async def reporting(*arguments: str, **options: str) -> None:
            await report(*arguments, **options)
            reported.set()

        monkeypatch.setattr(life, "report", reporting)
        async with in_background(watching.watch(life, spool, metrics), name="alarms"):
            await reported.wait()
        (event,) = errors_of(spool)
        assert (event.code, event.severity) == ("retention_running_out", "ERROR")

    within_seconds(work())


def test_each_table_that_stops_is_an_error_of_its_own_also_while_another_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm has one name for all tables: the second one was no event, and no event named a table."""
    spool, failed = Spool.at(tmp_path), {"table": "Lost", "state": "failed", "why": "no such column"}
    backfill = {"number": 1, "timestamp": "T", "why": "start", "lost": False, "tables": [failed]}
    monkeypatch.setattr(watching, "INTERVAL", 0.01)

    async def reported(metrics: ReaderMetrics, *steps: dict[str, str]) -> list[str]:
        """The tables of which errors are reported while sinks have stopped some, one step after another."""
        life, events = Lifecycle(spool, NEVER, errors_of(spool)), asyncio.Queue[str]()
        report, found = life.report, list[str]()

        async def reporting(*arguments: str, **options: str) -> None:
            await report(*arguments, **options)
            if options.get("table"):
                events.put_nowait(options["table"])

        monkeypatch.setattr(life, "report", reporting)
        metrics.state = lambda: life.record
        async with in_background(watching.watch(life, spool, metrics), name="alarms"):
            for stopped in steps:
                metrics.reported({"sink": NOTHING.model_copy(update={"stopped": stopped})})
                found.append(await events.get())
        return found + [events.get_nowait() for _ in range(events.qsize())]

    async def work() -> None:
        first = ReaderMetrics(backfills=[dict(backfill)])
        assert await reported(first, {}, {"A": "no key"}, {"A": "no key", "B": "no key"}) == ["Lost", "A", "B"]
        after = ReaderMetrics(backfills=[dict(backfill)])
        assert await reported(after, dict.fromkeys("ABC", "no key")) == ["C"], "a restart repeats none"

    within_seconds(work())
    found = {one["table"]: cast("list[dict[str, str]]", one["errors"]) for one in objects_report(spool)}
    assert {table: [error["code"] for error in errors] for table, errors in found.items()} == {
        "A": ["table_stopped"],
        "B": ["table_stopped"],
        "C": ["table_stopped"],
        "Lost": ["backfill_failed"],
    }
    assert found["Lost"][0]["message"] == "backfill 1: no such column"


def test_hundreds_of_stopped_tables_leave_room_for_other_errors_also_after_restarts() -> None:
    stopped = {f"T{number:03}": "no key" for number in range(150)}
    recorded: list[ErrorEvent] = [ErrorEvent(time=1, severity="ERROR", code="daemon_failed", message="it failed")]

    def look(faults: _TableFaults, *names: str) -> list[str]:
        metrics = ReaderMetrics()
        metrics.reported({"sink": NOTHING.model_copy(update={"stopped": {name: stopped[name] for name in names}})})
        found = faults.started(metrics)
        recorded.extend(
            ErrorEvent(time=2, severity="ERROR", code=one.code, table=one.table, message=one.message) for one in found
        )
        return [one.table or one.code for one in found]

    faults = _TableFaults(recorded)
    first, all_names = list(stopped)[-15:], list(stopped)
    assert look(faults, *first) == first, "each has an event of its own"
    assert look(faults, *all_names) == [*all_names[:5], "more_tables"]
    assert look(faults, *all_names) == []
    assert look(_TableFaults(recorded), *all_names) == [], "a restart repeats none"
    assert look(faults, *all_names[:2]) == []
    assert look(faults, *all_names[:3], *first) == [all_names[2], *first], "those that have ended may recur"
    assert len(recorded) == 38


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (StreamState.RUNNING, "", "active"),
        (StreamState.PAUSED, "", "paused"),
        (StreamState.FAILED, "", "failed"),
        (StreamState.NOT_STARTED, "the daemon was stopped", "not_started"),
        (StreamState.NOT_STARTED, END_REACHED, "completed"),
    ],
)
def test_the_changes_of_tables_are_as_their_stream_is_and_excluded_tables_are_not_listed(
    state: StreamState, reason: str, expected: str, tmp_path: Path
) -> None:
    spool = Spool.at(tmp_path)
    initialize(spool, NAME, NOW, "now", [SINGERS, TableSchema.of("Audit", SINGERS.columns)])
    within_seconds(Lifecycle(spool, NEVER).enter(state, reason=reason))
    config = tmp_path / "config.yaml"
    source = {"project": "p", "instance": "in", "database": "db", "change_stream": "S", "tables": {"exclude": ["A*"]}}
    config.write_text(yaml.safe_dump({"source": source, "spool": {"path": str(tmp_path)}}))
    (found,) = objects_report(spool, kept_by(str(config)))
    assert (found["table"], found["streaming"]) == (SINGERS.table, {"state": expected})
    assert len(objects_report(spool, kept_by(str(tmp_path)))) == 2, "of a path alone, the configuration is not known"


def test_what_a_daemon_retries_is_read_from_its_spool_until_it_works_again(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path)

    async def work() -> None:
        metrics = ReaderMetrics()
        life = Lifecycle(spool, NEVER)
        life.failing = lambda now: metrics.failing.lasting(now + 60 * SECOND)
        await life.enter(StreamState.RUNNING)
        assert status_of(spool, 0)["health"] == {"healthy": True, "summary": "nothing is sealed yet", "alarms": []}
        metrics.failing.failed("spanner", Cause("Spanner does not answer", "UNAVAILABLE", "x", "Look."), 1, part="t")
        await life.breathe()
        report = status_of(spool, 0)
        assert "ERROR spanner_failing: Spanner does not answer (UNAVAILABLE: x), since 1970-" in status_text(
            report, with_errors=False
        )
        assert cast("dict[str, object]", report["health"])["healthy"] is False
        metrics.failing.healed("spanner", part="t")
        await life.breathe()
        assert cast("dict[str, object]", status_of(spool, 0)["health"])["healthy"] is True

    within_seconds(work())


def test_a_daemon_that_is_restarted_after_an_error_is_unhealthy_until_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.at(tmp_path)
    monkeypatch.setattr(daemon, "_POLL", 0.01)

    def alarms() -> list[str]:
        health = cast("dict[str, list[dict[str, str]]]", status_of(spool, 0)["health"])
        return [alarm["name"] for alarm in health["alarms"]]

    async def work() -> None:
        with pytest.raises(StreamError):
            async with living(spool, StopRequest(drain_timeout=60 * SECOND)):
                raise StreamError("permission denied")
        assert alarms() == ["stream_failed"]
        async with living(spool, StopRequest(drain_timeout=60 * SECOND)) as life:
            await life.breathe()
            assert alarms() == ["daemon_failing"]
            await life.enter(StreamState.RUNNING)
            assert alarms() == ["daemon_failing"]
            looks = Looks(life.look)
            monkeypatch.setattr(life, "look", looks)
            life.has_read = lambda: True
            await looks.reached(2)  # after the first one its record is written
            assert alarms() == []

    within_seconds(work())


def test_a_daemon_that_ends_while_the_spool_refuses_a_sign_of_life_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing, may_refuse = threading.Event(), threading.Event()

    def refused(spool: Spool) -> None:
        refusing.set()
        assert may_refuse.wait(60)
        raise SpoolError("the bucket does not answer")

    async def work() -> None:
        async with living(Spool.at(tmp_path), StopRequest(drain_timeout=60 * SECOND)):
            monkeypatch.setattr(daemon, "pause_of", refused)
            assert await asyncio.to_thread(refusing.wait, 60)
            asyncio.get_running_loop().call_later(0.1, may_refuse.set)

    monkeypatch.setattr(daemon, "_POLL", 0.01)
    asyncio.run(asyncio.wait_for(work(), 30))


def test_the_status_of_a_spool_that_is_pruned_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool.at(tmp_path / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    writer = writer_of(spool)
    sealed(writer, 9)
    pruned_whenever_read(spool, writer, monkeypatch)
    report = status_of(spool, 0, NOW)
    assert report["watermark"] == {"sealed": format_rfc3339(AT - 1 + 9 * SECOND), "sealed_lag_seconds": 51.0}
    assert spool.floor() == 4


def test_a_clock_that_is_set_back_delays_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        now = NOW
        life = Lifecycle(Spool.at(tmp_path), NEVER, clock=lambda: now)
        await life.enter(StreamState.RUNNING)
        now -= 3 * 3600 * SECOND
        looks = Looks(life.look)
        monkeypatch.setattr(life, "look", looks)
        monkeypatch.setattr(daemon, "_POLL", 0.01)
        alive = asyncio.create_task(life.keep_alive())
        await looks.reached(2)  # after the first one its record is written
        alive.cancel()
        await asyncio.wait({alive})
        assert life.record.seen == now

    within_seconds(work())


def test_a_daemon_that_is_started_while_the_stream_is_paused_reports_what_sinks_have_and_nothing_unknown(
    tmp_path: Path,
) -> None:
    spool, metrics = Spool.at(tmp_path / "spool"), ReaderMetrics()
    source = SourceName(project="project", instance="instance", database="database", change_stream="Everything")
    initialize(spool, source, AT, "now", [SINGERS])
    assert not {"spool_bytes", "stopped_tables", "dead_letters", "incomplete_rows"} & figures(metrics).keys()
    failure = SinkFailure(time=NOW, message="permission denied")
    report = NOTHING.after(1, 3, {"Singers": "a type changed"}).model_copy(update={"failure": failure})
    write_report(spool, "files", report)
    request_pause(spool, NOW)
    node = {"source": source.model_dump(), "spool": {"path": spool.path}, "sink": {"path": str(tmp_path / "out")}}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**node, "status": {"port": 0}}))
    stop = StopRequest(drain_timeout=60 * SECOND)
    stop.request()
    within_seconds(read(load(path), stop, metrics=metrics))
    known = figures(metrics)
    assert (known["dead_letters"], known["stopped_tables"]) == (3, 1)
    assert "spool_bytes" not in known
    found = {alarm.name for alarm in raised(metrics, ConsumerStates(spool))}
    assert {"sink_failed", "tables_stopped", "dead_letters"} <= found


def test_what_sinks_report_while_the_stream_is_paused_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        spool, metrics, reported = Spool.at(tmp_path), ReaderMetrics(), asyncio.Event()

        def counts(m: ReaderMetrics, reports: dict[str, SinkReport], **more: int) -> None:
            count(m, reports, **more)
            if reports:
                reported.set()

        count = ReaderMetrics.reported
        monkeypatch.setattr(ReaderMetrics, "reported", counts)
        monkeypatch.setattr(sink_reports, "INTERVAL", 0.01)
        async with sink_reports.collecting(spool, metrics):
            assert figures(metrics)["dead_letters"] == 0
            write_report(spool, "files", NOTHING.after(1, 3, {}))
            await reported.wait()
            assert figures(metrics)["dead_letters"] == 3

    within_seconds(work())
