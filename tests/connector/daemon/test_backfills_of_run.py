"""The backfills beside a stream are delivered two at a time, and the service ends once they are."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import Config, validated
from connector.core.health.retries import BACKFILL, Retry
from connector.core.timestamps import SECOND
from connector.daemon import backfills_of_run
from connector.daemon.backfills_of_run import BackfillsOfRun
from connector.daemon.due_backfills import header_for_backfill
from connector.daemon.sink_process import Patience
from connector.errors import ConfigurationError, UnreachableError
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import Backfill
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.daemon.sink_runs import in_a_loop, until

FILES: Mapping[str, object] = {"type": "files"}
SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}


def document(number: int) -> Backfill:
    return Backfill(number=number, timestamp=1, why="start", dialect="googlesql", tables=(), recorded_at=1)


def backfills(
    sink: Mapping[str, object] = FILES, on_failure: Callable[[Exception], None] = lambda _: None, **rules: object
) -> BackfillsOfRun:
    config = validated({"source": {**SOURCE, "backfill": rules}, "sink": sink})
    metrics, stop = ReaderMetrics(), StopRequest(drain_timeout=SECOND)
    return BackfillsOfRun(config, Path("c.yaml"), stop, metrics=metrics, patience=Patience(), on_failure=on_failure)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the backfills that were delivered."""
    found: list[int] = []

    async def delivered(config: object, path: object, stop: object, one: Backfill, **_: Any) -> None:
        await asyncio.sleep(0)
        found.append(one.number)

    monkeypatch.setattr(backfills_of_run, "delivered", delivered)
    return found


@in_a_loop
async def test_what_is_due_is_delivered_also_if_reading_has_ended(done: list[int]) -> None:
    beside = backfills()
    running = asyncio.create_task(beside.run())
    await asyncio.sleep(0)
    beside.add(document(1))
    beside.finish()
    await running
    assert done == [1]
    idle = backfills()
    idle.finish()
    await idle.run()
    assert done == [1]


@pytest.mark.parametrize(
    ("sink", "most"),
    [(FILES, 2), ({"type": "spanner", "instance": "i", "database": "e"}, 1)],
    ids=["files", "spanner"],
)
def test_two_are_delivered_at_once_and_into_spanner_one(
    monkeypatch: pytest.MonkeyPatch, sink: Mapping[str, object], most: int
) -> None:
    running, seen = set[int](), list[set[int]]()
    begun, ended = dict[int, asyncio.Event](), dict[int, asyncio.Event]()

    async def delivered(config: object, path: object, stop: object, one: Backfill, **_: Any) -> None:
        running.add(one.number)
        begun[one.number].set()
        seen.append(set(running))
        await ended[one.number].wait()
        running.remove(one.number)

    async def run() -> None:
        for events in (begun, ended):
            events.update({number: asyncio.Event() for number in (1, 2, 3)})
        beside = backfills(sink)
        for number in ended:
            beside.add(document(number))
        beside.finish()
        task = asyncio.create_task(beside.run())
        for number in (2, 3, 1) if most == 2 else (1, 2, 3):
            await begun[number].wait()
            ended[number].set()
        await task

    monkeypatch.setattr(backfills_of_run, "delivered", delivered)
    asyncio.run(asyncio.wait_for(run(), 60))
    assert seen == ([{1}, {1, 2}, {1, 3}] if most == 2 else [{1}, {2}, {3}])


@in_a_loop
async def test_a_backfill_that_fails_ends_no_other_and_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, failed, failures = asyncio.Event(), asyncio.Event(), list[Exception]()

    def on_failure(error: Exception) -> None:
        failures.append(error)
        failed.set()

    async def delivered(config: object, path: object, stop: object, one: Backfill, **_: Any) -> None:
        if one.number == 1:
            raise UnreachableError("Spanner does not answer")
        await may_end.wait()

    monkeypatch.setattr(backfills_of_run, "delivered", delivered)
    beside = backfills(on_failure=on_failure)
    beside.add(document(1))
    beside.add(document(2))
    beside.finish()
    task = asyncio.create_task(beside.run())
    await failed.wait()
    assert not task.done()
    may_end.set()
    with pytest.raises(UnreachableError):
        await task
    assert len(failures) == 1


@in_a_loop
async def test_after_a_stop_no_further_backfill_is_started(done: list[int]) -> None:
    beside = backfills()
    beside.add(document(1))
    beside._stop.request()
    beside.finish()
    await beside.run()
    assert done == []


@in_a_loop
async def test_an_unexpected_error_of_a_look_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(config: object) -> Backfill | None:
        raise KeyError("not expected")

    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    failures = list[Exception]()
    with pytest.raises(KeyError):
        await backfills(on_failure=failures.append, new_tables=True).run()
    assert len(failures) == 1


@in_a_loop
async def test_new_tables_are_looked_for_until_reading_ends_whatever_error_a_look_meets(
    done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None, UnreachableError("Spanner does not answer"), document(2), None])

    async def look(config: object) -> Backfill | None:
        found = next(looks, None)
        if isinstance(found, Exception):
            raise found
        if found is None and done == [1, 2]:
            beside.finish()
        return found

    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    beside = backfills(new_tables=True)
    beside.add(document(1))
    await asyncio.wait_for(beside.run(), 60)
    assert done == [1, 2]


@in_a_loop
async def test_new_tables_that_the_configuration_refuses_are_an_alarm_once_per_reason_until_it_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = iter(["set a condition of A", "set a condition of A", "set a condition of A, B"])
    lasting = list[Retry]()

    async def look(config: object) -> Backfill | None:
        reason = next(reasons, None)
        if reason is None:
            lasting.extend(beside._metrics.failing.lasting(time.time_ns() + 600 * SECOND))
            beside.finish()
            return None
        raise ConfigurationError([reason])

    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    beside = backfills(new_tables=True)
    await asyncio.wait_for(beside.run(), 60)
    (retry,) = lasting
    assert (retry.what, retry.attempts) == (BACKFILL, 2)
    assert str(retry.cause) == "new tables are not backfilled (set a condition of A, B)"
    assert beside._metrics.failing.lasting(time.time_ns() + 600 * SECOND) == []


@in_a_loop
async def test_a_reload_lets_new_tables_be_looked_for_with_the_edited_configuration(
    done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[object]()

    async def look(config: Config) -> Backfill | None:
        seen.append(config)
        beside.finish()
        return document(1)

    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    beside, edited = backfills(), validated({"source": {**SOURCE, "backfill": {"new_tables": True}}, "sink": FILES})
    running = asyncio.create_task(beside.run())
    await asyncio.sleep(0)  # without new_tables it waits for news alone
    beside.reload(edited)
    await asyncio.wait_for(running, 60)
    assert (seen, done) == ([edited], [1])


@in_a_loop
async def test_new_tables_that_were_refused_are_no_alarm_once_a_reload_asks_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = asyncio.Event()

    async def look(config: Config) -> Backfill | None:
        refused.set()
        raise ConfigurationError(["set a condition of A"])

    def lasting() -> list[Retry]:
        return beside._metrics.failing.lasting(time.time_ns() + 600 * SECOND)

    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    beside, edited = backfills(new_tables=True), validated({"source": {**SOURCE, "backfill": {}}, "sink": FILES})
    running = asyncio.create_task(beside.run())
    await refused.wait()
    await until(lasting)
    beside.reload(edited)
    await until(lambda: not lasting())
    beside.finish()
    await running


@pytest.mark.parametrize("placements", [None, (), ("eu", "us")])
def test_a_spool_that_a_backfill_creates_is_of_the_placements_that_are_read(
    tmp_path: Path, placements: tuple[str, ...] | None
) -> None:
    config = validated({"source": SOURCE, "spool": {"path": str(tmp_path)}})
    stream: Any = SimpleNamespace(
        now=SECOND,
        placements=placements,
        stream=SimpleNamespace(tables=()),
        source=SimpleNamespace(default_schema="d"),
        config=config.source,
    )
    spool = Spool.at(tmp_path)
    header = header_for_backfill(spool, config, stream)
    header.check_placements(placements, spool.path)
    assert spool.header() == header
