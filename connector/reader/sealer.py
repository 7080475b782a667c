"""Seals: cuts what the watermark has passed into epochs, and delivers them one after another.

An epoch is delivered together with the cut to resume from. What is delivered is never taken back.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from connector.core.epoch import SealedEpoch, incomplete_transactions
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND
from connector.reader.late_policy import LatePolicy
from connector.reader.read_state import ReadState


class SealedEpochSink(Protocol):
    """Takes epochs, one after another."""

    async def room(self, stopping: asyncio.Event) -> bool:
        """Waits until the next epoch may be delivered; False if ``stopping`` was set before there was room.

        Unless a sink says otherwise there is always room, because :meth:`deliver` waits until the epoch is taken.
        """
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Takes an epoch; when it returns, the epoch and the cut after it are durable."""


class Sealer:
    """Delivers epochs to a sink.

    Args:
        sink: where epochs go.
        state: the reader's.
        late: stores late records before anything past them is sealed.
        seal_interval: nanoseconds between two epochs of a stream with little traffic.
    """

    def __init__(self, sink: SealedEpochSink, state: ReadState, late: LatePolicy, *, seal_interval: int) -> None:
        self._sink = sink
        self._state = state
        self._buffer = state.buffer
        self._late = late
        self._interval = seal_interval / SECOND
        self._due = asyncio.Event()
        self._delivers = False
        self.waits_for_room = False
        """True if the sink has no room for the next epoch."""

    @property
    def has_unsealed(self) -> bool:
        """True if records that the watermark has passed are not sealed yet."""
        return self._delivers or self._buffer.ready_bytes > 0

    def watermark_moved(self) -> None:
        """The watermark may have moved: wakes the sealer if there is something to seal."""
        if self._buffer.ready_bytes or self._buffer.overdue:
            self._due.set()

    def wake(self) -> None:
        """The reader has finished or is to stop: what is ready is sealed now."""
        self._due.set()

    async def run(self) -> None:
        """Seals until the reader has finished or is to stop; then seals everything that the watermark has passed.

        Raises:
            SpannerCdcError: an epoch or a late record cannot be delivered.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() - self._interval
        while not self._state.ending:
            await self._due.wait()
            self._due.clear()
            await self._wait_until(last + self._interval)
            last = loop.time()
            if not self._state.ending:
                await self._deliver_ready()
            if self._buffer.ready_bytes:
                self._due.set()  # partitions that wait for memory cause no change that would wake this task
            await asyncio.sleep(0)  # lets other tasks run, however much is due
        await self._deliver_ready(everything=True)

    async def _wait_until(self, time: float) -> None:
        """Waits for the seal interval, or less where an epoch is full or the reader ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(time):
                while not (self._buffer.overdue or self._state.ending):
                    await self._due.wait()
                    self._due.clear()

    async def _deliver_ready(self, *, everything: bool = False) -> None:
        await self._late.stored()
        more = self._buffer.ready_bytes > 0
        while more or self._buffer.overdue or everything:
            more = False
            if not await self._has_room():
                return
            await self._late.stored()
            epoch = self._buffer.take()
            if epoch is None:
                return
            end = self._state.span.end
            final = end is not None and epoch.high >= end
            self._delivers = True  # no longer in the buffer, and if this fails not in the sink
            if not self._state.span.is_shared:
                some = self._state.stream.of_some_placements
                await self._late.report_incomplete(incomplete_transactions(epoch.changes, of_some_placements=some))
            await self._sink.deliver(epoch, self._state.graph.cut(epoch.high), final=final)
            self._delivers = False
            self._state.graph.sealed(epoch.high)
            self._state.resume_partitions()
            self._state.metrics.sealed(epoch)

    async def _has_room(self) -> bool:
        self.waits_for_room = True
        has_room = await self._sink.room(self._state.stopping)
        self.waits_for_room = False
        return has_room
