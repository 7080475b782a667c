"""Runs the reader as the daemon does, against a replay server: the one place that builds it for benchmarks.

Only the discovery of the change stream is omitted, because the replay server has no schema. The sink may be one that
drops its batches.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from benchmarks.measure.subject import prepared
from benchmarks.replay.messages import START, Replay, Span
from connector.config import SourceConfig
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.epoch import SealedEpoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.spool_sink import SpoolSink
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.process import collect_rarely
from connector.reader.change_stream import OpenStream
from connector.reader.read_state import Range
from connector.reader.sealer import SealedEpochSink
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import ChangeStream
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import ResumePoint, SpoolWriter, checkpoint, initialize, sole_writer
from connector.telemetry.metrics import ReaderMetrics

SOURCE = Source("p", "instance", "d", "Everything", "d")
NAME = SourceName(project="p", instance="instance", database="d", change_stream="Everything")
_UNBOUNDED = 1024**4


def envelope() -> EnvelopeBuilder:
    """Builds rows as the daemon does by default."""
    return EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")


class ArrowSink:
    """Builds a record batch of every epoch and drops it; ``rows`` counts its rows."""

    def __init__(self) -> None:
        self.rows = 0
        self._envelope = envelope()
        self._registry = SchemaRegistry()
        self._epoch = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.to_thread(self._build, epoch)

    def _build(self, epoch: SealedEpoch) -> None:
        self._epoch += 1
        if epoch.changes.mods:
            self.rows += self._envelope.build(epoch.changes, self._registry, self._epoch).num_rows


def to_arrow(host: str, replay: Replay, span: Span, _folder: str, workers: int = 1) -> int:
    """Reads a span of all partitions into record batches; returns how many rows they have."""
    sink = ArrowSink()
    from_start = Range((CutPartition(INITIAL_TOKEN, START),), START - 1, span.end)
    asyncio.run(read(host, replay, from_start, sink, workers))
    return sink.rows


def to_spool(host: str, replay: Replay, span: Span, folder: str, workers: int = 1) -> int:
    """Reads a span of all partitions into a spool, from its checkpoint on; returns how many rows were added."""
    metrics = ReaderMetrics()
    with spooled(folder, metrics) as (sink, at):
        asyncio.run(read(host, replay, Range(at.cut, at.watermark, span.end), sink, workers))
        return sum(manifest.rows for manifest in sink.spool.manifests(at.epoch + 1, sink.spool.latest()))


@contextmanager
def spooled(folder: str, metrics: ReaderMetrics) -> Iterator[tuple[SpoolSink, ResumePoint]]:
    """A sink into the spool of a folder, which is created if need be, and where reading continues."""
    spool = Spool.at(folder)
    with sole_writer(spool):
        try:
            header = spool.header()
        except FileNotFoundError:
            header = initialize(spool, NAME, START, format_rfc3339(START), [])
        at = checkpoint(spool, header)
        writer = SpoolWriter(spool, header, at, envelope(), RecordFilter())
        yield SpoolSink(writer, spool, max_bytes=_UNBOUNDED, metrics=metrics), at


async def read(host: str, replay: Replay, span: Range, sink: SealedEpochSink, workers: int) -> None:
    """Reads a range into a sink; the measurement starts when the workers have started."""
    assert span.end is not None
    collect_rarely()
    async with (
        opened(host, replay, span.end + SECOND, workers) as stream,
        stream.scheduler(span, sink, seal_interval=SECOND, metrics=ReaderMetrics()) as scheduler,
    ):
        prepared()
        await scheduler.run()


@asynccontextmanager
async def opened(host: str, replay: Replay, now: int, workers: int = 1) -> AsyncIterator[OpenStream]:
    """The change stream, connected; ``now`` is Spanner's clock."""
    dialect = GOOGLESQL if replay.dialect == "googlesql" else POSTGRESQL
    config = SourceConfig(**NAME.model_dump(), emulator_host=host, workers=workers)
    client = SpannerClient(config.address, config.rpc_priority)
    stream = ChangeStream(SOURCE.change_stream, "1d", "NEW_ROW", IMMUTABLE, ())
    async with client.connected():
        yield OpenStream(client, config, dialect, stream, SOURCE, RecordFilter(), now)
