"""Reads a change stream without a spool, from a start or right after a mod: what ``tail`` and ``serve`` share."""

from collections.abc import Callable
from typing import TextIO

import pyarrow as pa

from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.core.epoch import SealedEpoch
from connector.core.position import Position
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import SECOND
from connector.envelope.envelope import EnvelopeBuilder
from connector.reader.change_stream import OpenStream, opened
from connector.reader.sealer import SealedEpochSink
from connector.reader.starting import start_of
from connector.reader.stopping import StopRequest
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.progress import reporting

_SEAL_INTERVAL = SECOND // 10


def seal_interval(heartbeat: int) -> int:
    """The least time between two deliveries to a sink without a spool: a short heartbeat is not waited for twice.

    Args:
        heartbeat: the change stream's; both are nanoseconds.
    """
    return min(_SEAL_INTERVAL, heartbeat // 4)


class EventRows:
    """Makes the envelope's columns of epochs, one after another.

    Args:
        stream: the change stream.
        envelope: how events are written.
        after: mods up to this one, which is in the first epoch or later, are omitted.

    Attributes:
        registry: the schemas so far.
    """

    def __init__(self, stream: OpenStream, envelope: EnvelopeConfig, *, after: Position | None = None) -> None:
        self.registry = SchemaRegistry(stream.stream.tables)
        self._envelope = EnvelopeBuilder(
            stream.source, stream_name=envelope.stream_name, read_method=envelope.read_method
        )
        self._keeps = stream.filter
        self._key_order = stream.key_order()
        self._after = after
        self._epoch = 0

    async def learn(self, epoch: SealedEpoch) -> None:
        """Learns the order of new tables' keys, which :meth:`of` needs.

        Raises:
            SpannerCdcError: Spanner does not say it.
        """
        await self._key_order.learn(self.registry, epoch.changes)

    def of(self, epoch: SealedEpoch) -> pa.RecordBatch | None:
        """The rows of an epoch that are kept, in commit order; None if there are none.

        Raises:
            EventError: a value does not match its type.
        """
        self._epoch += 1
        kept = self._keeps(epoch.changes)
        if not kept.mods:
            return None
        rows = self._envelope.build(kept, self.registry, self._epoch)
        if self._after is not None:
            rows = self._after.rest_of(rows)
            if rows.num_rows:
                self._after = None
        return rows if rows.num_rows else None


async def read_unspooled(
    config: SourceConfig,
    sink_of: Callable[[OpenStream], SealedEpochSink],
    stop: StopRequest,
    *,
    resumed: bool,
    screen: TextIO | None = None,
) -> None:
    """Reads ``config``'s range into a sink, until its end or until ``stop``.

    Args:
        config: the change stream.
        sink_of: makes the sink.
        stop: drains.
        resumed: whether it was read before, so that a table pattern which matches nothing is that of a dropped table.
        screen: a terminal on which progress is drawn, instead of lines of the log.

    Raises:
        SpannerCdcError: one clear line.
    """
    metrics = ReaderMetrics()
    async with opened(config, started=resumed) as stream:
        stream.warn_of_tables()
        end = stream.end()
        start = await start_of(stream, config.start, end)
        span = await stream.range_from(start, end)
        interval = seal_interval(config.heartbeat)
        async with (
            stream.scheduler(span, sink_of(stream), seal_interval=interval, metrics=metrics) as scheduler,
            reporting(metrics, screen, end=end),
            stop.draining(scheduler),
        ):
            await scheduler.run()
