"""``spanner-cdc tail``: events as JSON lines in commit order, straight from the reader to a stream of bytes."""

import asyncio
from typing import BinaryIO

from connector.config import EnvelopeConfig, SourceConfig
from connector.envelope import EnvelopeBuilder
from connector.epoch import Epoch
from connector.events import EventWriter
from connector.filters import RecordFilter
from connector.metrics import ReaderMetrics
from connector.partitions import CutPartition
from connector.progress import reporting
from connector.reader import opened
from connector.records import INITIAL_TOKEN
from connector.scheduler import Range
from connector.schemas import SchemaRegistry, TableSchema
from connector.stopping import Stop
from connector.timestamps import SECOND

_SEAL_INTERVAL = SECOND // 10


class EventPrinter:
    """An epoch sink that writes each event as a line."""

    def __init__(self, out: BinaryIO, envelope: EnvelopeBuilder, registry: SchemaRegistry, keeps: RecordFilter) -> None:
        self._out = out
        self._envelope = envelope
        self._registry = registry
        self._keeps = keeps
        self._events = EventWriter(self._schema)
        self._epoch = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        """There is always room: a pipe that is full holds :meth:`deliver` back."""
        return True

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        """Writes the epoch's events; returns when the stream has taken them."""
        await asyncio.to_thread(self._write, epoch)

    def _write(self, epoch: Epoch) -> None:
        self._epoch += 1
        kept = self._keeps(epoch.changes)
        if kept.mods:
            self._out.writelines(self._events.lines(self._envelope.build(kept, self._registry, self._epoch)))
        self._out.flush()

    def _schema(self, key: str) -> TableSchema:
        return self._registry.by_key(key)


async def tail(
    config: SourceConfig,
    envelope: EnvelopeConfig,
    out: BinaryIO,
    stop: Stop,
    *,
    emulator_host: str | None,
) -> None:
    """Writes the events of ``config``'s range to ``out``, until its end or until ``stop``.

    Raises:
        SpannerCdcError: one clear line.
        BrokenPipeError: whoever read ``out`` is gone.
    """
    metrics = ReaderMetrics()
    async with opened(config, emulator_host=emulator_host) as stream:
        start = stream.resolve(config.start)
        end = None if config.end is None else stream.resolve(config.end)
        await stream.check_start(start, end)
        printer = EventPrinter(
            out,
            EnvelopeBuilder(stream.source, stream_name=envelope.stream_name, read_method=envelope.read_method),
            SchemaRegistry(stream.stream.tables),
            stream.filter,
        )
        span = Range((CutPartition(INITIAL_TOKEN, start),), start - 1, end)
        async with (
            stream.scheduler(span, printer, seal_interval=_SEAL_INTERVAL, metrics=metrics) as scheduler,
            reporting(metrics),
        ):
            await stop.run(scheduler)
