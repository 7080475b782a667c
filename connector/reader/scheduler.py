"""The main loop of the reader: moves the watermark, and starts a task for each partition that may be read.

A reader is one asyncio process, owned by one TaskGroup, in which three parts work side by side:

- The :class:`Scheduler` moves the watermark a few times a second, and starts the partitions that may start.
- A :class:`~connector.reader.partition_reader.PartitionReader` reads partitions, one task for each, into the partition
  graph and the epoch buffer.
- The :class:`~connector.reader.sealer.Sealer` cuts what the watermark has passed into epochs and delivers them.

An error of any of them ends the reader. The graph (:mod:`connector.core.partitions`) makes the decisions; these parts
carry them out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from connector.core.epoch import MAX_BYTES, EpochBuffer
from connector.core.partitions import CutPartition, Follows, PartitionGraph, follow_all
from connector.core.records import partition_name
from connector.core.timestamps import SECOND
from connector.errors import SpannerCdcError
from connector.reader.bounds import Bounds
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import DeadLetterStore, LatePolicy
from connector.reader.partition_reader import PartitionReader, Queries
from connector.reader.receiver import Receiver
from connector.reader.sealer import EpochSink, Sealer
from connector.reader.watermark_watchdog import WatermarkWatchdog
from connector.spanner.clock import SpannerClock
from connector.telemetry.metrics import ReaderMetrics

TICK = 0.02
"""Seconds between two moves of the watermark, at least."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range to read: from a cut at a watermark to the user's end, inclusive; Unix nanoseconds."""

    cut: tuple[CutPartition, ...]
    watermark: int
    end: int | None
    follows: Follows = follow_all
    """Decides which child partitions are followed. Any other rule means that others read other parts of the cut: then
    transactions may be incomplete here, and nothing is delivered before the whole range is."""

    @property
    def is_shared(self) -> bool:
        """True if others read other parts of the cut."""
        return self.follows is not follow_all


class Scheduler:
    """Reads a change stream's range into a sink.

    Args:
        queries: sends the partitions' queries.
        stream: the change stream's name, for messages.
        span: what to read.
        sink: where epochs go.
        seal_interval: nanoseconds between two epochs of a stream with little traffic.
        window: nanoseconds that the end of a query may lie past Spanner's clock and its start, at most; None where a
            query needs no end.
        spanner_clock: requests Spanner's clock, Unix nanoseconds.
        known_clock: a timestamp that Spanner's clock has passed already.
        flow: the memory's budget.
        metrics: counts what is read.
        heartbeat: the stream's, in nanoseconds.
        late_records: stores records that are returned too late; None where there is no store.
    """

    def __init__(
        self,
        queries: Queries,
        stream: str,
        span: Range,
        sink: EpochSink,
        *,
        seal_interval: int,
        window: int | None,
        spanner_clock: Callable[[], Awaitable[int]],
        known_clock: int,
        flow: FlowControl,
        metrics: ReaderMetrics,
        heartbeat: int = SECOND,
        late_records: DeadLetterStore | None = None,
    ) -> None:
        clock = SpannerClock(spanner_clock, known_clock)
        self._flow = flow
        self._metrics = metrics
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._error: SpannerCdcError | None = None
        self._graph = graph = PartitionGraph(span.cut, watermark=span.watermark, end=span.end, follows=span.follows)
        metrics.graph = lambda: list(graph)
        self._buffer = buffer = EpochBuffer(span.watermark, max_bytes=min(MAX_BYTES, flow.budget))
        late = LatePolicy(
            stream, graph, buffer, metrics, late_records, delivered=span.watermark if span.is_shared else None
        )
        self._sealer = Sealer(
            sink,
            graph,
            buffer,
            late=late,
            metrics=metrics,
            end=span.end,
            seal_interval=seal_interval,
            stopping=self._stopping,
            sealed=self._resume_partitions,
            is_shared=span.is_shared,
        )
        self._watchdog = WatermarkWatchdog(
            graph, flow, clock, metrics, heartbeat=heartbeat, waits_for_room=lambda: self._sealer.waits_for_room
        )
        self._reader = PartitionReader(
            queries,
            stream,
            graph,
            buffer,
            receiver=Receiver(graph, buffer, clock, late, metrics),
            late=late,
            bounds=Bounds(span.end, window, clock),
            flow=flow,
            watchdog=self._watchdog,
            metrics=metrics,
            heartbeat=heartbeat,
            changed=self._changed.set,
        )

    async def run(self) -> None:
        """Reads until the end has been delivered, or until :meth:`stop`; then seals what the watermark has passed.

        Raises:
            SpannerCdcError: one clear line. What the watermark had passed is delivered all the same, because a deleted
                change stream cannot be read again.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                sealing = tasks.create_task(self._sealer.run(), name="sealer")
                watching = tasks.create_task(self._watchdog.watch(), name="watchdog")
                reading = await self._main_loop(tasks)
                for task in (watching, *reading):
                    task.cancel()
                self._sealer.wake()
                await sealing
        except ExceptionGroup as group:
            raise _first(group) from group
        if self._error is not None:
            raise self._error

    async def _main_loop(self, tasks: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        """Moves the watermark and starts partitions, until the end or a stop; returns the tasks that still read."""
        reading: set[asyncio.Task[None]] = set()
        while True:
            self._move_watermark()
            if self._graph.finished or self._stopping.is_set():
                return reading
            for token in self._graph.ready():
                task = tasks.create_task(self._read(token), name=partition_name(token))
                reading.add(task)
                task.add_done_callback(reading.discard)
            await self._changed.wait()
            self._changed.clear()
            if not self._stopping.is_set():
                await asyncio.sleep(TICK)

    def stop(self) -> None:
        """Asks :meth:`run` to seal what is complete and to return."""
        self._stopping.set()
        self._changed.set()

    def _move_watermark(self) -> None:
        watermark = self._graph.advance()
        self._buffer.advance(watermark)
        self._resume_partitions()
        self._report(watermark)
        self._sealer.watermark_moved()

    async def _read(self, token: str) -> None:
        """Reads a partition; its error stops the reader, which still seals what is complete."""
        try:
            await self._reader.read(token)
        except SpannerCdcError as error:
            self._error = self._error or error
            self.stop()

    def _resume_partitions(self) -> None:
        """Lets partitions that wait for memory continue, as far as there is room."""
        buffer = self._buffer
        self._flow.update(held=buffer.bytes, ready=buffer.ready_bytes, watermark=self._graph.watermark)

    def _report(self, watermark: int) -> None:
        self._metrics.watermark = watermark
        if not self._sealer.has_unsealed:
            self._metrics.complete = watermark
        self._metrics.partitions = self._graph.unfinished
        self._metrics.churn = dict(self._graph.churn)
        self._metrics.held_bytes = self._buffer.bytes
        self._metrics.waiting_partitions = self._flow.waiting


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to report: one with a clear line before any other."""
    flat = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in flat if isinstance(error, SpannerCdcError)), flat[0])
