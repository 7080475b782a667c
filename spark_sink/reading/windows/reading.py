"""The driver of a reader on executors: plans a window, runs its job, seals what it has read, and plans the next.

Only a manifest makes a window's segments an epoch. A driver that is killed at any time leaves at most segments that no
manifest names; the next one reads that window again.
"""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pyspark
from pyspark.sql import DataFrame, SparkSession

from connector.core.dialects import MUTABLE
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.core.windows import Closed, Window, WindowPace, closed, deal, next_window
from connector.daemon.read import MakesRangeReader, RangeReader, RangeToRead
from connector.daemon.spool_sink import WrittenEpoch
from connector.errors import ConfigurationError, StreamError, UnreachableError
from connector.log import Log
from connector.reader.late_policy import count_incomplete
from connector.spanner.clock import SpannerClock
from connector.spanner.discovery import current_timestamp
from spark_sink.reading.windows.job import ReadWindow, WindowJob
from spark_sink.reading.windows.running import result_or_stop
from spark_sink.reading.windows.segments import WriterSetup
from spark_sink.reading.windows.task import WindowSetup
from spark_sink.reading.windows.telemetry import WindowTelemetry
from spark_sink.sources.changes.cores import cores_of

_POLL = 0.25
"""Seconds between two looks at whether a window is due, or whether to stop."""

_SLICE_BYTES = 64 * 1024 * 1024
"""Bytes of records that are expected in a slice, at most."""

_LEAST_SLICE_BYTES = 4 * 1024 * 1024
"""Bytes of records below which another slice costs more than it gains."""

_log = Log(__name__)


def on_executors(spark: SparkSession) -> MakesRangeReader:
    """Readers that read with the executors of a session.

    Raises:
        ConfigurationError: this PySpark cannot.
    """
    if not hasattr(DataFrame, "repartitionById"):
        raise ConfigurationError([f"source.reader: executors needs PySpark 4.1 or newer, not {pyspark.__version__}"])

    @asynccontextmanager
    async def reader(read: RangeToRead) -> AsyncIterator[RangeReader]:
        yield WindowReader(read, spark)

    return reader


@dataclass(frozen=True, slots=True)
class _Read:
    """A window that was read completely."""

    window: Window
    closed: Closed
    found: ReadWindow


class WindowReader:
    """Reads a range window by window.

    Args:
        read: what to read.
        spark: a session.
        pace: how long windows are at first, and how that changes.
    """

    def __init__(self, read: RangeToRead, spark: SparkSession, *, pace: WindowPace | None = None) -> None:
        stream = read.stream
        self._read = read
        self._sink = read.sink
        self._metrics = read.metrics
        self._end = read.span.end
        self._low = read.span.watermark
        self._cut = tuple(read.span.cut)
        self._weights: Mapping[str, int] = {}
        self._pace = pace or WindowPace()
        self._cores = max(1, cores_of(spark))
        self._job = WindowJob(spark, WindowSetup.of(stream, read.sink.spool.path))
        self._stopping = asyncio.Event()
        self._telemetry = WindowTelemetry(read.metrics)
        self._is_first = True
        self._before: int | None = None
        """The end of the next window, at most: just before partitions that nothing announces."""

        async def request() -> int:
            return await current_timestamp(stream.client)

        self._functions = stream.window_functions()
        self._clock = SpannerClock(request, stream.now)
        self._clock_read_at = time.monotonic()

    def stop(self) -> None:
        """Asks :meth:`run` to return: the window that is being read is abandoned, and read again by the next run."""
        self._stopping.set()

    async def run(self) -> None:
        """Reads and seals windows until the end is sealed, or until :meth:`stop`.

        Raises:
            SpannerCdcError: one clear line; what is sealed is kept.
            PySparkException, Py4JError: an error of Spark.
        """
        self._metrics.watermark, self._metrics.partitions = self._low, len(self._cut)
        while not self._stopping.is_set() and (self._end is None or self._low < self._end):
            if not await self._sink.room(self._stopping):
                return
            high = await self._due()
            if high is None:
                return
            if not await self._complete_cut(high):
                continue
            started = time.monotonic()
            read = await self._window(Window(self._sink.writer.epoch + 1, self._low, high))
            if read is None:
                continue
            await self._seal(read)
            self._metrics.window_seconds = time.monotonic() - started

    async def _due(self) -> int | None:
        """Waits until a window is due, and returns its high; None once a stop is requested."""
        while not self._stopping.is_set():
            passed = int((time.monotonic() - self._clock_read_at) * SECOND)
            if self._next(self._clock.passed + passed) is not None:
                high = await self._asked()
                if high is not None:
                    return high
            await self._pause(_POLL)
        return None

    async def _complete_cut(self, high: int) -> bool:
        """Completes the cut with the read functions of placements, if there are any; False if it cannot be now."""
        if self._functions is None:
            return True
        try:
            self._cut = await self._functions.cut(high)
        except UnreachableError as error:
            _log.warning("a read function does not answer; it is asked again", error=str(error))
            await self._pause(1.0)
            return False
        return True

    async def _asked(self) -> int | None:
        """The next window's high by Spanner's clock; None if it is not due, or Spanner does not answer now."""
        try:
            clock = await self._clock.read()
            if self._functions is not None:
                clock = min(clock, await self._functions.listed(self._cut, self._low))
        except UnreachableError as error:
            _log.warning("Spanner's clock cannot be read; it is requested again", error=str(error))
            await self._pause(1.0)
            return None
        self._clock_read_at = time.monotonic()
        return self._next(clock)

    def _next(self, clock: int) -> int | None:
        ends = [end for end in (self._end, self._before) if end is not None]
        return next_window(self._low, clock, self._pace, end=min(ends, default=None))

    async def _pause(self, seconds: float) -> None:
        waiting = asyncio.create_task(self._stopping.wait(), name="stop")
        await asyncio.wait({waiting}, timeout=seconds)
        waiting.cancel()

    async def _window(self, window: Window) -> _Read | None:
        """Reads a window, as often as its plan turns out to be wrong.

        Returns None once a stop is requested, or if the window is too long: the next one ends earlier.

        Partitions that no share has read, and the key order of new tables, are known only afterwards. Segments of
        parallel writers do not agree on the schemas of a table that changes within the window; one writer's do. This
        ends, because each time has more partitions, or another key order, or one slice.
        """
        cut, slices, declared = self._cut, self._slices(window), dict[str, tuple[str, ...]]()
        while True:
            shares = deal(cut, self._weights, most=self._cores)
            writers = self._writers(window, declared)
            self._telemetry.reading(window, shares)
            found = await result_or_stop(
                functools.partial(self._job.run, window, shares, writers, slices=slices),
                self._job.cancel,
                self._stopping,
                slow=functools.partial(self._telemetry.slow, window, len(shares)),
            )
            if found is None:
                return None
            if sorted(report.share for report in found.reports) != sorted(share.number for share in shares):
                raise StreamError(f"Spark has returned {len(found.reports)} reports of {len(shares)} shares")
            result = closed(window, found.reports)
            unordered = {
                table: key
                for changed in found.changed
                for table, key in changed.unordered.items()
                if table not in declared
            }
            if any(orphan in cut for orphan in result.orphans):
                raise StreamError(f"partitions of epoch {window.epoch} were in a share, and no share has read them")
            if result.orphans:
                _log.info("a window is read again with partitions that no share had", partitions=len(result.orphans))
                cut = (*cut, *result.orphans)
            elif unordered or (found.changed and slices > 1):
                _log.info("a window is written again by one task: a table is new or has changed", epoch=window.epoch)
                declared |= await self._sink.order_keys(unordered) if unordered else {}
                slices = 1
            elif await self._is_refilled(window, result):
                return None
            else:
                return _Read(window, result, found)

    async def _is_refilled(self, window: Window, result: Closed) -> bool:
        """True if the window has to end earlier: a placement that was emptied within it has partitions again."""
        while self._functions is not None and result.emptied and not self._stopping.is_set():
            try:
                first = await self._functions.refilled(result.emptied, window.high)
            except UnreachableError as error:
                _log.warning("a read function does not answer; it is asked again", error=str(error))
                await self._pause(1.0)
                continue
            if first is not None:
                _log.info("a placement has partitions again: the window ends before them", epoch=window.epoch)
                self._before = first - 1
            return first is not None
        return self._stopping.is_set()

    def _slices(self, window: Window) -> int:
        """One for each core where there is enough to write, more where slices would be large."""
        expected = self._pace.expected_bytes(window.high - window.low)
        if self._is_first:
            return self._cores
        return max(1, -(-expected // _SLICE_BYTES), min(self._cores, expected // _LEAST_SLICE_BYTES))

    def _writers(self, window: Window, declared: dict[str, tuple[str, ...]]) -> WriterSetup:
        config, source = self._read.config, self._read.stream.source
        registry = self._sink.writer.registry
        return WriterSetup(
            self._sink.spool.path,
            window.epoch,
            self._sink.writer.writer,
            (source.project, source.instance, source.database, source.change_stream, source.default_schema),
            config.envelope.stream_name,
            config.envelope.read_method,
            config.source.tables.include,
            config.source.tables.exclude,
            config.source.skip_transaction_tags,
            tuple(registry.schema(table).to_json().decode() for table in registry.keys),
            bool(self._read.stream.placements),
            self._read.stream.stream.partition_mode == MUTABLE,
            declared,
        )

    async def _seal(self, read: _Read) -> None:
        window, found = read.window, read.found
        count_incomplete(found.incomplete, self._metrics)  # before the seal, after which the window is not read again
        if found.incomplete:
            await self._sink.keep(found.incomplete)
        schemas = [TableSchema.from_json(text.encode()) for changed in found.changed for text in changed.schemas]
        await self._sink.deliver_written(
            WrittenEpoch(
                window.low,
                window.high,
                found.files,
                found.tables,
                schemas,
                read.closed.cut,
                final=self._end is not None and window.high >= self._end,
            )
        )
        self._low, self._cut, self._weights = window.high, read.closed.cut, read.closed.weights
        self._before = None
        self._is_first = False
        span, size = window.high - window.low, sum(report.bytes for report in found.reports)
        passed = int((time.monotonic() - self._clock_read_at) * SECOND)
        behind = max(0, self._clock.passed + passed - window.high)
        self._pace = self._pace.after(span=span, bytes=size, behind=behind, partitions=len(self._cut))
        self._telemetry.sealed(window, found, len(self._cut), behind)
