"""``spanner-cdc tail``: writes events as JSON lines in commit order, from the reader straight to a byte stream."""

import asyncio
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa

from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.position import Position
from connector.envelope.events import EventWriter
from connector.envelope.opencdc import OpenCdcWriter
from connector.log import terminal
from connector.reader.change_stream import OpenStream
from connector.reader.sealer import SealedEpochSink
from connector.reader.stopping import StopRequest
from connector.reader.unspooled import EventRows, read_unspooled
from connector.streams import writing_to_stdout

Lines = Callable[[pa.RecordBatch], Iterator[bytes]]
"""Makes one line of each row of the envelope's columns."""


class EventPrinter(SealedEpochSink):
    """An epoch sink that writes each event as a line.

    Args:
        out: the stream to write to.
        rows: makes the envelope's columns.
        lines: makes lines of them.
    """

    def __init__(self, out: BinaryIO, rows: EventRows, lines: Lines) -> None:
        self._out = out
        self._rows = rows
        self._lines = lines

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Writes the epoch's events; returns when the stream has accepted them."""
        await self._rows.learn(epoch)
        await asyncio.to_thread(self._write, epoch)

    def _write(self, epoch: SealedEpoch) -> None:
        rows = self._rows.of(epoch)
        lines = self._lines(rows) if rows is not None else ()
        with writing_to_stdout():
            self._out.writelines(lines)
            self._out.flush()


async def tail(
    config: SourceConfig,
    envelope: EnvelopeConfig,
    out: BinaryIO,
    stop: StopRequest,
    *,
    after: Position | None = None,
) -> None:
    """Writes the events of ``config``'s range to ``out``, until its end or until ``stop``.

    Args:
        config: the change stream.
        envelope: how events are written.
        out: the stream to write to.
        stop: drains.
        after: the mod after which to start, committed at ``config``'s start.

    Raises:
        SpannerCdcError: one clear line.
        BrokenPipeError: the reader of ``out`` is gone.
    """

    def printer(stream: OpenStream) -> EventPrinter:
        rows = EventRows(stream, envelope, after=after)
        writer = OpenCdcWriter if envelope.format == "opencdc" else EventWriter
        return EventPrinter(out, rows, writer(rows.registry.by_key).lines)

    screen = None if out.isatty() else terminal()
    resumed = after is not None
    await read_unspooled(config, printer, stop, resumed=resumed, screen=screen)
