"""The reader of a change stream: runs the queries of all its partitions and hands out epochs.

How it works: one task a partition pulls messages and tells the partition graph and the epoch buffer; the coordinator
moves the watermark a few times a second and starts the children that may start; the sealer takes what the watermark
has passed and delivers it, epoch by epoch, together with the cut to go on from. All of it is one asyncio process,
owned by one TaskGroup: whatever fails ends the whole, and nothing delivered is ever taken back.

The graph (:mod:`connector.core.partitions`) decides; this module only does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Protocol

import grpc
import tenacity

from connector.core.changes import Changes
from connector.core.epoch import MAX_BYTES, Epoch, EpochBuffer, incomplete_transactions
from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    partition_name,
)
from connector.core.timestamps import SECOND, format_rfc3339
from connector.decoding.decoder import Item
from connector.decoding.row_fields import UnknownRecordError
from connector.errors import SpannerCdcError, StreamError, UnreachableError
from connector.log import Log
from connector.reader.bounds import Bounds
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import DeadLetterStore, LatePolicy
from connector.reader.reader_watchdog import AskedAnewError, ReaderWatchdog
from connector.spanner.clock import SpannerClock
from connector.spanner.faults import Verdict, fault, query_error
from connector.spanner.partition_query import PartitionQuery, SilentStreamError
from connector.telemetry.metrics import ReaderMetrics

TICK = 0.02
"""Seconds between two moves of the watermark, at least."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0

_log = Log(__name__)


class Queries(Protocol):
    """Sends partitions' queries, in this process or in others."""

    def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As of :class:`connector.spanner.partition_query.PartitionQueries`."""


class EpochSink(Protocol):
    """Where epochs go, one after the other."""

    async def room(self, stopping: asyncio.Event) -> bool:
        """Waits until the next epoch may be delivered; False if ``stopping`` was set before there was room."""

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        """Takes an epoch; when it returns the epoch and the cut after it are safe."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is read: from a cut at a watermark to the user's end, inclusive; nanoseconds since the epoch."""

    cut: tuple[CutPartition, ...]
    watermark: int
    end: int | None


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
        spanner_clock: asks Spanner for its clock, nanoseconds since the epoch.
        known_clock: what Spanner's clock has passed already.
        flow: the memory's budget.
        metrics: what is counted.
        heartbeat: the stream's, in nanoseconds.
        late_records: keeps records that come too late; None where there is nothing to keep them in.
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
        self._queries = queries
        self._stream = stream
        self._end = span.end
        self._sink = sink
        self._seal_interval = seal_interval / SECOND
        self._clock = SpannerClock(spanner_clock, known_clock)
        self._bounds = Bounds(span.end, window, self._clock)
        self._flow = flow
        self._metrics = metrics
        self._graph = PartitionGraph(span.cut, watermark=span.watermark, end=span.end)
        self._buffer = EpochBuffer(span.watermark, max_bytes=min(MAX_BYTES, flow.budget))
        self._watchdog = ReaderWatchdog(self._graph, flow, self._clock, metrics, heartbeat=heartbeat, name=self._name)
        self._late = LatePolicy(stream, self._graph, self._buffer, metrics, late_records)
        self._changed = asyncio.Event()
        self._due = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: SpannerCdcError | None = None

    async def run(self) -> None:
        """Reads until the end has been delivered, or until :meth:`stop`; then seals what the watermark has passed.

        Raises:
            SpannerCdcError: one clear line. What the watermark had passed is delivered all the same, for a change
                stream that is gone cannot be read again.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                sealer = tasks.create_task(self._seal(), name="sealer")
                watch = tasks.create_task(self._watchdog.watch(), name="watchdog")
                readers = await self._coordinate(tasks)
                for task in (watch, *readers):
                    task.cancel()
                self._due.set()
                await sealer
        except ExceptionGroup as group:
            raise _first(group) from group
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Asks :meth:`run` to seal what is complete and to return."""
        self._stopping.set()
        self._changed.set()

    async def _coordinate(self, tasks: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        """Moves the watermark and starts partitions until the end or a stop; returns the readers that are left."""
        readers: set[asyncio.Task[None]] = set()
        while True:
            watermark = self._graph.advance()
            self._buffer.advance(watermark)
            self._let_go_on()
            self._report(watermark)
            if self._buffer.ready_bytes or self._buffer.overdue:
                self._due.set()
            if self._ending:
                return readers
            for token in self._graph.ready():
                task = tasks.create_task(self._read(token), name=self._name(token))
                readers.add(task)
                task.add_done_callback(readers.discard)
            await self._changed.wait()
            self._changed.clear()
            if not self._stopping.is_set():
                await asyncio.sleep(TICK)

    @property
    def _ending(self) -> bool:
        return self._graph.finished or self._stopping.is_set()

    async def _seal(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time() - self._seal_interval
        while not self._ending:
            await self._due.wait()
            self._due.clear()
            await self._pause_until(last + self._seal_interval)
            last = loop.time()
            if not self._ending:
                await self._deliver_ready()
            if self._buffer.ready_bytes:
                self._due.set()  # readers that wait for memory bring no news
            await asyncio.sleep(0)  # whatever is due: others have their turn
        await self._deliver_ready(all_of_it=True)

    async def _pause_until(self, moment: float) -> None:
        """Waits for the seal interval, or less where an epoch is full or the reader ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(moment):
                while not (self._buffer.overdue or self._ending):
                    await self._due.wait()
                    self._due.clear()

    async def _deliver_ready(self, *, all_of_it: bool = False) -> None:
        await self._late.stored()
        more = self._buffer.ready_bytes > 0
        while more or self._buffer.overdue or all_of_it:
            more = False
            self._watchdog.waits_for_room = True
            has_room = await self._sink.room(self._stopping)
            self._watchdog.waits_for_room = False
            if not has_room:
                return
            await self._late.stored()
            epoch = self._buffer.take()
            if epoch is None:
                return
            self._guard(epoch)
            final = self._end is not None and epoch.high >= self._end
            await self._sink.deliver(epoch, self._graph.cut(epoch.high), final=final)
            self._graph.sealed(epoch.high)
            self._let_go_on()
            self._metrics.sealed(epoch)

    def _guard(self, epoch: Epoch) -> None:
        for miss in incomplete_transactions(epoch.changes):
            self._metrics.incomplete_transactions += 1
            _log.error(
                "a transaction is incomplete",
                server_transaction_id=miss.server_transaction_id,
                commit_timestamp=format_rfc3339(miss.commit_timestamp),
                expected_records=miss.expected,
                received_records=miss.received,
            )

    async def _read(self, token: str) -> None:
        """Reads a partition until it has finished: query after query, each from the last progress."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_ResumableError),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
            before_sleep=lambda state: self._warn(token, state),
        )
        try:
            finished = False
            while not finished:  # it brought something, so that the next begins with a pause as short as the first
                finished = await retrying(self._query_on, token)
        except SpannerCdcError as error:
            self._failure = self._failure or error
            self.stop()

    async def _query_on(self, token: str) -> bool:
        """Sends a query; returns whether the partition has finished.

        Raises:
            _ResumableError: it has not, and the query brought nothing.
        """
        partition = self._graph[token]
        before, doubted = partition.progress, partition.doubted
        try:
            if await self._query(token):
                return True
            broke = _ResumableError("it ended before its partition did")
        except _ResumableError as error:
            broke = error
        if partition.doubted != doubted:
            _log.debug("a partition is asked at its end once more", partition=self._name(token))
            return False
        if partition.progress == before:
            raise broke
        _log.info("a partition's query is sent again", partition=self._name(token), reason=str(broke))
        return False

    async def _query(self, token: str) -> bool:
        """Sends one query and reads it to its end; returns whether the partition has finished.

        Raises:
            _ResumableError: it broke; asked again it goes on.
            SpannerCdcError: it must not be asked again.
        """
        if self._graph.nothing_left(token):
            self._changed.set()
            return True
        try:
            await self._bounds.settle(token)
        except UnreachableError as error:
            raise _ResumableError(str(error)) from error
        start, before = self._graph.query_start(token), self._graph[token].progress
        bound = self._bounds.of(token, start)
        proven = self._bounds.proven(bound)
        self._graph.sent(token)
        self._metrics.queries += 1
        clean = finished = False
        try:
            await self._pull(token, start, bound)
            clean = True
            finished = self._graph.ended(token, proven=proven)
        except grpc.RpcError as error:
            found = fault(error)
            if found.verdict is Verdict.STOP:
                raise query_error(
                    found, stream=self._stream, partition=self._name(token), start=format_rfc3339(start)
                ) from error
            raise _ResumableError(str(found)) from error
        except (SilentStreamError, AskedAnewError) as error:
            raise _ResumableError(str(error)) from error
        except UnknownRecordError as error:
            raise StreamError(
                f"change stream {self._stream}, {self._name(token)}: {error}",
                hint="Nothing was skipped. A newer spanner-cdc may know this record.",
            ) from error
        finally:
            self._flow.arrived(token)
            if not finished:
                progress = self._graph.broke(token)
                self._bounds.ended(token, bound, clean=clean, news=progress > before)
                self._buffer.discard(token, beyond=progress)
            self._changed.set()
        return finished

    async def _pull(self, token: str, start: int, bound: int | None) -> None:
        """Sends a query and takes what it brings, until it ends with OK."""
        async with self._watchdog.query(token) as under_way:
            query = PartitionQuery(token, start, bound, under_way.in_vain)
            async with aclosing(self._queries.read(query)) as messages:
                async for items in messages:
                    self._flow.arrived(token)
                    known = self._metrics.records
                    self._receive(token, items)
                    if self._metrics.records > known:
                        under_way.goes_on()
                    await self._late.settled()
                    while not self._admits(token):
                        await self._flow.wait(token, self._graph[token].progress)
                        under_way.goes_on()

    def _receive(self, token: str, items: list[Item]) -> None:
        partition = self._graph[token]
        for item in self._late.sorted_out(token, items):
            match item:
                case Changes():
                    held, passed = self._buffer.add_all(token, item, progress=partition.progress)
                    self._metrics.received(len(held), held.mods)
                    self._late.behind_watermark(token, passed.records() if len(passed) else ())
                    self._proved_by_data(token, item.last)
                case DataChangeRecord():
                    at = item.commit_timestamp
                    if self._buffer.add(token, item, progress=partition.progress):
                        self._metrics.received(1, len(item.mods))
                    elif at > partition.progress:
                        self._late.behind_watermark(token, [item])
                    self._proved_by_data(token, at)
                case HeartbeatRecord():
                    self._graph.proved(token, item.timestamp - 1)
                    self._clock.saw(item.timestamp)
                    self._metrics.heartbeats += 1
                case ChildPartitionsRecord():
                    self._graph.announced(token, item)
                    self._metrics.child_partitions += len(item.children)
                case PartitionStartRecord():
                    self._graph.started(token, item)
                    self._metrics.child_partitions += len(item.tokens)
                case PartitionEndRecord():
                    self._graph.terminated(token, item)
                case PartitionEventRecord():
                    self._graph.moved(token, item)
        self._changed.set()

    def _proved_by_data(self, token: str, at: int) -> None:
        self._graph.proved(token, at - 1)
        self._clock.saw(at)

    def _let_go_on(self) -> None:
        buffer = self._buffer
        self._flow.moved(held=buffer.bytes, ready=buffer.ready_bytes, watermark=self._graph.watermark)

    def _admits(self, token: str) -> bool:
        return self._flow.admits(
            held=self._buffer.bytes, ready=self._buffer.ready_bytes, laggard=self._graph.is_laggard(token)
        )

    def _report(self, watermark: int) -> None:
        self._metrics.watermark = watermark
        self._metrics.partitions = self._graph.unfinished
        self._metrics.churn = dict(self._graph.churn)
        self._metrics.held_bytes = self._buffer.bytes
        self._metrics.waiting_partitions = self._flow.waiting

    def _warn(self, token: str, state: tenacity.RetryCallState) -> None:
        self._metrics.retries += 1
        _log.warning(
            "a partition's query broke and is sent again",
            partition=self._name(token),
            error=str(state.outcome.exception()) if state.outcome else "",
            attempt=state.attempt_number,
            pause_s=round(state.upcoming_sleep, 3),
        )

    _name = staticmethod(partition_name)


class _ResumableError(Exception):
    """A query that broke and is asked again from the partition's progress."""


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell: a clear one of ours before any other."""
    flat = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in flat if isinstance(error, SpannerCdcError)), flat[0])
