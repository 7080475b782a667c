"""The sink's process of `spanner-cdc run`: what is restarted, how often, and what ends it."""

import asyncio
import functools
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ParamSpec, cast

import pytest

from connector.commands import run as service
from connector.commands.sink_process import Patience, SinkError, SinkProcess
from connector.commands.states.daemon import living
from connector.commands.states.report import facts_of, status_of, status_text
from connector.config import Config, load
from connector.core.health.alarms import alarms
from connector.core.health.states import StateRecord, StreamState
from connector.core.timestamps import SECOND
from connector.errors import FAILED_PERMANENTLY, REASON_TO, TRANSIENT, DataLostError
from connector.reader.stopping import Stop
from connector.spool.lifecycle import state_of, write_state
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from connector.spool.writing import initialize
from connector.telemetry.metrics import ReaderMetrics

HASTE = Patience(attempts=4, first=0.01, most=0.02)
STUB = """
import os, sys
from pathlib import Path

folder = Path(sys.argv[1])
runs = folder / "runs"
number = len(runs.read_text()) if runs.exists() else 0
runs.open("a").write("x")
codes = (folder / "codes").read_text().split()
code = codes[min(number, len(codes) - 1)]
if code.startswith("waits"):
    while os.read(0, 4096):
        pass
    code = code.removeprefix("waits")
if code == "killed":
    os.kill(os.getpid(), 9)
if code != "0":
    os.write(int(os.environ["%s"]), f"reason {number}".encode())
sys.exit(int(code))
"""
"""A sink that ends with the codes of a file in turn, the last of them for ever."""


class Runs:
    """A sink whose processes end with `codes`; `epochs` is how far it is before and after each."""

    def __init__(self, folder: Path, *codes: str | int, epochs: Callable[[], int] = lambda: 0) -> None:
        (folder / "codes").write_text(" ".join(map(str, codes)))
        (folder / "stub.py").write_text(STUB % REASON_TO)
        self.folder = folder
        self.command = [sys.executable, str(folder / "stub.py"), str(folder)]
        self.stop = Stop(drain_timeout=5 * SECOND)
        self.metrics = ReaderMetrics()
        self.progress = epochs

    def process(self, patience: Patience = HASTE) -> SinkProcess:
        return SinkProcess(
            self.command,
            {},
            progress=self.progress,
            stop=self.stop,
            drain=5.0,
            metrics=self.metrics,
            patience=patience,
        )

    @property
    def number(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text()) if path.exists() else 0


Parameters = ParamSpec("Parameters")


def in_a_loop(test: Callable[Parameters, Coroutine[object, object, None]]) -> Callable[Parameters, None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Parameters.args, **fixtures: Parameters.kwargs) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return run


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - what another process does
        await asyncio.sleep(0.005)


@in_a_loop
async def test_a_sink_that_ends_with_a_transient_error_is_restarted_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(tmp_path, TRANSIENT, "killed", TRANSIENT, 0)
    await runs.process().run()
    assert (runs.number, runs.metrics.sink_restarts) == (4, 3)


@in_a_loop
async def test_a_sink_without_progress_fails_after_some_attempts_with_the_last_reason(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TRANSIENT)
    with pytest.raises(SinkError) as caught:
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


@pytest.mark.parametrize("code", [1, 2, 3, FAILED_PERMANENTLY])
@in_a_loop
async def test_any_other_error_is_final(tmp_path: Path, code: int) -> None:
    runs = Runs(tmp_path, code)
    with pytest.raises(SinkError, match=rf"^the Spark sink ended with code {code}: reason 0$"):
        await runs.process().run()
    assert runs.number == 1


def test_the_pauses_grow_up_to_a_bound() -> None:
    assert [Patience().pause(attempt) for attempt in (1, 2, 5, 6, 9)] == [1.0, 2.0, 16.0, 30.0, 30.0]


@in_a_loop
async def test_a_stop_during_a_pause_ends_it_at_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path, TRANSIENT)
    async with asyncio.timeout(60):
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
    with pytest.raises(SinkError, match="reason 0"):
        await running
    assert runs.number == 1


@in_a_loop
async def test_what_is_left_after_the_daemon_is_delivered_by_a_restarted_process(tmp_path: Path) -> None:
    runs = Runs(tmp_path, f"waits{TRANSIENT}", "waits0")
    process = runs.process()
    running = asyncio.create_task(process.run())
    await until(lambda: runs.number)
    process.finish(again=True)
    async with asyncio.timeout(60):
        await running
    assert runs.number == 2


@in_a_loop
async def test_a_sink_is_killed_when_its_supervisor_is_cancelled(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "waits0")
    running = asyncio.create_task(runs.process().run())
    await until(lambda: runs.number)
    running.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait({running})
    assert running.cancelled()


# The service.


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(
        "source: {project: p, instance: in, database: d, change_stream: S}\n"
        f"spool: {{path: {tmp_path / 'spool'}}}\nsink: {{path: {tmp_path / 'out'}}}\n"
    )
    return load(path)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runs]:
    """Makes `python -m spark_sink` the stub."""

    def made(*codes: str | int) -> Runs:
        runs = Runs(tmp_path, *codes)
        package = tmp_path / "spark_sink"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text((tmp_path / "stub.py").read_text().replace("sys.argv[1]", "'.'"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return runs

    return made


async def read_until_stopped(config: Config, stop: Stop, **_: object) -> None:
    await stop.wait()


@in_a_loop
async def test_the_daemon_continues_while_the_sink_is_restarted(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT, TRANSIENT, "waits0")
    monkeypatch.setattr(service, "read", read_until_stopped)
    path = tmp_path / "config.yaml"
    running = asyncio.create_task(
        service.run(config, path, runs.stop, emulator_host=None, verbose=False, patience=HASTE)
    )
    await until(lambda: runs.number == 3)
    assert not running.done()
    runs.stop.request()
    async with asyncio.timeout(60):
        await running


@in_a_loop
async def test_a_sink_without_progress_ends_the_service(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)
    monkeypatch.setattr(service, "read", read_until_stopped)
    path = tmp_path / "config.yaml"
    with pytest.raises(SinkError, match="4 times without progress"):
        await service.run(config, path, runs.stop, emulator_host=None, verbose=False, patience=HASTE)
    assert runs.stop.requested


@in_a_loop
async def test_a_stop_in_a_pause_ends_the_service_at_once_and_without_an_error(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)

    async def read(config: Config, stop: Stop, *, metrics: ReaderMetrics, **_: object) -> None:
        await until(lambda: metrics.sink_restarts)
        stop.request()

    monkeypatch.setattr(service, "read", read)
    slow = Patience(first=3600.0, most=3600.0)
    async with asyncio.timeout(60):
        await service.run(config, tmp_path / "config.yaml", runs.stop, emulator_host=None, verbose=False, patience=slow)
    assert runs.number == 1


@in_a_loop
async def test_the_daemons_error_ends_the_service_though_the_sink_is_in_a_pause(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub(TRANSIENT)

    async def lost(config: Config, stop: Stop, *, metrics: ReaderMetrics, **_: object) -> None:
        await until(lambda: metrics.sink_restarts)
        raise DataLostError("gone")

    monkeypatch.setattr(service, "read", lost)
    slow = Patience(first=3600.0, most=3600.0)
    async with asyncio.timeout(60):
        with pytest.raises(DataLostError):
            await service.run(
                config, tmp_path / "config.yaml", runs.stop, emulator_host=None, verbose=False, patience=slow
            )


@in_a_loop
async def test_a_sink_that_is_restarted_again_and_again_is_an_alarm_until_it_makes_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.commands.sink_process._LOOK", 0.01)
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


def with_a_spool(config: Config) -> Spool:
    spool = Spool.at(config.spool.path)
    initialize(spool, config.source.name, time.time_ns(), "now", [], default_schema="d", before=None)
    return spool


@pytest.mark.parametrize(("code", "state"), [(1, "Failed"), (FAILED_PERMANENTLY, "Failed permanently")])
@in_a_loop
async def test_a_failed_sink_is_the_state_an_alarm_and_an_error_of_status_and_its_code_is_the_services(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, state: str
) -> None:
    async def read_with_a_state(config: Config, stop: Stop, **_: object) -> None:
        async with living(spool, stop):
            await stop.wait()

    spool, runs = with_a_spool(config), stub(code)
    monkeypatch.setattr(service, "read", read_with_a_state)
    path = tmp_path / "config.yaml"
    with pytest.raises(SinkError, match="reason 0") as failure:
        await service.run(config, path, runs.stop, emulator_host=None, verbose=False, patience=HASTE)
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
    async def read_to_the_end(config: Config, stop: Stop, **_: object) -> None:
        async with living(spool, stop):
            pass

    spool, runs = with_a_spool(config), stub("waits1")
    monkeypatch.setattr(service, "read", read_to_the_end)
    with pytest.raises(SinkError):
        await service.run(config, tmp_path / "config.yaml", runs.stop, emulator_host=None, verbose=False)
    assert state_of(spool).state is StreamState.FAILED


@in_a_loop
async def test_a_sink_that_runs_alone_and_fails_is_an_alarm_until_it_delivers_and_leaves_the_daemons_state(
    stub: Callable[..., Runs], config: Config, tmp_path: Path
) -> None:
    spool, runs = with_a_spool(config), stub(1)
    write_state(spool, StateRecord(StreamState.RUNNING, 1, seen=time.time_ns()))
    with pytest.raises(SinkError):
        await service.run_sink(config, tmp_path / "config.yaml", runs.stop, emulator_host=None, verbose=False)
    (alarm,) = alarms(facts_of(spool, 0, time.time_ns()))
    assert (alarm.name, alarm.subject, "reason 0" in alarm.message) == ("sink_failed", "files", True)
    assert state_of(spool).state is StreamState.RUNNING
    write_report(spool, "files", report_of(spool, "files").delivered(1, 1, 1))
    assert alarms(facts_of(spool, 0, time.time_ns())) == []
