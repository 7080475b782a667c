"""Watches over a whole reader: where the watermark stands still and nobody waits for us, partitions are asked anew.

Each query has a watchdog of its own, against silence (:mod:`connector.spanner.partition_query`). This one is against
every other state in which nothing is gained: heartbeats that prove nothing new, a call that never returns, a partition
that waits for one which nobody has heard of. When it is time, :class:`connector.core.standstill.Standstill` decides. A
query that is merely slow is left alone for as long as its own patience lasts, and so is one that brings records.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from connector.core.partitions import Partition, PartitionGraph, State
from connector.core.standstill import Standstill
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpannerCdcError
from connector.log import Log
from connector.reader.flow_control import FlowControl
from connector.spanner.clock import SpannerClock
from connector.spanner.partition_query import SilentStreamError, patience
from connector.telemetry.metrics import ReaderMetrics

HEARTBEATS = 6
AT_LEAST = 60 * SECOND
"""So long the watermark may stand still: more than a query's own watchdog waits the first time."""

LOOKS = 12
"""Looks in that time."""

_log = Log(__name__)


class AskedAnewError(Exception):
    """A query was ended by the reader's watchdog, to be sent again."""


class UnderWay:
    """A query that is being read.

    Args:
        sent: when it was sent, in seconds of the loop's time.
        in_vain: as of :class:`connector.spanner.partition_query.PartitionQuery`.
        patience: seconds that a message of it is waited for.
    """

    def __init__(self, sent: float, in_vain: int, patience: float) -> None:
        self.in_vain = in_vain
        self._since = sent
        """When it was sent, brought records that were not known, or went on after it had been paused."""
        self._patience = patience
        self.scope = asyncio.timeout(None)

    def goes_on(self) -> None:
        """It has brought records that were not known, or goes on after it was paused."""
        self._since = asyncio.get_running_loop().time()

    def patience_left(self, at: float, limit: float) -> float:
        """Seconds for which it is left alone, if nothing more comes; nothing or less where it is to be asked anew.

        Args:
            at: the loop's time.
            limit: seconds that one which brings nothing new is left alone.
        """
        return self._since + max(limit, self._patience) - at

    def end(self, at: float) -> None:
        """Ends it, with AskedAnewError where it is read."""
        self.scope.reschedule(at)


class ReaderWatchdog:
    """Watches over the queries of a reader.

    Args:
        graph: the reader's partitions.
        flow: says which of them are paused.
        clock: Spanner's.
        metrics: what is counted.
        heartbeat: the stream's, in nanoseconds.
        name: what a partition is called in messages.
    """

    def __init__(
        self,
        graph: PartitionGraph,
        flow: FlowControl,
        clock: SpannerClock,
        metrics: ReaderMetrics,
        *,
        heartbeat: int,
        name: Callable[[str], str],
    ) -> None:
        self._graph = graph
        self._flow = flow
        self._clock = clock
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._name = name
        self._limit = max(AT_LEAST, HEARTBEATS * heartbeat) / SECOND
        self._standstill = Standstill(self._limit, step=2 * self._limit / LOOKS)
        self._under_way: dict[str, UnderWay] = {}
        self._in_vain: dict[str, int] = {}
        self.waits_for_room = False
        """Whether the sink has no room for the next epoch."""

    @asynccontextmanager
    async def query(self, token: str) -> AsyncIterator[UnderWay]:
        """Around the reading of a partition's query.

        Raises:
            AskedAnewError: it was ended, to be sent again.
        """
        progress, in_vain = self._graph[token].progress, self._in_vain.get(token, 0)
        now = asyncio.get_running_loop().time()
        under_way = UnderWay(now, in_vain, patience(self._heartbeat, in_vain) / SECOND)
        self._under_way[token] = under_way
        try:
            async with under_way.scope:
                yield under_way
            self._in_vain.pop(token, None)
        except TimeoutError as error:
            if not under_way.scope.expired():
                raise
            self._in_vain[token] = in_vain + 1
            raise AskedAnewError("it has brought nothing new while the watermark stood still") from error
        except SilentStreamError:
            self._in_vain[token] = in_vain + 1
            raise
        finally:
            del self._under_way[token]
            if self._graph[token].progress > progress:
                self._in_vain.pop(token, None)

    async def watch(self) -> None:
        """Looks now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(self._limit / LOOKS)
            await self._look(asyncio.get_running_loop().time())

    async def _look(self, now: float) -> None:
        watermark, times, stood = self._graph.watermark, self._standstill.times, self._standstill.stood
        ours = self.waits_for_room or self._flow.holds_back(watermark)
        stands = self._standstill.look(now, watermark=watermark, clock=self._clock.passed, ours=ours)
        if times and not self._standstill.times:
            _log.info("the watermark stands still no more", watermark=format_rfc3339(watermark), after_s=round(stood))
        if not stands:
            return
        try:
            clock = await self._clock.ask()
        except SpannerCdcError:  # of which the queries tell
            self._standstill.unanswered()
            return
        if self._graph.watermark == watermark and self._standstill.noticed(clock):
            self._metrics.standstills += 1
            self._heal(asyncio.get_running_loop().time(), watermark, clock)

    def _heal(self, now: float, watermark: int, clock: int) -> None:
        """Asks the partitions that hold the watermark anew, where that may help, and says so."""
        said: dict[str, str] = {}
        """What is done, by partition; what is done about the first is what matters most."""
        laggards = sorted(self._graph.laggards(), key=lambda one: one.state is State.CREATED)
        for partition in laggards:
            under_way = self._under_way.get(partition.token)
            if partition.state is State.CREATED:
                said[partition.token] = f"asking anew cannot help: it waits for {self._awaited(partition)}"
            elif under_way is None:
                said[partition.token] = "between two queries, it is asked again"
            elif (left := under_way.patience_left(now, self._limit)) > 0:
                said[partition.token] = f"its query is left alone for {left:.0f} s more, for it may merely be slow"
            else:
                under_way.end(now)
                said = {partition.token: "its query is ended and sent again", **said}
        first = next(iter(said), None)
        _log.warning(
            "the watermark stands still while Spanner's clock goes on",
            watermark=format_rfc3339(watermark),
            since=format_rfc3339(clock - round(self._standstill.stood * SECOND)),
            times=self._standstill.times,
            partition="unknown" if first is None else self._name(first),
            remedy="none" if first is None else said[first],
            partitions=len(said),
            again_in_s=round(self._standstill.pause),
        )

    def _awaited(self, partition: Partition, told: frozenset[str] = frozenset()) -> str:
        """The parents that a partition waits for, what they wait for themselves, and which were never heard of."""
        told |= {partition.token}
        waits = [
            f"{self._name(one)}, of which nothing was heard" for one in partition.parents if one not in self._graph
        ]
        for token in self._graph.unfinished_parents(partition.token):
            parent = self._graph[token]
            if parent.state is State.CREATED and token not in told:
                waits.append(f"{self._name(token)}, which waits for {self._awaited(parent, told)}")
            else:
                waits.append(f"{self._name(token)}, which has not finished")
        return "; ".join(sorted(waits)) or "none"
