"""Queries read in worker processes, from a scripted server: they return what they would in this process."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGSTOP, SIGTERM
from typing import TypeVar

import grpc
import pytest

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL
from connector.core.records import INITIAL_TOKEN, DataChangeRecord, Record
from connector.core.timestamps import SECOND
from connector.errors import SpannerCdcError
from connector.spanner.client import SpannerClient
from connector.spanner.decoding.decoder import Item, decoder
from connector.spanner.errors import CallAction, CallError, classify
from connector.spanner.partition_query import (
    PartitionQueries,
    PartitionQuery,
    SendsQueries,
    SilentStreamError,
    StreamAddress,
)
from connector.spanner.workers import pool, worker_process
from connector.spanner.workers.frames import WorkerSetup, framed
from connector.spanner.workers.pool import COMMAND, Workers
from connector.telemetry.metrics import ReaderMetrics
from emulator import Fault, FaultKind, FaultPlan, ScriptedServer
from emulator.scenario.scenario import steady
from tests.connector.builders import address_of
from tests.soak.process_tree import process_tree

T = TypeVar("T")
PARTITIONS, RECORDS, LASTS = 3, 2_000, 40
FAR = 250_000_000_000 * SECOND


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """Serves a backlog whose end has passed."""
    scenario = steady(
        5,
        origin=time.time_ns() - 100 * SECOND,
        seconds=LASTS,
        partitions=PARTITIONS,
        records_per_second_per_partition=RECORDS / LASTS,
        mods_per_record=20,
    )
    with ScriptedServer.started(scenario, begins=time.time_ns(), faults=FaultPlan()) as serving:
        yield serving


def setup_of(server: ScriptedServer) -> WorkerSetup:
    scenario = server.engine.scenario
    names = (scenario.dialect, scenario.change_stream, scenario.mode)
    stream = StreamAddress(address_of(server.database, server.host), "high", *names, SECOND)
    return WorkerSetup(stream, json_logs=False, verbose=False)


def query(server: ScriptedServer, token: str, end: int | None = 0) -> PartitionQuery:
    """Of all there is."""
    history = server.engine.scenario.history
    return PartitionQuery(token, history.origin, history.horizon if end == 0 else end)


def tokens(server: ScriptedServer) -> list[str]:
    return [INITIAL_TOKEN, *server.engine.scenario.history.partitions]


def plain(items: list[Item]) -> list[Record]:
    """Records without the time of reading and the memory they take."""
    found = [record for item in items for record in (item.records() if isinstance(item, Changes) else (item,))]
    return [
        replace(record, read_timestamp=0, size=0) if isinstance(record, DataChangeRecord) else record
        for record in found
    ]


async def read(queries: SendsQueries, query: PartitionQuery) -> list[Record]:
    """All records that a query returns."""
    async with aclosing(queries.read(query)) as received:
        return [record async for items in received for record in plain(items)]


def with_workers(
    server: ScriptedServer,
    number: int,
    work: Callable[[Workers], Awaitable[T]],
    *,
    metrics: ReaderMetrics | None = None,
) -> T:
    async def run() -> T:
        pool = Workers(setup_of(server), number, metrics or ReaderMetrics())
        async with asyncio.timeout(300), pool.running():
            return await work(pool)

    return asyncio.run(run())


_OTHERS: set[int] = set()
"""Processes started before a test: servers of other tests, and the trackers of multiprocessing."""


@pytest.fixture(autouse=True)
def others() -> None:
    _OTHERS.clear()
    _OTHERS.update(process_tree(os.getpid()))


def processes() -> list[int]:
    return [process for process in process_tree(os.getpid()) if process not in _OTHERS]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes give no event
        await asyncio.sleep(0.01)


@pytest.mark.long
def test_workers_return_the_same_records_as_queries_of_this_process(server: ScriptedServer) -> None:
    async def here() -> list[list[Record]]:
        scenario = server.engine.scenario
        async with SpannerClient(address_of(server.database, server.host)).connected() as client:
            queries = PartitionQueries(
                client,
                GOOGLESQL,
                scenario.change_stream,
                scenario.mode,
                heartbeat=SECOND,
                decoder=decoder(GOOGLESQL, scenario.mode),
                clock=time.time_ns,
            )
            return [await read(queries, query(server, token)) for token in tokens(server)]

    metrics, running = ReaderMetrics(), list[int]()

    async def there(pool: Workers) -> list[list[Record]]:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(read(pool, query(server, token))) for token in tokens(server)]
        running.append(metrics.workers)
        return [task.result() for task in reading]

    expected = asyncio.run(here())
    assert with_workers(server, 2, there, metrics=metrics) == expected
    assert sum(map(len, expected)) > PARTITIONS * RECORDS * 0.9
    assert (running, metrics.workers, metrics.worker_restarts) == ([2], 0, 0)
    assert not processes()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "code", "action"),
    [
        (FaultKind.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, CallAction.RETRY),
        (FaultKind.SESSION_EXPIRED, grpc.StatusCode.NOT_FOUND, CallAction.NEW_SESSION),
        (FaultKind.EXPIRED_START, grpc.StatusCode.OUT_OF_RANGE, CallAction.STOP),
    ],
)
def test_an_error_of_spanner_is_raised_after_the_records_before_it(
    kind: FaultKind, code: grpc.StatusCode, action: CallAction, server: ScriptedServer
) -> None:
    token = tokens(server)[1]
    server.engine.faults.rule(Fault(kind, after=3), token=token)

    found: list[Record] = []

    async def met(pool: Workers) -> None:
        async for items in pool.read(query(server, token)):
            found.extend(plain(items))

    with pytest.raises(grpc.RpcError) as caught:
        with_workers(server, 2, met)
    assert 0 < len(found) <= 3
    assert (classify(caught.value).code, classify(caught.value).action) == (code, action)


@pytest.mark.long
def test_timeouts_grow_in_workers_too(server: ScriptedServer) -> None:
    short = "import connector.spanner.partition_query as p; p.SILENT_AT_LEAST = 10**9; p.SILENT_HEARTBEATS = 0"
    command = (sys.executable, "-P", "-c", f"{short}; from connector.spanner.workers.worker import main; main()")
    token = tokens(server)[1]
    server.engine.faults.rule(Fault(FaultKind.SILENCE), token=token, times=2)

    async def run() -> None:
        pool = Workers(setup_of(server), 2, ReaderMetrics(), command=command)
        async with asyncio.timeout(300), pool.running():
            for timeouts, limit in ((0, 1), (2, 4)):
                with pytest.raises(SilentStreamError, match=f"no message for {limit} s"):
                    await read(pool, replace(query(server, token), timeouts=timeouts))

    asyncio.run(run())


@pytest.mark.long
def test_an_end_beyond_64_bits_can_be_requested(server: ScriptedServer) -> None:
    async def first(pool: Workers) -> list[Item]:
        async with aclosing(pool.read(query(server, tokens(server)[1], FAR))) as received:
            return await anext(received)

    assert with_workers(server, 2, first)


@pytest.mark.long
def test_a_query_that_is_not_read_stops_the_server_and_continues_when_it_is_read() -> None:
    scenario = steady(
        6,
        origin=time.time_ns() - 100 * SECOND,
        seconds=LASTS,
        partitions=1,
        records_per_second_per_partition=1_500 / LASTS,
        mods_per_record=200,
    )

    async def taken_late(pool: Workers) -> int:
        async with aclosing(pool.read(query(server, tokens(server)[1]))) as received:
            count = len(plain(await anext(received)))
            seen = -1
            while seen != engine.messages:
                seen = engine.messages
                await asyncio.sleep(0.3)
            total = len(scenario.history.in_commit_order())
            assert seen < total * 0.6, "there is no backpressure"
            async for items in received:
                count += len(plain(items))
                assert engine.messages - count < total * 0.6, "there is no backpressure"
        return count

    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        engine = server.engine
        assert with_workers(server, 2, taken_late) == engine.messages


@pytest.mark.long
def test_an_abandoned_query_is_cancelled_at_the_server(server: ScriptedServer) -> None:
    async def abandon(pool: Workers) -> None:
        async with aclosing(pool.read(query(server, tokens(server)[1], None))) as received:
            await anext(received)
            assert server.engine.open == 1
        await until(lambda: server.engine.open == 0)

    with_workers(server, 2, abandon)


@pytest.mark.long
def test_queries_are_shared_out_evenly_also_after_a_worker_has_died(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def spread(pool: Workers) -> None:
        async def keep_reading(token: str) -> None:
            while True:
                try:
                    async for _ in pool.read(query(server, token, None)):
                        pass
                except grpc.RpcError as error:
                    errors.append(classify(error))

        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(keep_reading(token)) for token in tokens(server)[1:] * 4]
            await until(lambda: server.engine.open == len(reading))
            for restarts, process in enumerate(processes(), 1):  # the second has what the first and its successor left
                os.kill(process, SIGKILL)
                await until(lambda: metrics.worker_restarts == restarts and metrics.workers == 2)  # noqa: B023 - at once
                await until(lambda: server.engine.open == len(reading))
            for task in reading:
                task.cancel()

    metrics = ReaderMetrics()
    errors: list[CallError] = []
    with_workers(server, 2, spread, metrics=metrics)
    died = CallError(grpc.StatusCode.UNAVAILABLE, "the worker that read it was ended by SIGKILL", CallAction.RETRY)
    assert errors == [died] * PARTITIONS * 4
    warnings = [vars(entry)["fields"] for entry in caplog.records if "has died and is replaced" in entry.message]
    assert [warning["end"] for warning in warnings] == ["was ended by SIGKILL"] * 2
    assert [warning["queries"] for warning in warnings] == [PARTITIONS * 2] * 2


@pytest.mark.long
def test_a_worker_ignores_signals_that_are_meant_for_the_coordinator(server: ScriptedServer) -> None:
    async def signalled(pool: Workers) -> list[Record]:
        for process in processes():
            os.kill(process, SIGINT)
            os.kill(process, SIGTERM)
        return await read(pool, query(server, tokens(server)[1]))

    metrics = ReaderMetrics()
    assert with_workers(server, 2, signalled, metrics=metrics)
    assert metrics.worker_restarts == 0


@pytest.mark.long
def test_a_worker_that_does_not_respond_is_killed_and_replaced(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped(_: Workers) -> None:
        process = processes()[0]
        os.kill(process, SIGSTOP)
        with monkeypatch.context() as hurried:  # a busy machine may need more for a worker's start
            hurried.setattr(worker_process, "SILENCE", 6.0)
            await until(lambda: process not in processes())
        await until(lambda: metrics.worker_restarts > 0 and metrics.workers == 2)

    metrics = ReaderMetrics()
    with_workers(server, 2, stopped, metrics=metrics)
    assert "does not respond and is killed" in caplog.text


def refusal(server: ScriptedServer, program: str) -> SpannerCdcError:
    """The error where the workers run this program."""

    async def run() -> None:
        pool = Workers(setup_of(server), 2, ReaderMetrics(), command=(sys.executable, "-c", program))
        async with asyncio.timeout(300), pool.running():
            pytest.fail("it began")

    with pytest.raises(SpannerCdcError) as caught:
        asyncio.run(run())
    assert not processes()
    return caught.value


def test_a_worker_that_cannot_start_is_reported_at_once(server: ScriptedServer) -> None:
    assert str(refusal(server, "raise SystemExit(3)")).startswith("a worker ended with code 3. Its own log lines above")


@pytest.mark.long
def test_a_worker_whose_coordinator_ends_before_it_is_ready_ends_silently(server: ScriptedServer) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"".join(framed(setup_of(server))))
        near.close()
        ended = subprocess.run(COMMAND, stdin=far.fileno(), capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_workers_that_die_repeatedly_without_a_result_are_given_up_with_one_line(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "_FIRST_PAUSE", 0.01)
    error = refusal(server, "import os; os.kill(os.getpid(), 9)")
    assert str(error).startswith("a worker was ended by SIGKILL, and 4 before it returned nothing either")
    assert caplog.text.count("has died and is replaced") >= pool.MOST_FAILED_RUNS - 1


@pytest.mark.long
def test_a_worker_without_credentials_says_so(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")

    async def run() -> None:
        setup = setup_of(server)
        setup.stream = replace(setup.stream, database=replace(setup.stream.database, emulator_host=None))
        async with asyncio.timeout(300), Workers(setup, 2, ReaderMetrics()).running():
            pytest.fail("it began")

    with pytest.raises(SpannerCdcError, match=r"names /nowhere/key.json, which does not exist"):
        asyncio.run(run())


@pytest.mark.long
def test_a_worker_runs_this_program_wherever_the_user_is(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "__init__.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(tmp_path)
    assert with_workers(server, 2, lambda pool: read(pool, query(server, tokens(server)[1])))


def test_nothing_secret_is_on_a_workers_command_line() -> None:
    assert COMMAND[1:] == ("-P", "-m", "connector.spanner.workers.worker")
