"""The whole reader on virtual time, against servers with which it makes no progress."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import pairwise
from typing import cast

import pytest

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import ChildPartition, ChildPartitionsRecord, HeartbeatRecord
from connector.core.timestamps import SECOND
from connector.log import TextFormatter
from connector.reader.flow_control import FlowControl
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQueries, PartitionQuery, SilentStreamError
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import record
from tests.property.virtual_time import VirtualTimeLoop, run

START = 1_800_000_000 * SECOND
Answer = Callable[[PartitionQuery], AsyncGenerator[list[Item]]]


def now() -> int:
    """Spanner's clock follows the loop's time."""
    return START + round(asyncio.get_running_loop().time() * SECOND)


async def healthy(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """A heartbeat a second, as a healthy server sends."""
    while True:
        yield [HeartbeatRecord(max(now(), query.start))]
        await asyncio.sleep(1)


async def stalled(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """A heartbeat a second that proves nothing new."""
    while True:
        yield [HeartbeatRecord(query.start)]
        await asyncio.sleep(1)


async def silent(_: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """Nothing, and no timeout of its own."""
    await asyncio.Event().wait()
    yield []


async def one_transaction(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """Records of one commit timestamp, for ten minutes."""
    for number in range(600):
        yield [record(commit_timestamp=START + 1, record_sequence=f"{number:08d}")]
        await asyncio.sleep(1)
    async for items in healthy(query):
        yield items


class Running:
    """A reader of some partitions; each partition's answers are given one after another, the last one repeatedly."""

    def __init__(self, answers: dict[str, list[Answer]], *, budget: int = 1024 * 1024) -> None:
        self._answers = answers
        self.sent: list[tuple[str, float]] = []
        self.metrics = ReaderMetrics()
        self.has_room = asyncio.Event()
        self.has_room.set()
        cut = tuple(CutPartition(token, START) for token in answers if token in ("p", "q"))
        self.scheduler = Scheduler(
            QueriedStream("S", cast("PartitionQueries", self), SpannerClock(self._clock, START)),
            Range(cut, START - 1, None),
            self,
            seal_interval=0,
            flow=FlowControl(budget),
            metrics=self.metrics,
        )

    async def _clock(self) -> int:
        return now()

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.sent.append((query.token, asyncio.get_running_loop().time()))
        answers = self._answers[query.token]
        async for items in (answers.pop(0) if len(answers) > 1 else answers[0])(query):
            yield items

    async def room(self, stopping: asyncio.Event) -> bool:
        await self.has_room.wait()
        return not stopping.is_set()

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        pass

    @property
    def lag(self) -> float:
        return (now() - self.metrics.watermark) / SECOND


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of the watermark's watchdog."""
    return [TextFormatter().format(line) for line in caplog.records if "is stalled while" in line.message]


def reads(
    answers: dict[str, list[Answer]], during: Callable[[Running], Awaitable[None]], *, budget: int = 1024 * 1024
) -> Running:
    async def main() -> Running:
        running = Running(answers, budget=budget)
        reading = asyncio.create_task(running.scheduler.run())
        await during(running)
        running.scheduler.stop()
        running.has_room.set()
        await reading
        return running

    return run(main())


@pytest.mark.parametrize("bad", [stalled, silent])
def test_a_query_without_progress_is_ended_and_sent_again(bad: Answer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def during(running: Running) -> None:
        await asyncio.sleep(59)
        assert running.lag > 58
        await asyncio.sleep(20)
        assert running.lag < 3

    running = reads({"p": [bad, healthy], "q": [healthy]}, during)
    assert running.metrics.standstills == 1
    assert [token for token, _ in running.sent] == ["p", "q", "p"], "the other one is left alone"
    (line,) = warnings(caplog)
    for part in ("partition p", "since=", "times=1", "ended and sent again"):
        assert part in line
    assert "the watermark is no longer stalled" in caplog.text


@pytest.mark.parametrize("bad", [stalled, silent])
def test_a_restart_that_does_not_help_is_repeated_with_growing_pauses(bad: Answer) -> None:
    async def during(_: Running) -> None:
        await asyncio.sleep(4 * 3600)

    running = reads({"p": [bad]}, during)
    sent = [at for _, at in running.sent]
    pauses = [later - sooner for sooner, later in pairwise(sent)]
    assert running.metrics.standstills in (7, 8)
    assert 6 <= len(pauses) <= running.metrics.standstills
    assert all(later > 1.5 * sooner for sooner, later in pairwise(pauses[:5]))


def test_a_transaction_of_many_records_is_not_a_stall() -> None:
    async def during(running: Running) -> None:
        await asyncio.sleep(700)
        assert running.lag < 3

    running = reads({"p": [one_transaction]}, during)
    assert len(running.sent) == 1


def test_a_child_that_waits_for_an_undiscovered_parent_is_named_with_what_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def announcing(_: PartitionQuery) -> AsyncGenerator[list[Item]]:
        yield [ChildPartitionsRecord(START + 10, "1", (ChildPartition("child", frozenset({"p", "late"})),))]
        yield [ChildPartitionsRecord(START + 20, "2", (ChildPartition("late", frozenset({"undiscovered"})),))]

    async def during(_: Running) -> None:
        await asyncio.sleep(100)

    running = reads({"p": [announcing], "q": [healthy]}, during)
    assert running.metrics.standstills == 1
    (line,) = warnings(caplog)
    for part in ("partition child", "cannot help", "partition late", "partition undiscovered", "never discovered"):
        assert part in line
    assert len(running.sent) == 2, "a partition that does not hold the watermark is left alone"


async def much(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """A record and a heartbeat a second."""
    while True:
        at = now()
        yield [record(commit_timestamp=at, size=1000)]
        yield [HeartbeatRecord(at + 1)]
        await asyncio.sleep(1)


def test_a_sink_without_room_is_not_a_stall() -> None:
    async def during(running: Running) -> None:
        await asyncio.sleep(10)
        running.has_room.clear()
        await asyncio.sleep(3600)
        assert running.lag > 3500
        assert running.metrics.waiting_partitions == 1
        running.has_room.set()
        await asyncio.sleep(58)

    running = reads({"p": [much]}, during, budget=20_000)
    assert running.metrics.standstills == 0
    assert len(running.sent) == 1


def test_a_laggard_is_restarted_while_another_is_paused_for_it() -> None:
    async def during(running: Running) -> None:
        await asyncio.sleep(59)
        assert running.metrics.waiting_partitions == 1
        await asyncio.sleep(30)
        assert running.lag < 3

    running = reads({"p": [stalled, healthy], "q": [much]}, during, budget=20_000)
    assert running.metrics.standstills == 1
    assert [token for token, _ in running.sent] == ["p", "q", "p"]


def test_a_process_that_was_suspended_restarts_no_query() -> None:
    async def during(running: Running) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for _ in range(3):
            await asyncio.sleep(40)
            loop.stall(7200)
        await asyncio.sleep(40)
        assert running.lag < 3

    running = reads({"p": [healthy]}, during)
    assert running.metrics.standstills == 0
    assert len(running.sent) == 1


async def slow(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """A record of one commit timestamp every 50 seconds, four times; only then does the progress move."""
    for number in range(4):
        await asyncio.sleep(50)
        yield [record(commit_timestamp=START + 1, record_sequence=f"{number:08d}")]
    async for items in healthy(query):
        yield items


async def slow_to_start(query: PartitionQuery) -> AsyncGenerator[list[Item]]:
    """Nothing until just before the timeout of its fourth query."""
    assert query.timeouts <= 3
    await asyncio.sleep(30 * 2**query.timeouts - 1)
    if query.timeouts < 3:
        raise SilentStreamError("no message")
    async for items in healthy(query):
        yield items


@pytest.mark.parametrize(("answer", "queries"), [(slow, 1), (slow_to_start, 4)])
def test_a_query_that_is_merely_slow_is_reported_and_left_alone(
    answer: Answer, queries: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def during(running: Running) -> None:
        await asyncio.sleep(600)
        assert running.lag < 3

    running = reads({"p": [answer]}, during)
    assert len(running.sent) == queries
    assert running.metrics.standstills >= 1
    assert not [line for line in warnings(caplog) if "ended and sent again" in line]
