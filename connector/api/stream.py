"""Iterates over a change stream without Spark and without a spool: the reader's epochs, handed to one consumer.

The reader runs in a task that the context manager owns. It hands over one epoch at a time: while the consumer works on
one, the next is ready, and the reader holds as much as its memory budget allows. Then it stops receiving, and gRPC's
flow control makes Spanner wait.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa

from connector.api.checkpoint import Checkpoint
from connector.api.epochs import Epoch, EventReader
from connector.api.stop import Stop, reader_stop
from connector.config import Config, SourceConfig
from connector.core import epoch as received
from connector.core.partitions import CutPartition
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import EnvelopeBuilder
from connector.errors import ConfigurationError, DataLostError, StreamError
from connector.reader import stopping
from connector.reader.change_stream import OpenStream, opened
from connector.reader.read_state import Range
from connector.reader.scheduler import Scheduler
from connector.reader.starting import start_of
from connector.spool.manifest import identity
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting
from connector.threads import ended, in_thread


class _Handover:
    """Takes epochs from the reader, as its sink, and gives them to the consumer, as an iterator.

    Args:
        stream: the change stream that is read.
        config: the configuration.
        first: the number of the first epoch.
    """

    def __init__(self, stream: OpenStream, config: Config, first: int) -> None:
        self._stream = stream
        self._name = str(config.source.name)
        self._envelope = EnvelopeBuilder(
            stream.source, stream_name=config.envelope.stream_name, read_method=config.envelope.read_method
        )
        self._registry = SchemaRegistry(stream.stream.tables)
        self._key_order = stream.key_order()
        self._events = EventReader(self._registry.by_key)
        self._writer = secrets.token_hex(8)
        self._number = first
        self._ready: Epoch | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_news = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._is_left = False

    async def room(self, stopping: asyncio.Event) -> bool:
        """Waits until the consumer has taken the epoch before; a stop does not end this, because it will be taken."""
        await self._has_room.wait()
        return True

    async def deliver(self, epoch: received.SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Makes an epoch ready for the consumer."""
        await self._key_order.learn(self._registry, epoch.changes)
        rows = await in_thread(self._rows, epoch)
        batches = [rows] if rows is not None else []
        self._ready = Epoch(
            stream=self._name,
            number=self._number,
            identity=identity(epoch.high, self._writer),
            low=epoch.low,
            high=epoch.high,
            rows=sum(batch.num_rows for batch in batches),
            final=final,
            gap=None,
            _open=lambda: iter(batches),
            _reader=self._events,
        )
        self._number += 1
        self._has_room.clear()
        self._has_news.set()

    def _rows(self, epoch: received.SealedEpoch) -> pa.RecordBatch | None:
        kept = self._stream.filter(epoch.changes)
        return self._envelope.build(kept, self._registry, self._number) if kept.mods else None

    def reads(self, reader: asyncio.Task[None]) -> None:
        """The task that delivers; its end is the iterator's end, and its error the iterator's."""
        self._reader = reader
        reader.add_done_callback(lambda _: self._has_news.set())

    def leave(self) -> None:
        """The block is left: from now on the reader's cancellation is the iterator's end."""
        self._is_left = True

    def __aiter__(self) -> AsyncIterator[Epoch]:
        return self

    async def __anext__(self) -> Epoch:
        while self._ready is None:
            if self._reader is None or self._is_left:
                raise StopAsyncIteration
            if self._reader.cancelled():
                raise StreamError(f"change stream {self._name}: the reader's task was cancelled")
            if self._reader.done():
                self._reader.result()  # raises the reader's error
                raise StopAsyncIteration
            await self._has_news.wait()
            self._has_news.clear()
        epoch, self._ready = self._ready, None
        self._has_room.set()
        return epoch


@asynccontextmanager
async def read_epochs(
    config: Config, *, after: str | None = None, stop: Stop | None = None
) -> AsyncIterator[AsyncIterator[Epoch]]:
    """Iterates over a change stream's epochs, in commit order, without a spool.

    Used as ``async with read_epochs(config) as epochs: async for epoch in epochs: ...``. Of the configuration it uses
    ``source``, ``envelope``, ``spool.seal_interval`` (the least time between two epochs, unless one is full) and
    ``drain_timeout``. Without ``source.workers`` everything is read in this process.

    The block owns the reader's task, connections and worker processes; they have ended when it is left. A slow
    consumer holds Spanner back: the reader holds the next epoch, and about 64 MB of what follows it.

    Args:
        config: the configuration.
        after: the :attr:`Epoch.checkpoint` to resume after. Without it reading starts at ``source.start``.
        stop: gives what is complete, for ``config.drain_timeout`` at most, and ends the iteration.

    Yields:
        An iterator of epochs, without gaps: each starts where the one before ended. It ends after ``source.end``, if
        that is configured.

    Raises:
        ConfigurationError: the configuration or the checkpoint does not fit the database, or an option needs a spool.
        DataLostError: Spanner no longer retains what has to be read next; nothing was skipped.
        SpannerCdcError: reading cannot continue. The iterator raises it, after the epochs that were complete.
    """
    _check_needs_no_spool(config.source)
    source = config.source.model_copy(update={"workers": config.source.workers or 1})
    resumed = None if after is None else Checkpoint.of(after, str(source.name))
    async with opened(source, started=resumed is not None) as stream:
        stream.warn_of_tables()
        handover = _Handover(stream, config, resumed.epoch + 1 if resumed else 1)
        span = await _range(stream, source, resumed)
        if span is None:
            yield handover
            return
        async with _reading(stream, config, span, handover, stop):
            yield handover


def _check_needs_no_spool(source: SourceConfig) -> None:
    """Checks that no option needs a spool.

    Raises:
        ConfigurationError: some do; each has its remedy.
    """
    late = f"source.late_records: {source.late_records} needs a spool; without one a late record stops reading"
    errors = [
        late if source.late_records != "stop" else "",
        "source.backfill needs a spool: omit it here, or use `spanner-cdc run`" if source.backfill is not None else "",
        "source.complete_rows is for the built-in sinks, which read a spool: omit it here"
        if source.complete_rows
        else "",
        "source.reader: executors needs a spool: set it to process here" if source.reader == "executors" else "",
    ]
    errors = [error for error in errors if error]
    if errors:
        raise ConfigurationError(errors)


async def _range(stream: OpenStream, source: SourceConfig, resumed: Checkpoint | None) -> Range | None:
    """The range to read, by an initial query at its start; None if the checkpoint has reached the end."""
    end = stream.end()
    if resumed is None:
        start = await start_of(stream, source.start, end)
    else:
        if end is not None and end <= resumed.watermark:
            return None
        start = resumed.watermark + 1
        await _check_resumable(stream, resumed)
    return await stream.range_from(start, end)


async def _check_resumable(stream: OpenStream, resumed: Checkpoint) -> None:
    try:
        await stream.probe(resumed.watermark + 1)
    except DataLostError as error:
        raise DataLostError(
            f"cannot resume after {resumed}: what was committed after {format_rfc3339(resumed.watermark)} is no longer"
            f" retained ({error.args[0]})",
            hint="Nothing was skipped. To continue without it, start without a checkpoint, at a later source.start.",
            earliest=error.earliest,
        ) from error.__cause__


@asynccontextmanager
async def _reading(
    stream: OpenStream, config: Config, span: Range, handover: _Handover, stop: Stop | None
) -> AsyncIterator[None]:
    """Runs the reader in a task, which has ended when the context is left."""
    metrics = ReaderMetrics()
    async with (
        stream.scheduler(span, handover, seal_interval=config.spool.seal_interval, metrics=metrics) as scheduler,
        reporting(metrics),
        reader_stop(stop, config.drain_timeout) as follower,
    ):
        reader = asyncio.create_task(_run(scheduler, follower), name="reader")
        handover.reads(reader)
        try:
            yield
        finally:
            handover.leave()
            reader.cancel()
            await ended(reader)


async def _run(scheduler: Scheduler, stop: stopping.StopRequest) -> None:
    async with stop.draining(scheduler):
        await scheduler.run()
