"""Queries read in worker processes, from a scripted server: they bring what they would in this process."""

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
from connector.decoding.decoder import Item, decoder
from connector.errors import SpannerCdcError
from connector.reader.scheduler import Queries
from connector.spanner.client import SpannerClient
from connector.spanner.faults import Fault as Met
from connector.spanner.faults import Verdict, fault
from connector.spanner.partition_query import PartitionQueries, PartitionQuery, SilentStreamError
from connector.telemetry.metrics import ReaderMetrics
from connector.workers import pool as workers
from connector.workers import worker_process
from connector.workers.frames import Setup, framed
from connector.workers.pool import COMMAND, Workers
from emulator import Fault, FaultKind, FaultPlan, ScriptedServer
from emulator.scenario.scenario import steady
from tests.soak.process_tree import process_tree

T = TypeVar("T")
PARTITIONS, RECORDS, LASTS = 3, 2_000, 40
FAR = 250_000_000_000 * SECOND


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """Serves a backlog whose end has passed."""
    told = steady(
        5,
        origin=time.time_ns() - 100 * SECOND,
        seconds=LASTS,
        partitions=PARTITIONS,
        records_per_second_per_partition=RECORDS / LASTS,
        mods_per_record=20,
    )
    with ScriptedServer.started(told, begins=time.time_ns(), faults=FaultPlan()) as serving:
        yield serving


def setup_of(server: ScriptedServer) -> Setup:
    told = server.engine.scenario
    names = (told.dialect, told.change_stream, told.mode)
    return Setup(server.database, server.host, None, None, "high", *names, SECOND, json_logs=False, verbose=False)


def query(server: ScriptedServer, token: str, end: int | None = 0) -> PartitionQuery:
    """Of all there is."""
    history = server.engine.scenario.history
    return PartitionQuery(token, history.origin, history.horizon if end == 0 else end)


def tokens(server: ScriptedServer) -> list[str]:
    return [INITIAL_TOKEN, *server.engine.scenario.history.partitions]


def plain(items: list[Item]) -> list[Record]:
    """Records that do not tell when they were read, and what memory they take."""
    found = [record for item in items for record in (item.records() if isinstance(item, Changes) else (item,))]
    return [
        replace(record, read_timestamp=0, size=0) if isinstance(record, DataChangeRecord) else record
        for record in found
    ]


async def read(queries: Queries, query: PartitionQuery) -> list[Record]:
    """All that a query brings."""
    async with aclosing(queries.read(query)) as brought:
        return [record async for items in brought for record in plain(items)]


def with_workers(
    server: ScriptedServer,
    number: int,
    work: Callable[[Workers], Awaitable[T]],
    *,
    metrics: ReaderMetrics | None = None,
) -> T:
    async def run() -> T:
        pool = Workers(setup_of(server), number, metrics or ReaderMetrics())
        async with asyncio.timeout(60), pool.running():
            return await work(pool)

    return asyncio.run(run())


_OTHERS: set[int] = set()
"""What has been started before a test: servers of other tests, and the trackers of multiprocessing."""


@pytest.fixture(autouse=True)
def others() -> None:
    _OTHERS.clear()
    _OTHERS.update(process_tree(os.getpid()))


def processes() -> list[int]:
    return [process for process in process_tree(os.getpid()) if process not in _OTHERS]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes give no event
        await asyncio.sleep(0.01)


def test_they_bring_what_queries_of_this_process_bring(server: ScriptedServer) -> None:
    async def here() -> list[list[Record]]:
        told = server.engine.scenario
        async with SpannerClient(server.database, emulator_host=server.host).connected() as client:
            queries = PartitionQueries(
                client,
                GOOGLESQL,
                told.change_stream,
                told.mode,
                heartbeat=SECOND,
                decoder=decoder(GOOGLESQL, told.mode),
                clock=time.time_ns,
            )
            return [await read(queries, query(server, token)) for token in tokens(server)]

    async def there(pool: Workers) -> list[list[Record]]:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(read(pool, query(server, token))) for token in tokens(server)]
        return [task.result() for task in reading]

    expected = asyncio.run(here())
    metrics = ReaderMetrics()
    assert with_workers(server, 2, there, metrics=metrics) == expected
    assert sum(map(len, expected)) > PARTITIONS * RECORDS * 0.9
    assert (metrics.workers, metrics.worker_restarts) == (2, 0)
    assert not processes()


@pytest.mark.parametrize(
    ("kind", "code", "verdict"),
    [
        (FaultKind.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, Verdict.RETRY),
        (FaultKind.SESSION_EXPIRED, grpc.StatusCode.NOT_FOUND, Verdict.NEW_SESSION),
        (FaultKind.EXPIRED_START, grpc.StatusCode.OUT_OF_RANGE, Verdict.STOP),
    ],
)
def test_an_error_of_spanners_comes_after_what_came_before_it(
    kind: FaultKind, code: grpc.StatusCode, verdict: Verdict, server: ScriptedServer
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
    assert (fault(caught.value).code, fault(caught.value).verdict) == (code, verdict)


def test_patience_grows_in_workers_too(server: ScriptedServer) -> None:
    short = "import connector.spanner.partition_query as p; p.SILENT_AT_LEAST = 10**9; p.SILENT_HEARTBEATS = 0"
    command = (sys.executable, "-P", "-c", f"{short}; from connector.workers.worker import main; main()")
    token = tokens(server)[1]
    late = Fault(FaultKind.LATENESS, pause=5 * SECOND // 2)
    server.engine.faults.rule(late, token=token, times=2)

    async def run() -> None:
        pool = Workers(setup_of(server), 2, ReaderMetrics(), command=command)
        async with asyncio.timeout(60), pool.running():
            with pytest.raises(SilentStreamError, match="no message for 1 s"):
                await read(pool, query(server, token))
            assert await read(pool, replace(query(server, token), in_vain=3))

    asyncio.run(run())


def test_an_end_beyond_what_64_bits_hold_can_be_asked_for(server: ScriptedServer) -> None:
    async def first(pool: Workers) -> list[Item]:
        async with aclosing(pool.read(query(server, tokens(server)[1], FAR))) as brought:
            return await anext(brought)

    assert with_workers(server, 2, first)


def test_a_query_that_nobody_takes_from_is_held_back_at_the_server_and_goes_on_when_it_is_taken_from() -> None:
    told = steady(
        6,
        origin=time.time_ns() - 100 * SECOND,
        seconds=LASTS,
        partitions=1,
        records_per_second_per_partition=1_500 / LASTS,
        mods_per_record=200,
    )

    async def taken_late(pool: Workers) -> int:
        async with aclosing(pool.read(query(server, tokens(server)[1]))) as brought:
            count = len(plain(await anext(brought)))
            seen = -1
            while seen != engine.messages:
                seen = engine.messages
                await asyncio.sleep(0.3)
            (inbox,) = [inbox for seat in pool._seats for inbox in seat.worker._inboxes.values()]
            waiting = [frame.message.size for frame in inbox._queue]  # type: ignore[attr-defined]
            assert seen < len(told.history.in_commit_order()) * 0.6, "the server is not held back"
            assert sum(waiting[:-1]) < 4 * 1024 * 1024
            async for items in brought:
                count += len(plain(items))
        return count

    with ScriptedServer.started(told, begins=time.time_ns()) as server:
        engine = server.engine
        assert with_workers(server, 2, taken_late) == engine.messages


def test_a_query_that_is_left_is_cancelled_at_the_server(server: ScriptedServer) -> None:
    async def leave(pool: Workers) -> None:
        async with aclosing(pool.read(query(server, tokens(server)[1], None))) as brought:
            await anext(brought)
            assert server.engine.open == 1
        await until(lambda: server.engine.open == 0)

    with_workers(server, 2, leave)


def test_queries_are_shared_out_evenly_also_after_a_worker_has_died(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def spread(pool: Workers) -> list[int]:
        async def keep_reading(token: str) -> None:
            while True:
                try:
                    async for _ in pool.read(query(server, token, None)):
                        pass
                except grpc.RpcError as error:
                    met.append(fault(error))

        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(keep_reading(token)) for token in tokens(server)[1:] * 4]
            await until(lambda: server.engine.open == len(reading))
            os.kill(processes()[0], SIGKILL)
            await until(lambda: metrics.worker_restarts == 1 and metrics.workers == 2)
            await until(lambda: server.engine.open == len(reading))
            shares = [seat.queries for seat in pool._seats]
            for task in reading:
                task.cancel()
        return shares

    metrics = ReaderMetrics()
    met: list[Met] = []
    assert with_workers(server, 2, spread, metrics=metrics) == [PARTITIONS * 2, PARTITIONS * 2]
    died = Met(grpc.StatusCode.UNAVAILABLE, "the worker that read it was ended by SIGKILL", Verdict.RETRY)
    assert met == [died] * PARTITIONS * 2
    (warning,) = [entry for entry in caplog.records if "has died and is replaced" in entry.message]
    assert warning.fields["end"] == "was ended by SIGKILL"  # type: ignore[attr-defined]
    assert warning.fields["queries"] == PARTITIONS * 2  # type: ignore[attr-defined]


def test_a_worker_heeds_no_signal_that_is_meant_for_the_coordinator(server: ScriptedServer) -> None:
    async def signalled(pool: Workers) -> list[Record]:
        for process in processes():
            os.kill(process, SIGINT)
            os.kill(process, SIGTERM)
        return await read(pool, query(server, tokens(server)[1]))

    metrics = ReaderMetrics()
    assert with_workers(server, 2, signalled, metrics=metrics)
    assert metrics.worker_restarts == 0


def test_a_worker_that_stands_still_is_killed_and_replaced(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped(_: Workers) -> None:
        os.kill(processes()[0], SIGSTOP)
        await until(lambda: metrics.worker_restarts == 1 and metrics.workers == 2)

    monkeypatch.setattr(worker_process, "SILENCE", 6.0)  # a sign of life comes every five seconds
    metrics = ReaderMetrics()
    with_workers(server, 2, stopped, metrics=metrics)
    assert "gives no sign of life" in caplog.text


def refusal(server: ScriptedServer, program: str) -> SpannerCdcError:
    """What is told where the workers are this program."""

    async def run() -> None:
        pool = Workers(setup_of(server), 2, ReaderMetrics(), command=(sys.executable, "-c", program))
        async with asyncio.timeout(30), pool.running():
            pytest.fail("it began")

    with pytest.raises(SpannerCdcError) as caught:
        asyncio.run(run())
    assert not processes()
    return caught.value


def test_a_worker_that_cannot_begin_is_told_at_once(server: ScriptedServer) -> None:
    assert str(refusal(server, "raise SystemExit(3)")).startswith("a worker ended with code 3. Its own lines above")


def test_a_worker_whose_coordinator_is_gone_before_it_is_ready_ends_without_a_word(server: ScriptedServer) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b"".join(framed(setup_of(server))))
        near.close()
        ended = subprocess.run(COMMAND, stdin=far.fileno(), capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_workers_that_die_again_and_again_and_bring_nothing_are_given_up_with_one_line(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "_FIRST_PAUSE", 0.01)
    error = refusal(server, "import os; os.kill(os.getpid(), 9)")
    assert str(error).startswith("a worker was ended by SIGKILL, and 4 before it brought nothing either")
    assert caplog.text.count("has died and is replaced") >= workers.MOST_IN_VAIN - 1


def test_a_worker_without_credentials_says_so(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")

    async def run() -> None:
        setup = setup_of(server)
        setup.emulator_host = None
        async with asyncio.timeout(30), Workers(setup, 2, ReaderMetrics()).running():
            pytest.fail("it began")

    with pytest.raises(SpannerCdcError, match="no Google Cloud credentials were found"):
        asyncio.run(run())


def test_a_worker_runs_this_program_wherever_the_user_is(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "__init__.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(tmp_path)
    assert with_workers(server, 2, lambda pool: read(pool, query(server, tokens(server)[1])))


def test_nothing_secret_is_on_a_workers_command_line() -> None:
    assert COMMAND[1:] == ("-P", "-m", "connector.workers.worker")
