"""The main loop of the reader: moves the watermark, and starts a task for each partition that may be read.

A reader is one asyncio process, owned by one TaskGroup, in which three parts work side by side:

- The :class:`Scheduler` moves the watermark a few times a second, and starts the partitions that may start.
- A :class:`~connector.reader.partition_reader.PartitionReader` reads partitions, one task for each, into the partition
  graph and the epoch buffer.
- The :class:`~connector.reader.sealer.Sealer` cuts what the watermark has passed into epochs and delivers them.

They share a :class:`~connector.reader.read_state.ReadState`. An error of any of them ends the reader. The graph
(:mod:`connector.core.partitions`) makes the decisions; these parts carry them out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from connector.core.records import partition_name
from connector.errors import SpannerCdcError
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import DeadLetterStore, LatePolicy
from connector.reader.partition_reader import PartitionReader
from connector.reader.read_state import QueriedStream, Range, ReadState
from connector.reader.sealer import SealedEpochSink, Sealer
from connector.reader.watermark_watchdog import WatermarkWatchdog
from connector.telemetry.metrics import ReaderMetrics

TICK = 0.02
"""Seconds between two moves of the watermark, at least."""


class Scheduler:
    """Reads a change stream's range into a sink.

    Args:
        stream: the change stream.
        span: what to read.
        sink: where epochs go.
        seal_interval: nanoseconds between two epochs of a stream with little traffic.
        flow: the memory's budget.
        metrics: counts what is read.
        late_records: stores records that are returned too late; None where there is no store.
    """

    def __init__(
        self,
        stream: QueriedStream,
        span: Range,
        sink: SealedEpochSink,
        *,
        seal_interval: int,
        flow: FlowControl,
        metrics: ReaderMetrics,
        late_records: DeadLetterStore | None = None,
    ) -> None:
        self._state = state = ReadState(stream, span, flow, metrics)
        self._error: SpannerCdcError | None = None
        metrics.graph = lambda: list(state.graph)
        late = LatePolicy(state, late_records)
        self._sealer = Sealer(sink, state, late, seal_interval=seal_interval)
        self._watchdog = WatermarkWatchdog(state, waits_for_room=lambda: self._sealer.waits_for_room)
        self._reader = PartitionReader(state, late, self._watchdog)

    @property
    def ends(self) -> Mapping[str, int]:
        """The latest end of a partition of each read function of a placement, of those that have ended."""
        return self._state.graph.functions.ends

    async def run(self) -> None:
        """Reads until the end is delivered or :meth:`stop` is called, then seals the records up to the watermark.

        Raises:
            SpannerCdcError: one clear line. What the watermark had passed is delivered all the same, because a deleted
                change stream cannot be read again.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                sealing = tasks.create_task(self._sealer.run(), name="sealer")
                watching = [tasks.create_task(self._watchdog.watch(), name="watchdog")]
                if (functions := self._state.stream.functions) is not None:
                    changed, failing = self._state.changed.set, self._state.metrics.failing
                    watch = partial(functions.watch, self._state.graph, changed, failing)
                    watching.append(tasks.create_task(self._stopping(watch), name="read functions"))
                reading = await self._main_loop(tasks)
                for task in (*watching, *reading):
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
            if self._state.ending:
                return reading
            for token in self._state.graph.ready():
                task = tasks.create_task(self._stopping(partial(self._reader.read, token)), name=partition_name(token))
                reading.add(task)
                task.add_done_callback(reading.discard)
            await self._state.changed.wait()
            self._state.changed.clear()
            if not self._state.stopping.is_set():
                await asyncio.sleep(TICK)

    def stop(self) -> None:
        """Asks :meth:`run` to seal what is complete and to return."""
        self._state.stopping.set()
        self._state.changed.set()

    def _move_watermark(self) -> None:
        watermark = self._state.graph.advance()
        self._state.buffer.advance(watermark)
        self._state.resume_partitions()
        self._report(watermark)
        self._sealer.watermark_moved()

    async def _stopping(self, part: Callable[[], Awaitable[None]]) -> None:
        """Runs a part of the reader; its error stops the reader, which still seals what is complete."""
        try:
            await part()
        except SpannerCdcError as error:
            self._error = self._error or error
            self.stop()

    def _report(self, watermark: int) -> None:
        metrics, graph = self._state.metrics, self._state.graph
        metrics.watermark = watermark
        if not self._sealer.has_unsealed:
            metrics.complete = watermark
        metrics.partitions = graph.unfinished
        metrics.churn = dict(graph.churn)
        metrics.held_bytes = self._state.buffer.bytes
        metrics.waiting_partitions = self._state.flow.waiting


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to report: one with a clear line before any other."""
    flat = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in flat if isinstance(error, SpannerCdcError)), flat[0])
