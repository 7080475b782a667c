"""Watches the reader's watermark: where it is stalled and does not wait for the reader, queries are restarted.

Each query has a timeout of its own, for silence (:mod:`connector.spanner.message_timeout`). This watchdog covers every
other state without progress: heartbeats that prove nothing new, a call that never returns, a partition that waits for
one that was never discovered. :class:`connector.core.stall_detector.StallDetector` decides when the watermark is
stalled. A query that is merely slow is left alone for as long as its own timeout, and so is one that returns records.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from connector.core.partitions import Partition, PartitionState
from connector.core.records import partition_name
from connector.core.stall_detector import StallDetector
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpannerCdcError
from connector.log import Log
from connector.reader.read_state import ReadState
from connector.spanner.partition_query import SilentStreamError, patience

HEARTBEATS = 6
AT_LEAST = 60 * SECOND
"""The time after which a stalled watermark is acted on: longer than the first timeout of a query."""

LOOKS = 12
"""The number of times that the watermark is checked in that time."""

_log = Log(__name__)


class QueryRestartedError(Exception):
    """The watermark's watchdog ended a query, so that it is sent again."""


@dataclass(slots=True)
class RunningQuery:
    """A query that is being read.

    Attributes:
        since: when it was sent, returned new records, or resumed after a pause, in seconds of the loop's time.
        timeouts: as of :class:`connector.spanner.partition_query.PartitionQuery`.
        patience: seconds that one of its messages is waited for.
        scope: ends it with QueryRestartedError in the task that reads it.
    """

    since: float
    timeouts: int
    patience: float
    scope: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    def progressed(self) -> None:
        """It has returned new records, or resumes after a pause."""
        self.since = asyncio.get_running_loop().time()

    def patience_left(self, at: float, limit: float) -> float:
        """Seconds for which it is left alone if it returns nothing; zero or less where it is to be restarted.

        Args:
            at: the loop's time.
            limit: seconds that a query which returns nothing new is left alone, at least.
        """
        return self.since + max(limit, self.patience) - at


class WatermarkWatchdog:
    """Restarts the queries that stall the watermark.

    Args:
        state: the reader's.
        waits_for_room: whether the sink has no room for the next epoch.
    """

    def __init__(self, state: ReadState, *, waits_for_room: Callable[[], bool]) -> None:
        self._graph = state.graph
        self._flow = state.flow
        self._clock = state.stream.clock
        self._metrics = state.metrics
        self._heartbeat = state.stream.heartbeat
        self._waits_for_room = waits_for_room
        self._limit = max(AT_LEAST, HEARTBEATS * self._heartbeat) / SECOND
        self._detector = StallDetector(self._limit, step=2 * self._limit / LOOKS)
        self._running: dict[str, RunningQuery] = {}
        self._timeouts: dict[str, int] = {}

    @asynccontextmanager
    async def query(self, token: str) -> AsyncIterator[RunningQuery]:
        """Surrounds the reading of a partition's query.

        Raises:
            QueryRestartedError: it was ended, to be sent again.
        """
        progress, timeouts = self._graph[token].progress, self._timeouts.get(token, 0)
        now = asyncio.get_running_loop().time()
        running = RunningQuery(now, timeouts, patience(self._heartbeat, timeouts) / SECOND)
        self._running[token] = running
        try:
            async with running.scope:
                yield running
            self._timeouts.pop(token, None)
        except TimeoutError as error:
            if not running.scope.expired():
                raise
            self._timeouts[token] = timeouts + 1
            raise QueryRestartedError("it returned nothing new while the watermark was stalled") from error
        except SilentStreamError:
            self._timeouts[token] = timeouts + 1
            raise
        finally:
            del self._running[token]
            if self._graph[token].progress > progress:
                self._timeouts.pop(token, None)

    async def watch(self) -> None:
        """Looks at the watermark at regular intervals, until it is cancelled."""
        while True:
            await asyncio.sleep(self._limit / LOOKS)
            await self._look(asyncio.get_running_loop().time())

    async def _look(self, now: float) -> None:
        detector, watermark = self._detector, self._graph.watermark
        times, stalled_for = detector.times, detector.stalled_for
        waits = self._waits_for_room() or self._flow.pauses_laggard(watermark)
        is_due = detector.look(now, watermark=watermark, clock=self._clock.passed, waits_for_reader=waits)
        if times and not detector.times:
            _log.info(
                "the watermark is no longer stalled", watermark=format_rfc3339(watermark), after_s=round(stalled_for)
            )
        if not is_due:
            return
        try:
            clock = await self._clock.read()
        except SpannerCdcError:  # the queries meet the same error and report it
            detector.reset()
            return
        if self._graph.watermark == watermark and detector.is_stalled(clock):
            self._metrics.stalled()
            self._restart_laggards(asyncio.get_running_loop().time(), watermark, clock)

    def _restart_laggards(self, now: float, watermark: int, clock: int) -> None:
        """Restarts the queries of the partitions that hold the watermark, if that may help, and logs it."""
        remedies: dict[str, str] = {}
        """The remedy for each partition; the first is the one that matters most."""
        laggards = sorted(self._graph.laggards(), key=lambda one: one.state is PartitionState.CREATED)
        for partition in laggards:
            running = self._running.get(partition.token)
            if partition.state is PartitionState.CREATED:
                remedies[partition.token] = f"a new query cannot help: it waits for {self._awaited(partition)}"
            elif running is None:
                remedies[partition.token] = "it is between two queries, the next is sent soon"
            elif (left := running.patience_left(now, self._limit)) > 0:
                remedies[partition.token] = f"its query is left alone for {left:.0f} s more, because it may be slow"
            else:
                running.scope.reschedule(now)
                remedies = {partition.token: "its query is ended and sent again", **remedies}
        first = next(iter(remedies), None)
        _log.warning(
            "the watermark is stalled while Spanner's clock advances",
            watermark=format_rfc3339(watermark),
            since=format_rfc3339(clock - round(self._detector.stalled_for * SECOND)),
            times=self._detector.times,
            partition="unknown" if first is None else partition_name(first),
            remedy="none" if first is None else remedies[first],
            partitions=len(remedies),
            again_in_s=round(self._detector.pause),
        )

    def _awaited(self, partition: Partition, seen: frozenset[str] = frozenset()) -> str:
        """The parents that a partition waits for, with their own parents, and those that were never discovered."""
        seen |= {partition.token}
        waits = [
            f"{partition_name(token)}, which was never discovered"
            for token in partition.parents
            if token not in self._graph
        ]
        for token in self._graph.unfinished_parents(partition.token):
            parent = self._graph[token]
            if parent.state is PartitionState.CREATED and token not in seen:
                waits.append(f"{partition_name(token)}, which waits for {self._awaited(parent, seen)}")
            else:
                waits.append(f"{partition_name(token)}, which has not finished")
        return "; ".join(sorted(waits)) or "none"
