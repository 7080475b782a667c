"""A sink's process that fails is an alarm wherever somebody looks, whoever supervises it, until it delivers again."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from connector.config import Config, validated
from connector.core.health.alarms import Facts, alarms
from connector.core.health.retries import BACKFILL, Cause
from connector.core.health.states import END_REACHED, StateRecord, StreamState
from connector.core.timestamps import SECOND
from connector.daemon import run as service
from connector.daemon.sink import run_sink
from connector.daemon.sink_process import Patience, ReportedAs, SinkProcess, SinkProcessError
from connector.daemon.states.daemon import living
from connector.daemon.states.report import facts_of, status_of, status_text
from connector.errors import FAILED_PERMANENTLY, TRANSIENT, DataLostError, SpoolError
from connector.reader.stopping import StopRequest
from connector.spool.backfill.requests import write_request
from connector.spool.consumers import record
from connector.spool.lifecycle import state_of, write_state
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, reports_of, write_report
from connector.spool.writing import SpoolWriter, checkpoint, initialize
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.retrying import RETRYING
from tests.connector.builders import AT
from tests.connector.daemon.sink_runs import HASTE, Runs, in_a_loop, until
from tests.connector.spool.backfill.builders import recorded
from tests.connector.spool.sealing import ENVELOPE, everything, sealed


@in_a_loop
async def test_a_sink_that_is_restarted_again_and_again_is_an_alarm_until_it_makes_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.daemon.sink_process._LOOK", 0.01)
    done = [0]
    runs = Runs(tmp_path, TRANSIENT, TRANSIENT, "waits0", epochs=lambda: done[0])
    process = runs.process()

    def failing() -> list[str]:
        return [str(retry.cause) for retry in runs.metrics.failing.lasting(time.time_ns() + 100 * SECOND)]

    running = asyncio.create_task(process.run())
    while runs.number < 3:  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.01)
    assert failing() == ["the Spark sink ends with errors and is restarted (code 75: reason 1)"]
    done[0] = 1
    while failing():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    process.finish(again=False)
    await running


@in_a_loop
async def test_a_sink_that_is_restarted_because_a_service_was_silent_for_long_is_an_alarm_at_once(
    tmp_path: Path,
) -> None:
    def failing() -> list[str]:
        return [str(retry.cause) for retry in runs.metrics.failing.lasting(time.time_ns())]

    for code, expected in (
        (f"unanswered{TRANSIENT}", ["the Spark sink ends with errors and is restarted (code 75: reason 0)"]),
        (TRANSIENT, []),
    ):
        (tmp_path / str(code)).mkdir()
        runs = Runs(tmp_path / str(code), code, "waits0")
        process = runs.process()
        running = asyncio.create_task(process.run())
        while runs.number < 2:  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.01)
        assert failing() == expected
        process.finish(again=False)
        await running


def with_a_spool(config: Config) -> Spool:
    spool = Spool.at(config.spool.path)
    initialize(spool, config.source.name, time.time_ns(), "now", [], default_schema="d", before=None)
    return spool


@pytest.mark.parametrize(("code", "state"), [(1, "Failed"), (FAILED_PERMANENTLY, "Failed permanently")])
@in_a_loop
async def test_a_failed_sink_is_the_state_an_alarm_and_an_error_of_status_and_its_code_is_the_services(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, state: str
) -> None:
    async def read_with_a_state(config: Config, stop: StopRequest, **_: object) -> None:
        async with living(spool, stop):
            await stop.wait()

    spool, runs = with_a_spool(config), stub(code)
    monkeypatch.setattr(service, "read", read_with_a_state)
    path = tmp_path / "config.yaml"
    with pytest.raises(SinkProcessError, match="reason 0") as failure:
        await service.run(config, path, runs.stop, patience=HASTE)
    assert failure.value.exit_code == code
    report = status_of(spool, 0)
    text = status_text(report, with_errors=True)
    assert text.splitlines()[0].startswith(f"{state} since ")
    for name in ("stream_failed", "sink_failed"):
        assert f"ERROR {name}" in text
    assert text.count("reason 0") >= 3
    assert not cast("dict[str, object]", report["health"])["healthy"]


@in_a_loop
async def test_a_sink_that_fails_after_the_end_was_reached_makes_the_stream_fail(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_to_the_end(config: Config, stop: StopRequest, **_: object) -> None:
        async with living(spool, stop):
            pass

    spool, runs = with_a_spool(config), stub("waits1")
    monkeypatch.setattr(service, "read", read_to_the_end)
    with pytest.raises(SinkProcessError):
        await service.run(config, tmp_path / "config.yaml", runs.stop)
    assert state_of(spool).state is StreamState.FAILED


def into_spanner(folder: Path) -> Config:
    source = {"project": "p", "instance": "in", "database": "d", "change_stream": "s"}
    sink = {"type": "spanner", "database": "e", "dead_letters": str(folder / "dead")}
    return validated({"source": source, "spool": {"path": str(folder / "spool")}, "sink": sink})


def with_an_epoch(config: Config) -> Spool:
    spool = Spool.at(config.spool.path)
    header = initialize(spool, config.source.name, AT, "now", [], default_schema="d", before=None)
    sealed(SpoolWriter(spool, header, checkpoint(spool, header), ENVELOPE, everything))
    return spool


@in_a_loop
async def test_an_end_is_an_error_while_the_sink_waits_for_a_backfill_that_is_not_done(
    stub: Callable[..., Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_to_the_end(config: Config, stop: StopRequest, **_: object) -> None:
        async with living(spool, stop):
            pass

    config = into_spanner(tmp_path)
    spool, runs = with_an_epoch(config), stub("waits0")
    recorded(spool, spool.header(), "A")
    monkeypatch.setattr(service, "read", read_to_the_end)

    async def run() -> None:
        await service.run(config, tmp_path / "config.yaml", StopRequest(drain_timeout=60 * SECOND))

    with pytest.raises(SpoolError, match=r"backfill 1, which is not done.*`spanner-cdc backfill CONFIG`") as failure:
        await run()
    assert failure.value.exit_code == 1
    assert "backfill 1" in status_text(status_of(spool, 0), with_errors=True)
    write_request(spool, ["A"], "stop")
    with pytest.raises(SpoolError, match=r"--resume TABLE"):
        await run()
    assert runs.number == 2
    record(spool, "spanner", spool.latest(), now=1)
    await run()


@pytest.mark.parametrize("reader", ["process", "executors"])
@in_a_loop
async def test_a_stop_is_no_error_whatever_the_sink_waits_for(
    stub: Callable[..., Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    async def read_until_stopped(config: Config, stop: StopRequest, **_: object) -> None:
        async with living(spool, stop):
            await stop.wait()

    config = into_spanner(tmp_path)
    config = config.model_copy(update={"source": config.source.model_copy(update={"reader": reader})})
    spool, runs = with_an_epoch(config), stub("waits0")
    recorded(spool, spool.header(), "A")
    monkeypatch.setattr(service, "read", read_until_stopped)
    running = asyncio.create_task(service.run(config, tmp_path / "config.yaml", runs.stop))
    await until(lambda: runs.number)
    runs.stop.request()
    await running


@in_a_loop
async def test_executors_that_reach_the_end_while_the_sink_waits_for_a_backfill_are_an_error(
    stub: Callable[..., Runs], tmp_path: Path
) -> None:
    config = into_spanner(tmp_path)
    config = config.model_copy(update={"source": config.source.model_copy(update={"reader": "executors"})})
    spool, runs = with_an_epoch(config), stub("0")
    recorded(spool, spool.header(), "A")
    write_state(spool, StateRecord(StreamState.NOT_STARTED, 1, END_REACHED))
    with pytest.raises(SpoolError, match=r"backfill 1, which is not done"):
        await service.run(config, tmp_path / "config.yaml", runs.stop)
    assert state_of(spool).state is StreamState.FAILED


@in_a_loop
async def test_a_sink_that_runs_alone_and_fails_is_an_alarm_until_it_delivers_and_leaves_the_daemons_state(
    stub: Callable[..., Runs], config: Config, tmp_path: Path
) -> None:
    spool, runs = with_a_spool(config), stub(1)
    write_state(spool, StateRecord(StreamState.RUNNING, 1, seen=time.time_ns()))
    with pytest.raises(SinkProcessError):
        await run_sink(config, tmp_path / "config.yaml", runs.stop)
    (alarm,) = alarms(facts_of(spool, 0, time.time_ns()))
    assert (alarm.name, alarm.subject, "reason 0" in alarm.message) == ("sink_failed", "files", True)
    assert state_of(spool).state is StreamState.RUNNING
    write_report(spool, "files", report_of(spool, "files").delivered(1, 1, 1))
    assert alarms(facts_of(spool, 0, time.time_ns())) == []


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every failure an alarm at once."""
    monkeypatch.setattr("connector.daemon.sink_process._LOOK", 0.01)
    monkeypatch.setattr("connector.telemetry.retrying.REPORTED_AFTER", 0)
    for name in ("LASTING", "_REPEATED"):
        monkeypatch.setattr(f"connector.core.health.retries.{name}", 0)


async def named(spool: Spool) -> str:
    """The output of `status` once it names a sink that is restarted."""
    while "sink_failing" not in (text := status_text(status_of(spool, 0), with_errors=False)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return text


@in_a_loop
async def test_a_sink_that_runs_alone_and_is_restarted_again_and_again_is_named_everywhere_until_it_makes_progress(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, in_haste: None
) -> None:
    spool, runs, metrics, now = (
        with_a_spool(config),
        stub(TRANSIENT, TRANSIENT, "waits0"),
        ReaderMetrics(),
        time.time_ns,
    )
    write_state(spool, StateRecord(StreamState.RUNNING, 1, seen=now()))
    metrics.reported(reports_of(spool))
    path, consumers = tmp_path / "config.yaml", ConsumerStates(spool)
    running = asyncio.create_task(run_sink(config, path, runs.stop, patience=HASTE))
    text = await named(spool)
    assert "ERROR sink_failing: the Spark sink ends with errors and is restarted (code 75: reason " in text
    assert "WARNING sink_restarted: the sink was restarted " in text
    await until(lambda: runs.number == 3)
    consumers.read()
    metrics.reported(reports_of(spool))
    daemon = {alarm.name: alarm.message for alarm in raised(metrics, consumers)}
    assert "code 75: reason " in daemon["sink_failing"]
    assert daemon["sink_restarted"].startswith("the sink was restarted 2 times")
    record(spool, "files", 1, now=1)
    await until(lambda: "sink_failing" not in status_text(status_of(spool, 0), with_errors=False))
    runs.stop.request()
    await running
    assert [name for name in spool.storage.list("consumers") if RETRYING in name] == []


@in_a_loop
async def test_status_names_a_sink_that_is_restarted_after_the_end_was_reached(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_haste: None
) -> None:
    async def read_to_the_end(config: Config, stop: StopRequest, **_: object) -> None:
        async with living(spool, stop):
            pass

    spool, runs = with_a_spool(config), stub("waits75", "waits75", "waits75", "waits75", 0)
    monkeypatch.setattr(service, "read", read_to_the_end)
    patience = Patience(attempts=9, first=0.1, most=0.1)
    running = asyncio.create_task(service.run(config, tmp_path / "c.yaml", runs.stop, patience=patience))
    text = await named(spool)
    assert text.startswith("Not started since ")
    assert "the Spark sink ends with errors and is restarted (code 75: reason " in text
    await running
    assert "sink_failing" not in status_text(status_of(spool, 0), with_errors=False)


@in_a_loop
async def test_a_daemon_that_has_failed_waits_for_the_sink_no_longer_than_a_stop_does(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub("hangs")

    async def fails(config: Config, stop: StopRequest, **_: object) -> None:
        await until(lambda: runs.number)
        raise SpoolError("the disk is full")

    monkeypatch.setattr(service, "read", fails)
    hasty = config.model_copy(update={"drain_timeout": SECOND // 10})
    async with asyncio.timeout(60):
        with pytest.raises(SpoolError, match="the disk is full"):
            await service.run(hasty, tmp_path / "config.yaml", runs.stop)
    assert not runs.stop.requested


@in_a_loop
async def test_what_is_sealed_before_lost_data_is_delivered_however_long_that_takes(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, ends, cut = stub("waits0"), list[bool](), SinkProcess.finish

    async def lost(config: Config, stop: StopRequest, **_: object) -> None:
        await until(lambda: runs.number)
        raise DataLostError("gone")

    def finish(process: SinkProcess, *, again: bool, limited: bool) -> None:
        ends.append(limited)
        cut(process, again=again, limited=limited)

    monkeypatch.setattr(SinkProcess, "finish", finish)
    monkeypatch.setattr(service, "read", lost)
    with pytest.raises(DataLostError):
        await service.run(config, tmp_path / "config.yaml", runs.stop)
    assert ends == [False]


def of_backfill(runs: Runs, number: int, spool: Spool, metrics: ReaderMetrics) -> SinkProcess:
    reported_as = ReportedAs("the process of the backfill", BACKFILL, spool, "files", str(number))
    return SinkProcess(
        runs.command, progress=lambda: 0, stop=runs.stop, drain=60, metrics=metrics, patience=HASTE,
        is_done=lambda: True, reported_as=reported_as,
    )  # fmt: skip


@in_a_loop
async def test_the_process_of_a_backfill_that_works_does_not_end_the_alarm_of_another(
    config: Config, tmp_path: Path
) -> None:
    spool, metrics = with_a_spool(config), ReaderMetrics()
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    failing, works = Runs(folders[0], TRANSIENT, TRANSIENT, "waits0"), Runs(folders[1], 0)
    running = asyncio.create_task((process := of_backfill(failing, 1, spool, metrics)).run())
    await until(lambda: failing.number == 3)
    await of_backfill(works, 2, spool, metrics).run()
    (retry,) = metrics.failing.lasting(time.time_ns() + 100 * SECOND)
    assert (retry.what, retry.subject, retry.cause.detail) == (BACKFILL, "files", "reason 1")
    (alarm,) = alarms(Facts(time.time_ns(), StateRecord(StreamState.RUNNING, 0), retries=[retry]))
    assert "partition" not in alarm.message
    process.finish(again=False)
    await running
    assert not metrics.failing.lasting(time.time_ns() + 100 * SECOND)


@in_a_loop
async def test_the_process_of_a_backfill_reports_no_other_failure_and_leaves_no_report(
    config: Config, tmp_path: Path
) -> None:
    spool, metrics = with_a_spool(config), ReaderMetrics()
    cause, now = Cause("it fails", "", "", ""), time.time_ns() - 100 * SECOND
    metrics.failing.failed(BACKFILL, cause, now)  # one that has ended with an error

    def notes() -> list[str]:
        return [name for name in spool.storage.list("consumers") if RETRYING in name]

    runs = Runs(tmp_path, TRANSIENT, "waits0")
    running = asyncio.create_task((process := of_backfill(runs, 2, spool, metrics)).run())
    await until(lambda: runs.number == 2)
    assert not notes()
    metrics.failing.failed(BACKFILL, cause, now, subject="files", part="1")  # another one
    process.finish(again=False)
    await running
    assert not notes()
