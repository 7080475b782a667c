"""The daemon before it reads, and when it is cancelled."""

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from connector.config import Config, validated
from connector.core.filters import RecordFilter
from connector.core.health.alarms import alarms
from connector.core.health.states import RetentionPeriod, StreamState
from connector.core.timestamps import SECOND
from connector.daemon import read as reading
from connector.daemon import run as service
from connector.daemon.read import read
from connector.daemon.states import daemon, retention
from connector.daemon.states.daemon import living
from connector.daemon.states.reloading import OnReload
from connector.daemon.states.report import facts_of
from connector.errors import LateRecordError, UnreachableError
from connector.reader.stopping import StopRequest
from connector.spool.lifecycle import request_pause
from connector.spool.reading import Spool
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_background, in_thread
from tests.connector.daemon.sink_runs import Runs, in_a_loop, until


def test_a_daemon_that_is_cancelled_while_it_looks_for_the_spool_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, may_end = threading.Event(), threading.Event()

    def header(spool: Spool) -> None:
        looks.set()
        assert may_end.wait(60)
        raise FileNotFoundError

    source = {
        "project": "project",
        "instance": "instance",
        "database": "db",
        "change_stream": "Stream",
        "emulator_host": "localhost:1",
    }
    config = validated(
        {"source": source, "spool": {"path": str(tmp_path / "spool")}, "sink": {"path": str(tmp_path / "out")}}
    )

    async def main() -> None:
        reading = asyncio.create_task(read(config, StopRequest(drain_timeout=60 * SECOND)))
        assert await asyncio.to_thread(looks.wait, 60)
        reading.cancel()
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        await asyncio.wait({reading})
        assert reading.cancelled()

    monkeypatch.setattr(Spool, "header", header)
    asyncio.run(main())


@in_a_loop
async def test_a_service_that_is_cancelled_before_it_reads_waits_until_its_daemon_has_recorded_that(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, starts, may_end, recorded = stub("hangs"), asyncio.Event(), threading.Event(), list[str]()

    async def starting(config: Config, stop: StopRequest, **_: object) -> None:
        starts.set()
        try:
            await asyncio.Event().wait()
        finally:
            await in_thread(functools.partial(may_end.wait, 60))
            recorded.append("Not started")

    monkeypatch.setattr(service, "read", starting)
    running = asyncio.create_task(service.run(config, tmp_path / "config.yaml", runs.stop))
    await starts.wait()
    running.cancel()
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    await asyncio.wait({running})
    assert running.cancelled()
    assert recorded == ["Not started"]


@in_a_loop
async def test_a_service_that_is_cancelled_while_its_sink_delivers_the_rest_ends_the_sink_first(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_to_the_end(config: Config, stop: StopRequest, **_: object) -> None:
        pass

    runs = stub("hangs")
    monkeypatch.setattr(service, "read", read_to_the_end)
    running = asyncio.create_task(service.run(config, tmp_path / "config.yaml", runs.stop))
    await until(lambda: runs.number)
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() in ("sink", "backfill")] == []


@in_a_loop
async def test_a_service_restarts_its_sink_for_options_that_the_sink_reads_alone(
    stub: Callable[..., Runs], config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, numbers = stub("hangs", "hangs", "hangs", "waits0"), list[int]()

    async def reloading(config: Config, stop: StopRequest, *, on_reload: OnReload, **_: object) -> None:
        await until(lambda: runs.number == 1)
        await on_reload(config, {"spool.keep"})
        numbers.append(runs.number)
        await on_reload(config, {"spark.trigger"})
        await until(lambda: runs.number == 2)
        await on_reload(config, {"source.tables", "spool.keep"})
        await until(lambda: runs.number == 3)
        await on_reload(config, {"source.backfill.new_tables"})  # its cuts name tables whose backfills are to come
        await until(lambda: runs.number == 4)

    monkeypatch.setattr(service, "read", reloading)
    await service.run(config, tmp_path / "config.yaml", runs.stop)
    assert (numbers, runs.number) == ([1], 4)


@in_a_loop
async def test_a_retention_period_that_is_altered_while_the_daemon_runs_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 86_400 * SECOND
    answers: Iterator[Exception | RetentionPeriod | None] = iter(
        [UnreachableError("no answer"), ValueError("a period in another form"), None, RetentionPeriod(day)]
    )

    async def request() -> RetentionPeriod | None:
        answer = next(answers, RetentionPeriod(day))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(retention, "_INTERVAL", 0)
    spool, metrics = Spool.at(tmp_path), ReaderMetrics()
    metrics.retention = 7 * day
    async with living(spool, StopRequest(drain_timeout=SECOND)) as life:
        await life.retains(RetentionPeriod(7 * day, is_default=True))
        async with in_background(retention.follow_retention(life, metrics, request), name="retention"):
            await until(lambda: metrics.retention == day)
        assert facts_of(spool, 0, 0).state.retention == life.record.retention == RetentionPeriod(day)


@in_a_loop
async def test_a_retention_period_that_is_altered_while_the_daemon_is_paused_is_followed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, spool, drains = 86_400 * SECOND, Spool.at(config.spool.path), asyncio.Event()
    paused = asyncio.Event()

    async def retention_now() -> RetentionPeriod:
        return RetentionPeriod(day if paused.is_set() else 7 * day)

    stream = SimpleNamespace(
        config=config.source,
        client=SimpleNamespace(host="h", proxy=None),
        end=lambda **_: None,
        warn_of_tables=lambda: None,
        retention=RetentionPeriod(7 * day),
        retention_now=retention_now,
        kept_tables=(),
        filter=RecordFilter(),
    )

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        yield stream

    @asynccontextmanager
    async def reader_and_sink(*_: object) -> AsyncIterator[tuple[SimpleNamespace, SimpleNamespace]]:
        yield SimpleNamespace(run=drains.wait, stop=drains.set), SimpleNamespace(pruned=lambda _: nullcontext())

    async def start(*_: object) -> SimpleNamespace:
        return SimpleNamespace(spool=spool, end=None, at=SimpleNamespace(watermark=1, epoch=1))

    async def nothing(*_: object) -> int:
        return 0

    for name, stub in {
        "opened": opened,
        "_reader_and_sink": reader_and_sink,
        "_start": start,
        "_with_backfill": nothing,
        "current_timestamp": nothing,
    }.items():
        monkeypatch.setattr(reading, name, stub)
    monkeypatch.setattr(retention, "_INTERVAL", 0.001)
    monkeypatch.setattr(daemon, "_POLL", 0.001)
    metrics, stop = ReaderMetrics(), StopRequest(drain_timeout=60 * SECOND)
    task = asyncio.create_task(read(config, stop, metrics=metrics))
    try:
        await until(lambda: metrics.retention and metrics.state().state is StreamState.RUNNING)
        request_pause(spool, 1)
        await until(lambda: metrics.state().state is StreamState.PAUSED)
        paused.set()
        await until(lambda: metrics.retention == day)
    finally:
        stop.request()
        await task


@in_a_loop
async def test_a_late_record_that_has_stopped_a_daemon_is_an_alarm_of_the_next_one_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, stop, metrics = Spool.at(tmp_path), StopRequest(drain_timeout=SECOND), ReaderMetrics()
    with pytest.raises(LateRecordError):
        async with living(spool, stop):
            raise LateRecordError("a record is late")
    async with living(spool, stop) as life:
        metrics.errors = lambda: life.errors
        consumers = ConsumerStates(spool)
        assert "records_were_late" in [alarm.name for alarm in raised(metrics, consumers)]
        assert "records_were_late" in [alarm.name for alarm in alarms(facts_of(spool, 0, time.time_ns()))]
        later = time.time_ns() + 3601 * SECOND
        monkeypatch.setattr(time, "time_ns", lambda: later)
        assert "records_were_late" not in [alarm.name for alarm in raised(metrics, consumers)]
