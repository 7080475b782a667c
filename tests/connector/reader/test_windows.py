"""The reader in the MUTABLE_KEY_RANGE mode, whose windows were computed from an old clock."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import grpc
import pytest

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import HeartbeatRecord
from connector.core.timestamps import MINUTE, SECOND
from connector.errors import StreamError, UnreachableError
from connector.reader.flow_control import FlowControl
from connector.reader.partition_reader import REFUSED_CREDENTIALS
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.spanner.workers.failures import RemoteCallError
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import record
from tests.property.virtual_time import VirtualTimeLoop, run

START = 1_800_000_000 * SECOND
WINDOW = 30 * MINUTE
HOUR = 3600


class Spanner:
    """A Spanner whose clock is ``ahead`` seconds before the loop's; a query over the past returns its records and ends.

    Args:
        ahead: seconds.
        data: the seconds after the start at which the partition "p0" has a record.
        past_heartbeats: whether a query over the past ends with a heartbeat.
    """

    def __init__(self, *, ahead: float = 0, data: tuple[float, ...] = (), past_heartbeats: bool = False) -> None:
        self._ahead = ahead
        self._data = [START + round(at * SECOND) for at in data]
        self._past_heartbeats = past_heartbeats
        self.reachable = True
        self.ends_streams = asyncio.Event()
        self.queries = 0
        self.clock_requests = 0

    @property
    def now(self) -> int:
        return START + round((asyncio.get_running_loop().time() + self._ahead) * SECOND)

    async def clock(self) -> int:
        self.clock_requests += 1
        await asyncio.sleep(0.1)
        if not self.reachable:
            raise UnreachableError("Spanner does not answer")
        return self.now

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.queries += 1
        assert query.end is not None
        assert query.end <= max(self.now, query.start) + WINDOW
        if not self.reachable:
            raise RemoteCallError(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
        sent_up_to = query.start
        while True:
            upto = min(self.now, query.end)
            for at in self._data if query.token == "p0" else ():
                if sent_up_to <= at <= upto:
                    yield [record(commit_timestamp=at, server_transaction_id=str(at))]
            if upto == query.end and sent_up_to == query.start and not self._past_heartbeats:
                return
            yield [HeartbeatRecord(upto)]
            if upto == query.end:
                return
            sent_up_to = upto + 1
            await asyncio.sleep(2)
            if not self.reachable:
                raise RemoteCallError(grpc.StatusCode.UNAVAILABLE, "Socket closed")


class Reader:
    """Reads partitions in windows; keeps the commit timestamps that it delivers."""

    def __init__(self, spanner: Spanner, partitions: int = 1, known_clock: int = START) -> None:
        self.delivered: list[int] = []
        self.metrics = ReaderMetrics()
        self._spanner = spanner
        self.scheduler = Scheduler(
            QueriedStream(
                "S", cast("PartitionQueries", spanner), SpannerClock(spanner.clock, known_clock), window=WINDOW
            ),
            Range(tuple(CutPartition(f"p{number}", START) for number in range(partitions)), START - 1, None),
            self,
            seal_interval=0,
            flow=FlowControl(),
            metrics=self.metrics,
        )

    @property
    def lag(self) -> float:
        """Seconds that the watermark trails Spanner's clock."""
        return (self._spanner.now - self.metrics.watermark) / SECOND

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        self.delivered += [change.commit_timestamp for change in epoch.records]


def reads(reader: Callable[[], Reader], during: Callable[[Reader], Awaitable[None]]) -> Reader:
    async def main() -> Reader:
        made = reader()
        reading = asyncio.create_task(made.scheduler.run())
        await during(made)
        made.scheduler.stop()
        await reading
        return made

    return run(main())


@pytest.mark.parametrize("past_heartbeats", [False, True])
@pytest.mark.parametrize("known", [0, 3 * HOUR])
def test_a_reader_whose_clock_is_hours_old_catches_up_at_once(past_heartbeats: bool, known: int) -> None:
    spanner: list[Spanner] = []

    def reader() -> Reader:
        spanner.append(Spanner(ahead=3 * HOUR, data=(1, 170 * 60), past_heartbeats=past_heartbeats))
        return Reader(spanner[0], known_clock=START + known * SECOND)

    async def during(made: Reader) -> None:
        await asyncio.sleep(10)
        assert made.lag < 5

    assert reads(reader, during).delivered == [START + SECOND, START + 170 * MINUTE]
    assert spanner[0].queries <= 3
    assert spanner[0].clock_requests <= 2


def test_a_reader_suspended_for_longer_than_a_window_continues_from_the_present_clock() -> None:
    spanner: list[Spanner] = []

    def reader() -> Reader:
        spanner.append(Spanner(data=(1, 2 * HOUR)))
        return Reader(spanner[0])

    async def during(made: Reader) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        for _ in range(3):
            await asyncio.sleep(100)
            assert made.lag < 5
            loop.stall(HOUR)
            await asyncio.sleep(10)
            assert made.lag < 5

    made = reads(reader, during)
    assert made.delivered == [START + SECOND, START + 2 * HOUR * SECOND]
    assert made.metrics.standstills == 0


@pytest.mark.long
def test_after_an_outage_longer_than_a_window_partitions_continue_and_share_spanners_clock() -> None:
    spanner: list[Spanner] = []

    def reader() -> Reader:
        spanner.append(Spanner())
        return Reader(spanner[0], partitions=50)

    async def during(made: Reader) -> None:
        await asyncio.sleep(100)
        spanner[0].reachable = False
        await asyncio.sleep(HOUR)
        assert made.lag > HOUR - 10
        spanner[0].reachable, before = True, spanner[0].clock_requests
        await asyncio.sleep(60)
        assert made.lag < 5
        assert spanner[0].clock_requests - before < 100, "one call at a time, which takes a tenth of a second"

    made = reads(reader, during)
    assert made.metrics.standstills == 0, "an outage is reported by the queries"


@pytest.mark.long
def test_windows_that_end_in_normal_operation_share_one_request_for_the_clock() -> None:
    spanner: list[Spanner] = []

    def reader() -> Reader:
        spanner.append(Spanner())
        return Reader(spanner[0], partitions=20)

    async def during(made: Reader) -> None:
        await asyncio.sleep(2 * HOUR)
        assert made.lag < 5

    made = reads(reader, during)
    assert 80 < spanner[0].queries < 200
    assert spanner[0].clock_requests < spanner[0].queries
    assert made.metrics.standstills == 0


def test_a_permanent_error_of_the_clock_ends_the_reader() -> None:
    class Denied(Spanner):
        async def clock(self) -> int:
            raise StreamError("permission denied")

    async def during(_: Reader) -> None:
        await asyncio.sleep(60)

    with pytest.raises(StreamError, match="permission denied"):
        reads(lambda: Reader(Denied(ahead=3 * HOUR)), during)


class WithoutClock(Spanner):
    """Refuses the credentials of each request for its clock."""

    async def clock(self) -> int:
        self.clock_requests += 1
        raise UnreachableError("refused") from RemoteCallError(grpc.StatusCode.UNAUTHENTICATED, "x")


def test_credentials_that_are_refused_for_the_clock_end_the_reader_as_those_of_a_query_do() -> None:
    async def during(made: Reader) -> None:
        await asyncio.sleep(60)
        (retry,) = made.metrics.failing.lasting(time.time_ns() + MINUTE)
        assert "does not accept the credentials (UNAUTHENTICATED: x)" in str(retry.cause)
        await asyncio.sleep(REFUSED_CREDENTIALS + 60)

    with pytest.raises(StreamError, match="this machine's clock is right"):
        reads(lambda: Reader(WithoutClock(ahead=3 * HOUR)), during)
