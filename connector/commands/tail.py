"""``spanner-cdc tail``: writes events as JSON lines in commit order, from the reader straight to a byte stream."""

import asyncio
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa

from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.core.epoch import Epoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.position import Position
from connector.core.records import INITIAL_TOKEN
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import SECOND
from connector.envelope.envelope import EnvelopeBuilder
from connector.envelope.events import EventWriter
from connector.envelope.opencdc import OpenCdcWriter
from connector.log import terminal
from connector.reader.change_stream import opened
from connector.reader.scheduler import Range
from connector.reader.starting import start_of
from connector.reader.stopping import Stop
from connector.spanner.key_order import KeyOrder
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting

_SEAL_INTERVAL = SECOND // 10


Lines = Callable[[pa.RecordBatch], Iterator[bytes]]
"""Makes one line of each row of the envelope's columns."""


class EventPrinter:
    """An epoch sink that writes each event as a line.

    Args:
        out: the stream to write to.
        envelope: makes the envelope's columns.
        registry: the schemas at the start.
        keeps: selects records.
        lines: makes lines of the envelope's columns.
        key_order: learns the order of new tables' keys.
        after: mods up to this one, which is in the first epoch or later, are omitted.
    """

    def __init__(
        self,
        out: BinaryIO,
        envelope: EnvelopeBuilder,
        registry: SchemaRegistry,
        keeps: RecordFilter,
        lines: Lines,
        key_order: KeyOrder,
        *,
        after: Position | None = None,
    ) -> None:
        self._out = out
        self._envelope = envelope
        self._registry = registry
        self._keeps = keeps
        self._lines = lines
        self._key_order = key_order
        self._after = after
        self._epoch = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        """There is always room: :meth:`deliver` blocks while a pipe is full."""
        return True

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        """Writes the epoch's events; returns when the stream has accepted them."""
        await self._key_order.learn(self._registry, epoch.changes)
        await asyncio.to_thread(self._write, epoch)

    def _write(self, epoch: Epoch) -> None:
        self._epoch += 1
        kept = self._keeps(epoch.changes)
        if kept.mods:
            rows = self._envelope.build(kept, self._registry, self._epoch)
            if self._after is not None:
                rows = self._after.rest_of(rows)
                if rows.num_rows:
                    self._after = None
            self._out.writelines(self._lines(rows))
        self._out.flush()


async def tail(
    config: SourceConfig,
    envelope: EnvelopeConfig,
    out: BinaryIO,
    stop: Stop,
    *,
    emulator_host: str | None,
    after: Position | None = None,
) -> None:
    """Writes the events of ``config``'s range to ``out``, until its end or until ``stop``.

    Args:
        config: the change stream.
        envelope: how events are written.
        out: the stream to write to.
        stop: drains.
        emulator_host: an emulator's address.
        after: the mod after which to start, committed at ``config``'s start.

    Raises:
        SpannerCdcError: one clear line.
        BrokenPipeError: nobody reads ``out`` any more.
    """
    metrics = ReaderMetrics()
    async with opened(config, emulator_host=emulator_host) as stream:
        end = None if config.end is None else stream.resolve(config.end)
        start = await start_of(stream, config.start, end)
        registry = SchemaRegistry(stream.stream.tables)
        writer = OpenCdcWriter if envelope.format == "opencdc" else EventWriter
        printer = EventPrinter(
            out,
            EnvelopeBuilder(stream.source, stream_name=envelope.stream_name, read_method=envelope.read_method),
            registry,
            stream.filter,
            writer(registry.by_key).lines,
            stream.key_order(),
            after=after,
        )
        span = Range((CutPartition(INITIAL_TOKEN, start),), start - 1, end)
        async with (
            stream.scheduler(span, printer, seal_interval=_SEAL_INTERVAL, metrics=metrics) as scheduler,
            reporting(metrics, None if out.isatty() else terminal(), end=end),
            stop.draining(scheduler),
        ):
            await scheduler.run()
