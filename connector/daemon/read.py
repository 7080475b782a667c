"""``spanner-cdc read``: the daemon that reads a change stream into a spool.

It holds the spool alone, continues from the newest manifest, and re-reads from Spanner what was not sealed. When the
spool is full it waits for its consumers, and warns how long Spanner's retention leaves them.
"""

import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from connector.check.starts import start_of_spool
from connector.config.loading import Config
from connector.config.sections import SourceConfig
from connector.config.sinks import sink_type
from connector.core.health.states import StreamState
from connector.core.timestamps import format_rfc3339
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.due_backfills import due_at_start, interrupted_repairs, new_header
from connector.daemon.spool_sink import SpoolSink
from connector.daemon.states.clock import compare_clocks
from connector.daemon.states.daemon import living
from connector.daemon.states.reloading import OnReload, no_others, reloading
from connector.daemon.states.retention import follow_retention
from connector.daemon.states.sink_reports import collecting
from connector.daemon.states.watching import watch
from connector.envelope.envelope import EnvelopeBuilder
from connector.errors import DataLostError, PlacementLostError
from connector.log import Log, terminal
from connector.progress import Progress
from connector.reader.change_stream import OpenStream, opened
from connector.reader.read_state import Range
from connector.reader.starting import lost_placement, lost_range
from connector.reader.stopping import StopRequest
from connector.spanner.discovery import current_timestamp
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.excluded_tables import keep_patterns
from connector.spool.backfill.records import withdraw
from connector.spool.gaps import remember
from connector.spool.late_store import with_announced_late
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.second_daemon import sole_daemon
from connector.spool.storage.store import contents
from connector.spool.writing import ResumePoint, SpoolWriter, checkpoint
from connector.telemetry.health import holder, own_retries
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting
from connector.telemetry.server import serving
from connector.threads import in_background, in_thread, tried_in_thread

_PROGRESS_INTERVAL = 2.0
"""Seconds between two log lines about a large spool that is being read."""

_log = Log(__name__)


class RangeReader(Protocol):
    """Reads a range of a change stream into a spool."""

    async def run(self) -> None:
        """Reads until the end is sealed, or until :meth:`stop`.

        Raises:
            SpannerCdcError: one clear line.
        """

    def stop(self) -> None:
        """Asks :meth:`run` to return soon; what is not sealed is read again by the next run."""


@dataclass(frozen=True, slots=True)
class RangeToRead:
    """The range that a reader reads, and the spool into which it seals."""

    stream: OpenStream
    config: Config
    span: Range
    sink: SpoolSink
    metrics: ReaderMetrics


MakesRangeReader = Callable[[RangeToRead], AbstractAsyncContextManager[RangeReader]]
"""Makes the reader of a range."""


def in_process(what: RangeToRead) -> AbstractAsyncContextManager[RangeReader]:
    """Reads in this process and its workers."""
    return what.stream.scheduler(
        what.span,
        what.sink,
        seal_interval=what.config.spool.seal_interval,
        metrics=what.metrics,
        late_records=what.sink,
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """A spool and where reading continues; ``end`` is inclusive, in nanoseconds since 1970, or None."""

    spool: Spool
    header: SpoolHeader
    at: ResumePoint
    end: int | None


async def read(
    config: Config,
    stop: StopRequest,
    *,
    metrics: ReaderMetrics | None = None,
    on_open: Callable[[OpenStream], None] = lambda _: None,
    on_backfill: Callable[[Backfill], None] = lambda _: None,
    range_reader: MakesRangeReader = in_process,
    on_reload: OnReload = no_others,
    until_now: bool = False,
) -> None:
    """Reads the configured change stream into its spool, until its end or until ``stop``.

    Args:
        config: the configuration.
        stop: drains.
        metrics: the counters that are served, if others count there too.
        on_open: called with the change stream before anything is read.
        on_backfill: called, before that, with each backfill that is not done; without
            ``source.backfill`` with each repair that is not.
        range_reader: makes the reader of a range.
        on_reload: applies an edited configuration to what runs beside.
        until_now: whether Spanner's clock of now is the end, unless the configured end is before it.

    Raises:
        SpannerCdcError: one clear line; what was sealed is kept, and a restart continues from there.
    """
    spool = Spool.at(config.spool.path)
    metrics = metrics or ReaderMetrics()
    with sole_daemon(spool, now=time.time_ns()):
        # before a state is recorded: the spool, if there is one, may be another stream's
        source = config.source
        await tried_in_thread(FileNotFoundError, spool.check_source, source.name, source.rules_fingerprint)
        async with (
            living(spool, stop, max_bytes=config.spool.max_bytes) as life,
            _remembered(spool, metrics),
            collecting(spool, metrics),
            serving(config, metrics),
            in_background(watch(life, spool, metrics), name="alarms"),
            reloading(config, spool, life, metrics, on_reload) as reloads,
        ):
            metrics.state = lambda: life.record
            metrics.errors = lambda: life.errors
            life.failing = functools.partial(own_retries, metrics)
            life.complete = lambda: metrics.spooled
            life.holder = functools.partial(holder, metrics)
            life.has_read = lambda: 0 < metrics.start < metrics.watermark
            metrics.max_bytes = config.spool.max_bytes
            metrics.retention = life.record.retention.period
            if not await life.resumed(stop):
                return
            config = reloads.config
            async with opened(config.source, started=spool.latest() > 0) as stream:
                on_open(stream)
                metrics.endpoint, metrics.proxy = stream.client.host, stream.client.proxy
                end = stream.end(until_now=until_now)
                start = await _start(spool, stream, config.source, end)
                await _with_backfill(start, stream, config, on_backfill)
                stream.warn_of_tables()
                await life.retains(stream.retention)
                metrics.retention = stream.retention.period
                following = follow_retention(life, metrics, stream.retention_now)
                async with in_background(following, name="retention"):  # in a pause, too
                    while not _is_at_its_end(start):
                        config, stream = await reloads.taken(stream)
                        clock = functools.partial(current_timestamp, stream.client)
                        async with (
                            _lost_range_explained(start, stream),
                            _reader_and_sink(start, stream, config, metrics, range_reader) as (reader, sink),
                            sink.pruned(stop),
                            reporting(metrics, terminal(), end=start.end),
                            stop.draining(reader),
                            life.pausing(reader, stop),
                            reloads.draining(reader),
                            in_background(compare_clocks(life, clock, lambda: metrics.watermark), name="clocks"),
                        ):
                            metrics.start = start.at.watermark
                            metrics.watched = tuple(table.table for table in stream.kept_tables)
                            metrics.keeps = stream.filter.keeps
                            await life.enter(StreamState.RUNNING)
                            await reader.run()
                        if not await life.continues(stop):
                            return
                        start = await _start(spool, stream, config.source, end)


async def _with_backfill(
    start: _Start, stream: OpenStream, config: Config, on_backfill: Callable[[Backfill], None]
) -> None:
    """Withdraws a backfill or a repair that was only announced, and records the one that is due.

    A repair that was interrupted continues, also without ``source.backfill``: a sink may wait for it.
    """
    await in_thread(withdraw, start.spool)
    if config.source.backfill is None:
        for document in await in_thread(interrupted_repairs, start.spool):
            on_backfill(document)
        return
    waits = sink_type(config.sink.type).waits_for_backfill
    recorder = await BackfillRecorder.of(start.spool, start.header, stream, reads_parents=waits)
    for document in await in_thread(due_at_start, recorder):
        on_backfill(document)


def _is_at_its_end(start: _Start) -> bool:
    """True if the spool has everything up to the configured end."""
    if start.end is None or start.end > start.at.watermark or start.at.epoch == 0:
        return False
    _log.info("the end has been reached already", end=format_rfc3339(start.end), epoch=start.at.epoch)
    return True


@asynccontextmanager
async def _remembered(spool: Spool, metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Takes the position of the newest epoch into the metrics, so that a restart shows the true lag from the start."""
    await in_thread(_remember, spool, metrics)
    yield


def _remember(spool: Spool, metrics: ReaderMetrics) -> None:
    metrics.newest_epoch = spool.latest()
    metrics.first_own_epoch = metrics.newest_epoch + 1
    if metrics.newest_epoch:
        metrics.watermark = metrics.sealed_watermark = checkpoint(spool, spool.header()).watermark


async def _start(spool: Spool, stream: OpenStream, config: SourceConfig, end: int | None) -> _Start:
    header = await _header(spool, stream, config, end)
    at = await in_thread(_checkpoint, spool, header)
    return _Start(spool, header, at, end)


async def _header(spool: Spool, stream: OpenStream, config: SourceConfig, end: int | None) -> SpoolHeader:
    """The spool's header, written with the start resolved by Spanner's clock if the spool has no epochs."""
    before = contents(spool.storage, "spool.json")
    start = await start_of_spool(spool, stream, config, end)
    if start is None:
        return spool.header()
    return new_header(spool, stream, start, before)


def _checkpoint(spool: Spool, header: SpoolHeader) -> ResumePoint:
    """The checkpoint after the newest epoch; warns where that epoch is a gap."""
    at = checkpoint(spool, header)
    known = remember(spool)
    if known and known[-1].epoch == at.epoch:
        _log.warning(
            "the spool continues after a gap: what was committed in it is not delivered",
            epoch=at.epoch,
            after=format_rfc3339(known[-1].watermark_low),
            up_to=format_rfc3339(known[-1].watermark_high),
            reason=known[-1].reason,
        )
    return at


@asynccontextmanager
async def _lost_range_explained(start: _Start, stream: OpenStream) -> AsyncIterator[None]:
    """Adds the lost range to an error if Spanner does not retain the records to be read next.

    Raises:
        DataLostError: with that range, and how to continue after it.
    """
    try:
        yield
    except DataLostError as error:
        reached = await in_thread(checkpoint, start.spool, start.header)
        if reached.epoch == 0:
            raise  # another source.start is what helps a spool without epochs
        if isinstance(error, PlacementLostError):
            raise lost_placement(error, spool=start.spool.path) from error
        raise await lost_range(stream, error, reached.watermark, spool=start.spool.path) from error


@asynccontextmanager
async def _reader_and_sink(
    start: _Start, stream: OpenStream, config: Config, metrics: ReaderMetrics, range_reader: MakesRangeReader
) -> AsyncIterator[tuple[RangeReader, SpoolSink]]:
    """Opens a reader that starts at the checkpoint, and the sink that it seals into."""
    spool, at = start.spool, start.at
    writer = await in_thread(_writer, start, stream, config)
    sink = SpoolSink(
        writer,
        spool,
        max_bytes=config.spool.max_bytes,
        keep=config.spool.keep,
        metrics=metrics,
        key_order=stream.key_order(),
        continues=config.source.late_records == "dead-letter",
    )
    sink.watermark = at.watermark
    cut = await in_thread(with_announced_late, spool, at.watermark, at.cut, continues=sink.continues)
    cut = await stream.completed(cut, at.watermark, end=start.end)
    async with range_reader(RangeToRead(stream, config, Range(cut, at.watermark, start.end), sink, metrics)) as reader:
        _log.info(
            "reading",
            change_stream=stream.stream.name,
            spool=spool.path,
            epoch=at.epoch,
            watermark=format_rfc3339(at.watermark),
            partitions=len(cut),
            end=format_rfc3339(start.end) if start.end is not None else "none",
        )
        yield reader, sink
    _log.info("done", epoch=writer.epoch, watermark=format_rfc3339(sink.watermark))


def _writer(start: _Start, stream: OpenStream, config: Config) -> SpoolWriter:
    """The spool's writer, which reads what the spool holds, once the record of ``source.tables`` is kept."""
    options, tables = config.envelope, config.source.tables
    keep_patterns(start.spool, tables.include, tables.exclude, start.at.watermark)
    envelope = EnvelopeBuilder(stream.source, stream_name=options.stream_name, read_method=options.read_method)
    return SpoolWriter(start.spool, start.header, start.at, envelope, stream.filter, _progress(start.at.epoch))


def _progress(last: int) -> Callable[[int], None]:
    """Logs how much of a large spool has been read, every other second; of a small one nothing."""
    progress = Progress(_log, "reading what the spool keeps", None, interval=_PROGRESS_INTERVAL)
    return lambda epoch: progress.show(epoch, epoch=epoch, newest_epoch=last)
