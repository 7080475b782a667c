"""The sink's process of `spanner-cdc run`: what is restarted, how often, and what ends it."""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from connector.config import Config
from connector.core.health.states import END_REACHED, StateRecord, StreamState
from connector.daemon import run as service
from connector.daemon.backfill import BackfillOptions, delivered
from connector.daemon.executors import run_on_executors
from connector.daemon.sink_process import BothHalves, Patience, SinkProcessError
from connector.errors import FAILED_PERMANENTLY, TRANSIENT, DataLostError
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import Backfill, BackfillProgress, TableProgress, TableState
from connector.spool.backfill.records import RecordedBackfill
from connector.spool.lifecycle import write_state
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.daemon.sink_runs import HASTE, Runs, in_a_loop, until


@in_a_loop
async def test_a_sink_that_ends_with_a_transient_error_is_restarted_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(tmp_path, TRANSIENT, "killed", TRANSIENT, 0)
    await runs.process().run()
    assert (runs.number, runs.metrics.sink_restarts) == (4, 3)
    assert runs.metrics.sink_restart_why == "reason 2"


@in_a_loop
async def test_a_sink_without_progress_fails_after_some_attempts_with_the_last_reason(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TRANSIENT)
    with pytest.raises(SinkProcessError) as caught:
        await runs.process().run()
    assert str(caught.value) == ("the Spark sink ended 4 times without progress, at last with code 75: reason 3")
    assert caught.value.exit_code == 1
    assert (runs.number, runs.metrics.sink_restarts) == (4, 3)


@in_a_loop
async def test_a_sink_that_makes_progress_is_restarted_without_limit(tmp_path: Path) -> None:
    runs = Runs(tmp_path, *[TRANSIENT] * 12, 0)
    runs.progress = lambda: runs.number
    await runs.process().run()
    assert runs.number == 13


@in_a_loop
async def test_a_sink_that_ends_without_an_error_though_nothing_asked_it_to_is_restarted(tmp_path: Path) -> None:
    runs = Runs(tmp_path, 0, 0, "waits0", is_done=False)
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number == 3 or running.done())
    process.finish(again=True)
    await running
    assert (runs.number, runs.metrics.sink_restarts) == (3, 2)


@in_a_loop
async def test_a_sink_that_was_to_deliver_the_rest_and_says_that_something_is_left_is_restarted(tmp_path: Path) -> None:
    """Another program has sent it SIGTERM meanwhile."""
    runs = Runs(tmp_path, "waitsleft0", "waits0")
    process = runs.process()
    process.finish(again=True)
    await process.run()
    assert (runs.number, runs.metrics.sink_restarts) == (2, 1)


@in_a_loop
async def test_a_sink_that_always_ends_unasked_fails_after_some_attempts_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(SinkProcessError, match=r"4 times .* with code 0: it was not asked to end: ") as caught:
        await Runs(tmp_path, 0, is_done=False).process().run()
    assert caught.value.exit_code == 1


@in_a_loop
async def test_a_sink_that_is_restarted_for_a_configuration_ends_first_and_no_error_is_counted(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "hangs", "hangs", "waits0")
    process = runs.process()
    await process.restart()  # none runs yet: the first one reads the configuration anyway
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number == 1)
    await process.restart()
    await until(lambda: runs.number == 2)
    await process.restart()
    await until(lambda: runs.number == 3 or running.done())
    process.finish(again=True)
    await running
    assert (runs.number, runs.metrics.sink_restarts) == (3, 0)


@in_a_loop
async def test_a_sink_that_does_not_end_for_a_restart_is_killed_after_as_long_as_a_drain(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "deaf", "waits0")
    process = runs.process(drain=0.1)
    running = asyncio.create_task(process.run())
    await until((tmp_path / "deaf").exists)
    await process.restart()
    await until(lambda: runs.number == 2 or running.done())
    process.finish(again=True)
    await running
    assert (runs.number, runs.metrics.sink_restarts) == (2, 0)


@in_a_loop
async def test_a_sink_that_is_only_being_started_is_restarted_for_a_configuration_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, go_on = Runs(tmp_path, "hangs", "waits0"), asyncio.Event()
    start = asyncio.create_subprocess_exec

    async def slow(*command: str, **options: object) -> Process:
        process = await start(*command, **options)  # type: ignore[arg-type]  # as they were given
        await go_on.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number == 1)
    restarting = asyncio.create_task(process.restart())
    await asyncio.sleep(0)
    assert not restarting.done()
    go_on.set()
    await restarting
    await until(lambda: runs.number == 2)
    process.finish(again=True)
    await running
    assert (runs.number, runs.metrics.sink_restarts) == (2, 0)


@in_a_loop
async def test_a_stop_while_a_sink_ends_for_a_restart_starts_no_other_and_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    runs, deaf = Runs(tmp_path, "deaf"), tmp_path / "deaf"
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: deaf.exists() and deaf.read_text())
    restarting = asyncio.create_task(process.restart())
    await until(lambda: "restarted with the configuration" in caplog.text)
    runs.stop.request()
    process.finish(again=False)
    os.kill(int(deaf.read_text()), SIGKILL)  # or its time is over
    await asyncio.wait({restarting})
    await running
    assert runs.number == 1


@pytest.mark.parametrize("code", [1, 2, 3, FAILED_PERMANENTLY])
@in_a_loop
async def test_any_other_error_is_final(tmp_path: Path, code: int) -> None:
    runs = Runs(tmp_path, code)
    with pytest.raises(SinkProcessError, match=rf"^the Spark sink ended with code {code}: reason 0$"):
        await runs.process().run()
    assert runs.number == 1


def test_the_pauses_grow_up_to_a_bound() -> None:
    assert [Patience().pause(attempt) for attempt in (1, 2, 5, 6, 9)] == [1.0, 2.0, 16.0, 30.0, 30.0]


@in_a_loop
async def test_a_stop_during_a_pause_ends_it_at_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TRANSIENT)
    async with asyncio.timeout(300):
        running = asyncio.create_task(runs.process(Patience(first=3600.0, most=3600.0)).run())
        await until(lambda: runs.metrics.sink_restarts)
        runs.stop.request()
        await running
    assert runs.number == 1


@in_a_loop
async def test_after_a_stop_nothing_is_restarted(tmp_path: Path) -> None:
    runs = Runs(tmp_path, f"waits{TRANSIENT}")
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number)
    runs.stop.request()
    process.finish(again=True)
    with pytest.raises(SinkProcessError, match="reason 0"):
        await running
    assert runs.number == 1


@in_a_loop
async def test_a_sink_that_drains_too_long_after_a_stop_is_ended_and_that_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(tmp_path, "hangs")
    process = runs.process(drain=0.1)
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number)
    runs.stop.request()
    process.finish(again=True)
    async with asyncio.timeout(60):
        await running
    assert runs.number == 1
    assert "took too long; what is not delivered is delivered by the next run" in caplog.text


@in_a_loop
async def test_what_is_left_after_the_daemon_is_delivered_by_a_restarted_process(tmp_path: Path) -> None:
    runs = Runs(tmp_path, f"waits{TRANSIENT}", "waits0")
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number)
    process.finish(again=True)
    async with asyncio.timeout(300):
        await running
    assert runs.number == 2


@in_a_loop
async def test_a_sink_is_killed_when_its_supervisor_is_cancelled(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "waits0")
    running = asyncio.create_task(runs.process().run())
    await until(lambda: runs.number)
    running.cancel()
    async with asyncio.timeout(300):
        await asyncio.wait({running})
    assert running.cancelled()


# The service.


async def read_until_stopped(config: Config, stop: StopRequest, **_: object) -> None:
    await stop.wait()


@in_a_loop
async def test_the_daemon_continues_while_the_sink_is_restarted(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT, TRANSIENT, "waits0")
    monkeypatch.setattr(service, "read", read_until_stopped)
    path = tmp_path / "config.yaml"
    running = asyncio.create_task(service.run(config, path, runs.stop, patience=HASTE))
    await until(lambda: runs.number == 3)
    assert not running.done()
    runs.stop.request()
    async with asyncio.timeout(300):
        await running


@in_a_loop
async def test_a_sink_without_progress_ends_the_service(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)
    monkeypatch.setattr(service, "read", read_until_stopped)
    path = tmp_path / "config.yaml"
    with pytest.raises(SinkProcessError, match="4 times without progress"):
        await service.run(config, path, runs.stop, patience=HASTE)
    assert runs.stop.requested


@in_a_loop
async def test_a_stop_in_a_pause_ends_the_service_at_once_and_without_an_error(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)

    async def read(config: Config, stop: StopRequest, *, metrics: ReaderMetrics, **_: object) -> None:
        await until(lambda: metrics.sink_restarts)
        stop.request()

    monkeypatch.setattr(service, "read", read)
    slow = Patience(first=3600.0, most=3600.0)
    async with asyncio.timeout(300):
        await service.run(config, tmp_path / "config.yaml", runs.stop, patience=slow)
    assert runs.number == 1


@in_a_loop
async def test_the_daemons_error_ends_the_service_though_the_sink_is_in_a_pause(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)

    async def lost(config: Config, stop: StopRequest, *, metrics: ReaderMetrics, **_: object) -> None:
        await until(lambda: metrics.sink_restarts)
        raise DataLostError("gone")

    monkeypatch.setattr(service, "read", lost)
    slow = Patience(first=3600.0, most=3600.0)
    async with asyncio.timeout(300):
        with pytest.raises(DataLostError):
            await service.run(config, tmp_path / "config.yaml", runs.stop, patience=slow)


# One application that reads and writes.


@in_a_loop
async def test_an_application_that_reads_on_but_delivers_nothing_makes_no_progress(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(*[TRANSIENT] * 8, FAILED_PERMANENTLY)
    monkeypatch.setattr(Spool, "latest", lambda _: runs.number)
    with pytest.raises(SinkProcessError, match="4 times without progress"):
        await run_on_executors(config, tmp_path / "config.yaml", runs.stop, patience=HASTE)


@in_a_loop
async def test_an_application_that_reads_on_makes_progress_while_its_sink_waits_for_a_backfill(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(*[TRANSIENT] * 8, FAILED_PERMANENTLY)
    monkeypatch.setattr(Spool, "latest", lambda _: runs.number)
    monkeypatch.setattr("connector.daemon.executors.unfinished_tables", lambda *_: ["Singers"])
    sink = config.sink.model_copy(update={"type": "spanner"})
    with pytest.raises(SinkProcessError, match=f"ended with code {FAILED_PERMANENTLY}"):
        await run_on_executors(
            config.model_copy(update={"sink": sink}), tmp_path / "config.yaml", runs.stop, patience=HASTE
        )
    assert runs.number == 9


@pytest.mark.parametrize(("reason", "starts"), [(END_REACHED, 1), ("the daemon was stopped", 2)])
@in_a_loop
async def test_an_application_that_ends_before_the_end_is_reached_is_restarted(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, reason: str, starts: int
) -> None:
    runs = stub(0, "waits0")
    write_state(Spool.at(config.spool.path), StateRecord(StreamState.NOT_STARTED, 1, reason))
    running = asyncio.create_task(run_on_executors(config, tmp_path / "config.yaml", runs.stop, patience=HASTE))
    await until(lambda: runs.number == 2 or running.done())
    runs.stop.request()
    await running
    assert runs.number == starts


@pytest.mark.parametrize(("delivered", "grows"), [(3, False), (7, True)])
def test_what_is_read_is_progress_only_while_nothing_is_to_be_delivered(delivered: int, *, grows: bool) -> None:
    halves = BothHalves()
    numbers = [halves.progress(delivered=delivered, read=read, is_idle=delivered >= 7) for read in (4, 5)]
    assert (numbers[1] > numbers[0]) is grows


@in_a_loop
async def test_the_process_of_a_backfill_that_ends_before_all_is_delivered_is_restarted(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(0)
    document = Backfill(number=1, timestamp=1, why="start", dialect="googlesql", tables=(), recorded_at=1)
    own = Spool.at(tmp_path / "own")

    def found(*_: object) -> RecordedBackfill:
        state: TableState = "read" if runs.number < 2 else "done"
        progress = BackfillProgress(updated=1, tables=(TableProgress(table="T", state=state),))
        return RecordedBackfill(document, own, progress)

    monkeypatch.setattr("connector.daemon.backfill.find", found)
    await delivered(
        config,
        tmp_path / "c.yaml",
        runs.stop,
        document,
        options=BackfillOptions(),
        metrics=runs.metrics,
        patience=HASTE,
    )
    assert runs.number == 2
