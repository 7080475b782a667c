"""Queries of partitions against the scripted server, in both ways of reading them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest

import connector.spanner.partition_query
from connector.core.dialects import GOOGLESQL, IMMUTABLE
from connector.core.timestamps import SECOND
from connector.spanner.client import SpannerClient
from connector.spanner.decoding.decoder import Item, decoder
from connector.spanner.errors import CallAction, classify
from connector.spanner.partition_query import BEHIND, PartitionQueries, PartitionQuery, SilentStreamError, patience
from emulator import Fault, FaultKind, FaultPlan, ScriptedServer
from tests.connector.builders import address_of
from tests.connector.spanner.streams import pump_threads
from tests.emulator.scripted.scripted_stream import ORIGIN, at, loose, scenario, shown

_LATE = at(30)


@pytest.fixture(params=[0, BEHIND + 1], ids=["awaited", "pumped"])
def clock(request: pytest.FixtureRequest) -> Callable[[], int]:
    """The reader's clock: as the query starts, and well after."""
    passed = int(request.param)
    return lambda: ORIGIN + passed


@asynccontextmanager
async def reading(clock: Callable[[], int], plan: FaultPlan) -> AsyncIterator[tuple[ScriptedServer, PartitionQueries]]:
    async with (
        asyncio.timeout(300),
        ScriptedServer.serving(scenario(), begins=_LATE, faults=plan) as server,
        SpannerClient(address_of(server.database, server.host)).connected() as client,
    ):
        yield (
            server,
            PartitionQueries(
                client,
                GOOGLESQL,
                "Everything",
                IMMUTABLE,
                heartbeat=SECOND,
                decoder=decoder(GOOGLESQL, IMMUTABLE),
                clock=clock,
            ),
        )


async def read(queries: PartitionQueries, clock: Callable[[], int], timeouts: int = 0) -> list[str]:
    found: list[Item] = []
    async for items in queries.read(PartitionQuery("left", ORIGIN, None, timeouts)):
        found += items
        assert bool(pump_threads()) == (clock() - ORIGIN > BEHIND)
    return [shown(record) for record in loose(found)]


async def given_up(
    server: ScriptedServer,
    queries: PartitionQueries,
    clock: Callable[[], int],
    timeouts: int = 0,
    *,
    said: str = "no message for",
) -> None:
    """A query that has arrived at the server is given up; on a busy machine others may be before they arrive."""
    arrived = server.engine.queries["left"]
    while server.engine.queries["left"] == arrived:
        with pytest.raises(SilentStreamError, match=said):
            await read(queries, clock, timeouts)


def silent_after(monkeypatch: pytest.MonkeyPatch, nanoseconds: int) -> None:
    monkeypatch.setattr(connector.spanner.partition_query, "SILENT_AT_LEAST", nanoseconds)
    monkeypatch.setattr(connector.spanner.partition_query, "SILENT_HEARTBEATS", 0)


class ShiftedLoop(asyncio.SelectorEventLoop):
    """Its clock can be put forward."""

    shift = 0.0

    def time(self) -> float:
        return super().time() + self.shift


WHOLE = ["change 5", "change 10", "change 10.5", "children west 20", "children east 20"]


def test_only_a_query_with_a_backlog_is_read_by_a_pump(clock: Callable[[], int]) -> None:
    async def main() -> None:
        async with reading(clock, FaultPlan()) as (_, queries):
            assert await read(queries, clock) == WHOLE

    asyncio.run(main())


@pytest.mark.parametrize("after", [0, 2])
def test_a_stream_that_falls_silent_is_given_up(
    clock: Callable[[], int], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_after(monkeypatch, 2 * SECOND)

    async def main() -> None:
        plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after), token="left")
        async with reading(clock, plan) as (server, queries):
            await given_up(server, queries, clock)
            assert server.engine.most_open == 1
            silent_after(monkeypatch, 60 * SECOND)
            assert await read(queries, clock) == WHOLE

    asyncio.run(main())


def test_patience_doubles_with_each_query_that_was_in_vain_up_to_ten_minutes_or_a_few_heartbeats() -> None:
    assert [patience(SECOND, timeouts) // SECOND for timeouts in range(7)] == [30, 60, 120, 240, 480, 600, 600]
    assert patience(SECOND, 10**6) == 600 * SECOND
    assert [patience(300 * SECOND, timeouts) // SECOND for timeouts in (0, 5)] == [1500, 1500]


def test_a_first_message_that_is_late_is_waited_for_by_a_query_with_more_patience(
    clock: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_after(monkeypatch, SECOND)

    async def main() -> None:
        plan = FaultPlan().rule(Fault(FaultKind.SILENCE), times=2).rule(Fault(FaultKind.LATENESS, pause=3 * SECOND))
        async with reading(clock, plan) as (server, queries):
            for timeouts in (0, 1):
                await given_up(server, queries, clock, timeouts, said=f"no message for {1 + timeouts} s")
            assert await read(queries, clock, 5) == WHOLE  # half a minute

    asyncio.run(main())


def test_patience_is_as_ever_once_the_progress_has_moved(
    clock: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_after(monkeypatch, SECOND)

    async def main() -> None:
        plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=2), token="left")
        async with reading(clock, plan) as (_, queries):
            with pytest.raises(SilentStreamError, match="no message for 1 s"):
                await read(queries, clock, 5)

    asyncio.run(main())


def test_the_timeout_does_not_run_while_nothing_is_pulled(
    clock: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_after(monkeypatch, 30 * SECOND)

    async def main() -> None:
        async with reading(clock, FaultPlan()) as (_, queries):
            found: list[Item] = []
            async for items in queries.read(PartitionQuery("left", ORIGIN, None)):
                if not found:
                    loop = asyncio.get_running_loop()
                    assert isinstance(loop, ShiftedLoop)
                    loop.shift += 40.0
                    await asyncio.sleep(0.01)  # every timer of these seconds fires
                found += items
            assert [shown(record) for record in loose(found)] == WHOLE

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        runner.run(main())


def test_a_session_that_is_gone_is_renewed(clock: Callable[[], int]) -> None:
    async def main() -> None:
        plan = FaultPlan().rule(Fault(FaultKind.SESSION_EXPIRED, 1), token="left")
        async with reading(clock, plan) as (_, queries):
            with pytest.raises(grpc.RpcError) as told:
                await read(queries, clock)
            assert classify(told.value).action is CallAction.NEW_SESSION
            assert await read(queries, clock) == WHOLE

    asyncio.run(main())
