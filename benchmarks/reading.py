"""The reader as the daemon runs it, put before a replay server: the one place that knows how it is put together.

Only what finds a change stream is left out (the replay server answers no questions about a schema), and the sink may
be one that drops what it is given.
"""

import asyncio
import time

from benchmarks.messages import START, Replay, Span
from connector.client import SpannerClient
from connector.daemon import SpoolSink
from connector.decode import decoder
from connector.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.envelope import EnvelopeBuilder, Source
from connector.epoch import Epoch
from connector.filters import RecordFilter
from connector.flow import FlowControl
from connector.manifest import SourceName
from connector.metrics import ReaderMetrics
from connector.partition_query import PartitionQueries
from connector.partitions import CutPartition
from connector.records import INITIAL_TOKEN
from connector.scheduler import EpochSink, Range, Scheduler
from connector.schemas import SchemaRegistry
from connector.sealing import SpoolWriter, checkpoint, initialize, sole_writer
from connector.spool import Spool
from connector.timestamps import SECOND, format_rfc3339

SOURCE = Source("p", "instance", "d", "Everything", "d")
NAME = SourceName(project="p", instance="instance", database="d", change_stream="Everything")
_UNBOUNDED = 1024**4


def envelope() -> EnvelopeBuilder:
    """Makes rows as the daemon does by default."""
    return EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")


class ArrowSink:
    """Makes a finished record batch of every epoch and drops it; ``rows`` counts them."""

    def __init__(self) -> None:
        self.rows = 0
        self._envelope = envelope()
        self._registry = SchemaRegistry()
        self._epoch = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        await asyncio.to_thread(self._build, epoch)

    def _build(self, epoch: Epoch) -> None:
        self._epoch += 1
        if epoch.changes.mods:
            self.rows += self._envelope.build(epoch.changes, self._registry, self._epoch).num_rows


def to_arrow(host: str, replay: Replay, span: Span, _folder: str) -> int:
    """Reads a span of all partitions to record batches; returns how many rows they had."""
    sink = ArrowSink()
    asyncio.run(read(host, replay, span, sink))
    return sink.rows


def to_spool(host: str, replay: Replay, span: Span, folder: str) -> int:
    """Reads a span of all partitions into a new spool; returns how many rows it has."""
    spool = Spool.at(folder)
    metrics = ReaderMetrics()
    with sole_writer(spool):
        header = initialize(spool, NAME, START, format_rfc3339(START), [])
        writer = SpoolWriter(spool, header, checkpoint(spool, header), envelope(), RecordFilter((), (), ()))
        sink = SpoolSink(writer, spool, max_bytes=_UNBOUNDED, retention=24 * 3600 * SECOND, metrics=metrics)
        asyncio.run(read(host, replay, span, sink))
    return sum(manifest.rows for manifest in spool.manifests(1, spool.latest()))


async def read(host: str, replay: Replay, span: Span, sink: EpochSink) -> None:
    """Reads a span of all partitions into a sink."""
    dialect = GOOGLESQL if replay.dialect == "googlesql" else POSTGRESQL
    client = SpannerClient(SOURCE.database_name, emulator_host=host)

    async def spanner_clock() -> int:
        return span.end + SECOND

    async with client.connected():
        queries = PartitionQueries(
            client,
            dialect,
            SOURCE.change_stream,
            IMMUTABLE,
            heartbeat=SECOND,
            decoder=decoder(dialect, IMMUTABLE),
            clock=time.time_ns,
        )
        await Scheduler(
            queries,
            SOURCE.change_stream,
            Range((CutPartition(INITIAL_TOKEN, START),), START - 1, span.end),
            sink,
            seal_interval=SECOND,
            window=None,
            spanner_clock=spanner_clock,
            known_clock=span.end + SECOND,
            flow=FlowControl(),
            metrics=ReaderMetrics(),
        ).run()
