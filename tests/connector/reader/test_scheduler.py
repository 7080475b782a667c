"""The scheduler, with queries whose ends are scripted."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import cast

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartition,
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.timestamps import MINUTE, SECOND
from connector.errors import StreamError
from connector.reader import partition_reader
from connector.reader.flow_control import FlowControl
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import TICK, Scheduler
from connector.spanner.clock import SpannerClock
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.spanner.workers.failures import RemoteCallError
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import record
from tests.property.virtual_time import run

START = 1_800_000_000 * SECOND
HOUR = 3600 * SECOND
Answer = list[list[Record]]


class Queries:
    """Answers each query of a token with the next of its answers; the last one again and again."""

    def __init__(self, answers: dict[str, list[Answer]]) -> None:
        self._answers = answers
        self.sent: list[PartitionQuery] = []
        self.enough: Callable[[], None] = lambda: None

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Record]]:
        self.sent.append(query)
        answers = self._answers[query.token]
        for records in answers.pop(0) if len(answers) > 1 else answers[0]:
            yield records
        if len(self.sent) > 3:
            self.enough()


class Sink:
    def __init__(self) -> None:
        self.epochs: list[tuple[SealedEpoch, list[CutPartition], bool]] = []

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        self.epochs.append((epoch, cut, final))


def scheduler(
    queries: Queries,
    sink: Sink,
    *,
    end: int | None,
    clock: int,
    window: int | None = None,
    metrics: ReaderMetrics | None = None,
) -> Scheduler:
    async def spanner_clock() -> int:
        return clock

    return Scheduler(
        QueriedStream("S", cast("PartitionQueries", queries), SpannerClock(spanner_clock, clock), window=window),
        Range((CutPartition(INITIAL_TOKEN, START),), START - 1, end),
        sink,
        seal_interval=0,
        flow=FlowControl(),
        metrics=metrics or ReaderMetrics(),
    )


CHILD: Answer = [[ChildPartitionsRecord(START, "0", (ChildPartition("c", frozenset()),))]]


def test_a_clean_end_long_before_the_end_is_queried_again_at_once() -> None:
    queries = Queries({INITIAL_TOKEN: [CHILD], "c": [[], [[HeartbeatRecord(START + 1)]], []]})
    running = scheduler(queries, Sink(), end=START + HOUR, clock=START + 2)
    queries.enough = running.stop
    run(running.run())
    assert [query.token for query in queries.sent][:4] == [INITIAL_TOKEN, "c", "c", "c"]


def test_a_clean_end_after_the_clock_has_passed_the_end_finishes_and_the_last_epoch_is_final() -> None:
    queries, sink = Queries({INITIAL_TOKEN: [CHILD], "c": [[]]}), Sink()
    run(scheduler(queries, sink, end=START + 5, clock=START + 6).run())
    assert [(epoch.high, final) for epoch, _, final in sink.epochs] == [(START + 5, True)]
    assert sink.epochs[0][1] == [CutPartition("c", START)]


def test_a_clean_end_when_the_clock_is_at_the_end_proves_nothing_yet() -> None:
    queries = Queries({INITIAL_TOKEN: [CHILD], "c": [[]]})
    sink = Sink()
    running = scheduler(queries, sink, end=START + 5, clock=START + 5)
    queries.enough = running.stop
    run(running.run())
    assert not any(final for _, _, final in sink.epochs)


class Refused(Queries):
    """Refuses the credentials of the first queries of a partition."""

    def __init__(self, times: int) -> None:
        super().__init__({INITIAL_TOKEN: [CHILD], "c": [[]]})
        self._times = times

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Record]]:
        if query.token == "c" and self._times:
            self._times -= 1
            raise RemoteCallError(grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")
        async for records in super().read(query):
            yield records


def test_credentials_that_are_refused_briefly_stop_nothing() -> None:
    sink = Sink()
    run(scheduler(Refused(3), sink, end=START + 5, clock=START + 6).run())
    assert [final for _, _, final in sink.epochs] == [True]


def test_credentials_that_stay_refused_stop_the_reader_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "REFUSED_CREDENTIALS", 0.0)
    with pytest.raises(StreamError, match="this machine's clock is right"):
        run(scheduler(Refused(99), Sink(), end=START + 5, clock=START + 6).run())


def test_a_heartbeat_at_the_start_of_children_loses_none_of_their_records() -> None:
    split = START + 10
    born = ChildPartitionsRecord(split, "0", (ChildPartition("d", frozenset({"c"})),))

    class Slowly(Queries):
        async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Record]]:
            async for records in super().read(query):
                yield records
                await asyncio.sleep(5 * TICK)  # so that the watermark moves as far as it may

    queries = Slowly(
        {
            INITIAL_TOKEN: [CHILD],
            "c": [[[HeartbeatRecord(split)]], [[born]]],
            "d": [[[record(commit_timestamp=split)], [HeartbeatRecord(split + 5)]], []],
        }
    )
    sink = Sink()
    running = scheduler(queries, sink, end=None, clock=START)
    queries.enough = running.stop
    run(running.run())
    assert [change.commit_timestamp for epoch, _, _ in sink.epochs for change in epoch.records] == [split]
    assert [query.start for query in queries.sent if query.token == "c"] == [START, split - 1]


WINDOW = 30 * MINUTE
STARTED: Answer = [[PartitionStartRecord(START, ("c",))]]


def test_in_windows_every_query_ends_within_the_window_and_starts_where_the_last_proved_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queries = Queries({INITIAL_TOKEN: [STARTED], "c": [[]]})
    running = scheduler(queries, Sink(), end=None, clock=START + 24 * HOUR, window=WINDOW)
    queries.enough = running.stop
    run(running.run())
    assert all(query.end is not None and 0 < query.end - START - 24 * HOUR <= WINDOW for query in queries.sent)
    caplog.clear()
    behind = Queries({INITIAL_TOKEN: [STARTED], "c": [[]]})
    running = scheduler(behind, Sink(), end=START + HOUR, clock=START + 24 * HOUR, window=WINDOW)
    run(running.run())
    assert [query.token for query in behind.sent] == [INITIAL_TOKEN, "c", "c"], "an end is confirmed by a second query"
    assert {query.end for query in behind.sent} == {START + HOUR}
    assert not caplog.records, "nothing unusual is logged"


def test_a_window_that_ends_before_the_clock_has_passed_it_proves_nothing() -> None:
    queries = Queries({INITIAL_TOKEN: [STARTED], "c": [[], [[HeartbeatRecord(START + 5)]], []]})
    sink = Sink()
    running = scheduler(queries, sink, end=None, clock=START + 1, window=WINDOW)
    queries.enough = running.stop
    run(running.run())
    assert [query.start for query in queries.sent if query.token == "c"][:3] == [START, START, START + 4]
    assert max((epoch.high for epoch, _, _ in sink.epochs), default=0) <= START + 5


def test_a_partition_that_fails_is_known_until_its_query_moves_on() -> None:
    metrics, seen = ReaderMetrics(), list[int]()

    class Breaking(Queries):
        async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Record]]:
            seen.append(len(metrics.failing.lasting(time.time_ns() + 40 * SECOND)))
            if query.token == "c" and len(self.sent) == 1:
                self.sent.append(query)
                raise AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details="refused")
            async for records in super().read(query):
                yield records
                seen.append(len(metrics.failing.lasting(time.time_ns() + 40 * SECOND)))

    queries = Breaking({INITIAL_TOKEN: [CHILD], "c": [[[HeartbeatRecord(START + 3)], []]]})
    running = scheduler(queries, Sink(), end=None, clock=START + 2, metrics=metrics)
    queries.enough = running.stop
    run(running.run())
    assert seen[:5] == [0, 0, 0, 1, 0]


def test_what_is_read_is_complete_at_once_if_nothing_was_committed_and_else_once_it_is_sealed() -> None:
    metrics, seen = ReaderMetrics(), list[int]()

    class Slow(Sink):
        async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
            while metrics.watermark < START + 8:  # noqa: ASYNC110 - the reader continues meanwhile
                await asyncio.sleep(TICK)
            seen.append(metrics.spooled)
            await super().deliver(epoch, cut, final=final)

    class Spaced(Queries):
        async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Record]]:
            for records, proved in zip(self._answers[query.token][0], (2, 4, 8), strict=False):
                yield records
                while query.token == "c" and metrics.watermark < START + proved:  # noqa: ASYNC110
                    await asyncio.sleep(TICK)
            while query.token == "c" and not seen:  # noqa: ASYNC110
                await asyncio.sleep(TICK)
            if query.token == "c":
                self.enough()

    queries = Spaced(
        {
            INITIAL_TOKEN: [CHILD],
            "c": [
                [[HeartbeatRecord(START + 3)], [record(commit_timestamp=START + 5)], [HeartbeatRecord(START + 9)]],
                [],
            ],
        }
    )
    running = scheduler(queries, Slow(), end=None, clock=START + 2, metrics=metrics)
    queries.enough = running.stop
    run(running.run())
    assert seen[0] == START + 4, "the record at the fifth nanosecond was committed, and is not sealed"
    assert metrics.spooled >= START + 8
