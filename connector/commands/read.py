"""``spanner-cdc read``: the daemon that reads a change stream into a spool.

It holds the spool alone, goes on from the newest manifest, and re-reads from Spanner what was not sealed. When the
spool is full it waits for its consumers, and says how long Spanner's retention leaves them.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa

from connector.config import Config, SourceConfig, parse_duration
from connector.config.sinks import sink_names
from connector.core.epoch import Epoch
from connector.core.late_records import LateRecord
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND, format_rfc3339
from connector.envelope.envelope import EnvelopeBuilder
from connector.errors import DataLostError, SpoolError
from connector.log import Log
from connector.reader.change_stream import OpenStream, opened
from connector.reader.scheduler import Range, Scheduler
from connector.reader.stopping import Stop
from connector.spanner.key_order import KeyOrder
from connector.spool import consumers
from connector.spool.gaps import remember
from connector.spool.late_store import LateStore, with_announced_late
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.sink_report import report_of
from connector.spool.writing import Checkpoint, SpoolWriter, checkpoint, initialize, sole_writer
from connector.storage.local import contents
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting
from connector.telemetry.status import serving

PRUNE_INTERVAL = 1.0
_WARN_INTERVAL = 60.0
_TELLING = 2.0
"""Seconds between two lines about a spool that takes its time to be read."""

_log = Log(__name__)

T = TypeVar("T")


class SpoolSink:
    """An epoch sink that seals into a spool, prunes what was consumed, and waits while the spool is full.

    Args:
        writer: the spool's.
        spool: the spool.
        max_bytes: beyond this the reader waits.
        retention: nanoseconds that Spanner keeps the stream's records.
        metrics: what is counted.
        key_order: learns the order of new tables' keys; None where their columns' positions tell it.
        goes_on: whether a late record stops the reader no more once it is kept.
    """

    def __init__(
        self,
        writer: SpoolWriter,
        spool: Spool,
        *,
        max_bytes: int,
        retention: int,
        metrics: ReaderMetrics,
        key_order: KeyOrder | None = None,
        goes_on: bool = False,
    ) -> None:
        self._writer = writer
        self._spool = spool
        self._max_bytes = max_bytes
        self._retention = retention
        self._metrics = metrics
        self._key_order = key_order
        self.goes_on = goes_on
        self._late_store = LateStore(spool)
        self._lock = asyncio.Lock()
        self._warned = self._warned_of_strays = -_WARN_INTERVAL
        self.watermark = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        """Waits until consumers have made room in the spool; False if ``stopping`` was set before."""
        while self._writer.bytes >= self._max_bytes:
            await self._prune(grace=0)
            if self._writer.bytes < self._max_bytes or self._all_is_consumed():
                break
            if stopping.is_set():
                return False
            self._warn_of_full_spool()
            with suppress(TimeoutError):
                async with asyncio.timeout(PRUNE_INTERVAL / 2):
                    await stopping.wait()
        self._metrics.spool_bytes = self._writer.bytes
        return True

    def _all_is_consumed(self) -> bool:
        """Whether only the newest epoch is left, which is never pruned, however large it is."""
        known = consumers.consumers(self._spool)
        return bool(known) and min(consumer.epoch for consumer in known) >= self._writer.epoch

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        """Seals the epoch; when it returns the epoch exists and survives a crash."""
        if self._key_order is not None:
            await self._key_order.learn(self._writer.registry, epoch.changes)
        async with self._lock:
            seal = functools.partial(self._seal, epoch, cut, final=final)
            manifest = await _to_the_end(seal)
        self.watermark = epoch.high
        self._metrics.spool_bytes = self._writer.bytes
        _log.debug(
            "epoch sealed",
            epoch=manifest.epoch,
            rows=manifest.rows,
            bytes=manifest.size,
            watermark=format_rfc3339(manifest.watermark_high),
        )

    def _seal(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> Manifest:
        try:
            return self._writer.seal(epoch, cut, now=time.time_ns(), final=final)
        finally:
            # Arrow's pool keeps what was freed for each thread it was used in: some 40 MB, times the threads.
            pa.default_memory_pool().release_unused()

    async def keep(self, late: Sequence[LateRecord]) -> None:
        """Keeps late records as dead letters; when it returns they survive a crash."""
        await _to_the_end(functools.partial(self._late_store.keep, late, now=time.time_ns()))

    async def keep_pruned(self) -> None:
        """Prunes until it is cancelled."""
        while True:
            await asyncio.sleep(PRUNE_INTERVAL)
            await self._prune()
            await self._ask_the_sink()

    async def _prune(self, grace: int | None = None) -> None:
        options = {} if grace is None else {"grace": grace}
        async with self._lock:
            await _to_the_end(functools.partial(self._writer.prune, now=time.time_ns(), **options))
        self._metrics.spool_bytes = self._writer.bytes
        self._warn_of_strays()

    async def _ask_the_sink(self) -> None:
        """Takes what the sinks tell of themselves into the metrics; what cannot be told is not worth an end."""
        with suppress(SpoolError):
            reports = [await asyncio.to_thread(report_of, self._spool, sink) for sink in sink_names()]
            self._metrics.dead_letters = sum(report.refused for report in reports)
            self._metrics.stopped_tables = {name: why for report in reports for name, why in report.stopped.items()}

    def _warn_of_strays(self) -> None:
        strays, now = self._writer.strays, time.monotonic()
        if strays and now - self._warned_of_strays >= _WARN_INTERVAL:
            self._warned_of_strays = now
            _log.warning(
                "nothing is pruned: consumers are done with epochs of another copy of this spool, which was put back"
                " from an older one; restore the newer copy, or drop them with `spanner-cdc spool PATH --forget NAME`",
                consumers=", ".join(strays),
                newest_epoch=self._writer.epoch,
            )

    def _warn_of_full_spool(self) -> None:
        now = time.monotonic()
        if now - self._warned < _WARN_INTERVAL:
            return
        self._warned = now
        known = consumers.consumers(self._spool)
        slowest = min(known, key=lambda consumer: consumer.epoch, default=None)
        left = (self.watermark + self._retention - time.time_ns()) // SECOND
        _log.warning(
            "the spool is full and the reader waits for its consumers",
            bytes=self._writer.bytes,
            max_bytes=self._max_bytes,
            slowest_consumer=slowest.consumer if slowest else "none is registered",
            its_epoch=slowest.epoch if slowest else 0,
            newest_epoch=self._writer.epoch,
            seconds_until_spanner_drops_data=left,
        )


async def _to_the_end(work: Callable[[], T]) -> T:
    """Runs ``work`` in a thread, and waits for it even when cancelled: a thread cannot be, and holds the spool.

    Raises:
        Exception: that of the work, also where this was cancelled meanwhile.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if (error := task.exception()) is not None:
            raise error from None
        raise


async def read(
    config: Config,
    stop: Stop,
    *,
    emulator_host: str | None,
    metrics: ReaderMetrics | None = None,
    on_open: Callable[[OpenStream], None] = lambda _: None,
) -> None:
    """Reads the configured change stream into its spool, until its end or until ``stop``.

    Args:
        config: the configuration.
        stop: drains.
        emulator_host: an emulator's address.
        metrics: what is counted and served, if others count there too.
        on_open: called with the change stream before anything is read.

    Raises:
        SpannerCdcError: one clear line; what was sealed is kept, and a restart goes on from there.
    """
    spool = Spool.at(config.spool.path)
    metrics = metrics or ReaderMetrics()
    with sole_writer(spool):
        async with (
            serving(config.status, metrics),
            opened(config.source, emulator_host=emulator_host, begun=spool.latest() > 0) as stream,
        ):
            on_open(stream)
            header = await _header(spool, stream, config.source)
            at = await _to_the_end(functools.partial(_begun, spool, header))
            stream.warn_of_tables()
            end = None if config.source.end is None else stream.resolve(config.source.end)
            if end is not None and end <= at.watermark and at.epoch > 0:
                _log.info("the end has been reached already", end=format_rfc3339(end), epoch=at.epoch)
                return
            try:
                await _read_into(spool, header, at, stream, config, end, metrics, stop)
            except DataLostError as error:
                reached = await _to_the_end(functools.partial(checkpoint, spool, header))
                if reached.epoch == 0:
                    raise  # another source.start is what helps a spool that has not begun
                raise await stream.lost_range(error, reached.watermark, spool=config.spool.path) from error


def _begun(spool: Spool, header: SpoolHeader) -> Checkpoint:
    at = checkpoint(spool, header)
    _tell_of_gap(spool, at)
    return at


def _tell_of_gap(spool: Spool, at: Checkpoint) -> None:
    known = remember(spool)
    if known and known[-1].epoch == at.epoch:
        _log.warning(
            "the spool goes on after a gap: what was committed in it is not delivered",
            epoch=at.epoch,
            after=format_rfc3339(known[-1].watermark_low),
            up_to=format_rfc3339(known[-1].watermark_high),
            reason=known[-1].reason,
        )


async def _read_into(
    spool: Spool,
    header: SpoolHeader,
    at: Checkpoint,
    stream: OpenStream,
    config: Config,
    end: int | None,
    metrics: ReaderMetrics,
    stop: Stop,
) -> None:
    envelope = EnvelopeBuilder(
        stream.source, stream_name=config.envelope.stream_name, read_method=config.envelope.read_method
    )
    told = _Progress(at.epoch)
    writer = await _to_the_end(functools.partial(SpoolWriter, spool, header, at, envelope, stream.filter, told.reached))
    sink = SpoolSink(
        writer,
        spool,
        max_bytes=config.spool.max_bytes,
        retention=parse_duration(stream.stream.retention_period),
        metrics=metrics,
        key_order=stream.key_order(),
        goes_on=config.source.late_records == "dead-letter",
    )
    sink.watermark = at.watermark
    recalled = functools.partial(with_announced_late, spool, at.watermark, at.cut, goes_on=sink.goes_on)
    span = Range(await _to_the_end(recalled), at.watermark, end)
    async with stream.scheduler(
        span,
        sink,
        seal_interval=config.spool.seal_interval,
        metrics=metrics,
        late_records=sink,
    ) as scheduler:
        _log.info(
            "reading",
            change_stream=stream.stream.name,
            spool=spool.path,
            epoch=at.epoch,
            watermark=format_rfc3339(at.watermark),
            partitions=len(span.cut),
            end=format_rfc3339(end) if end is not None else "none",
        )
        await _run(scheduler, sink, metrics, stop)
    _log.info("done", epoch=writer.epoch, watermark=format_rfc3339(sink.watermark))


class _Progress:
    """Tells how far a large spool is read, every other second; of a small one nothing."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._told = time.monotonic()

    def reached(self, epoch: int) -> None:
        """All epochs up to this one are read."""
        if time.monotonic() - self._told >= _TELLING:
            self._told = time.monotonic()
            _log.info("reading what the spool keeps", epoch=epoch, newest_epoch=self._last)


async def _run(scheduler: Scheduler, sink: SpoolSink, metrics: ReaderMetrics, stop: Stop) -> None:
    pruning = asyncio.create_task(sink.keep_pruned(), name="prune")
    running = asyncio.create_task(stop.run(scheduler), name="reader")
    try:
        async with reporting(metrics):
            await asyncio.wait({running, pruning}, return_when=asyncio.FIRST_COMPLETED)
            if pruning.done():
                stop.ask()
            await running
            if pruning.done():
                await pruning
    finally:
        pruning.cancel()
        running.cancel()
        await asyncio.wait({pruning, running})  # the spool's lock is held until no thread of ours writes
        if not pruning.cancelled() and (error := pruning.exception()) is not None:
            _log.warning("the spool was not pruned any more", error=str(error))


async def _header(spool: Spool, stream: OpenStream, config: SourceConfig) -> SpoolHeader:
    """The spool's header, written with the start resolved by Spanner's clock if the spool has no epochs."""
    before = contents(spool.storage, "spool.json")
    try:
        header = spool.check_source(config.name)
        if spool.latest() > 0 or header.requested_start == config.start:
            return header
    except FileNotFoundError:
        pass
    start = stream.resolve(config.start)
    await stream.check_start(start, None if config.end is None else stream.resolve(config.end))
    return initialize(spool, config.name, start, config.start, stream.stream.tables, before=before)
