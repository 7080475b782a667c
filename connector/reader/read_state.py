"""The state that the parts of a reader share: the range to read, and how far it has been read."""

import asyncio
from dataclasses import dataclass

from connector.core.epoch import MAX_BYTES, EpochBuffer
from connector.core.partitions import CutPartition, Follows, PartitionGraph, follow_all
from connector.core.timestamps import SECOND
from connector.reader.flow_control import FlowControl
from connector.reader.placements.first_starts import FirstStarts
from connector.reader.placements.watching import FunctionsWatch
from connector.spanner.clock import SpannerClock
from connector.spanner.partition_query import SendsQueries
from connector.telemetry.metrics import ReaderMetrics


@dataclass(frozen=True, slots=True)
class QueriedStream:
    """A change stream, as a reader queries it.

    Attributes:
        name: for messages.
        queries: sends the partitions' queries.
        clock: Spanner's.
        heartbeat: the stream's, in nanoseconds.
        window: nanoseconds that the end of a query may lie past Spanner's clock and its start, at most; None where a
            query needs no end.
        functions: watches the read functions; None where there is one alone, or the caller does.
        first_starts: finds the first starts of young read functions; None likewise.
        of_some_placements: whether the stream has placements that are not read.
    """

    name: str
    queries: SendsQueries
    clock: SpannerClock
    heartbeat: int = SECOND
    window: int | None = None
    functions: FunctionsWatch | None = None
    first_starts: FirstStarts | None = None
    of_some_placements: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """The range to read: from a cut at a watermark to the user's end, inclusive; Unix nanoseconds."""

    cut: tuple[CutPartition, ...]
    watermark: int
    end: int | None
    follows: Follows = follow_all
    """Decides which child partitions are followed. Any other rule means that others read other parts of the cut: then
    transactions may be incomplete here, and nothing is delivered before the whole range is."""

    @property
    def is_shared(self) -> bool:
        """True if others read other parts of the cut."""
        return self.follows is not follow_all


class ReadState:
    """A range of a change stream that is being read, as all parts of its reader see it.

    Args:
        stream: the change stream.
        span: what is read of it.
        flow: the memory's budget.
        metrics: counts what is read.
    """

    def __init__(self, stream: QueriedStream, span: Range, flow: FlowControl, metrics: ReaderMetrics) -> None:
        self.stream = stream
        self.span = span
        self.flow = flow
        self.metrics = metrics
        self.graph = PartitionGraph(span.cut, watermark=span.watermark, end=span.end, follows=span.follows)
        if stream.functions is not None:
            stream.functions.begin(self.graph)
        self.buffer = EpochBuffer(span.watermark, max_bytes=min(MAX_BYTES, flow.budget))
        self.changed = asyncio.Event()
        """Set when the graph or the buffer have changed."""
        self.stopping = asyncio.Event()
        """Set when the reader is to stop."""

    @property
    def ending(self) -> bool:
        """True once the reader has finished or is to stop."""
        return self.graph.finished or self.stopping.is_set()

    def admits(self, token: str) -> bool:
        """True if there is memory for a partition to read on."""
        buffer = self.buffer
        return self.flow.admits(held=buffer.bytes, ready=buffer.ready_bytes, laggard=self.graph.is_laggard(token))

    def resume_partitions(self) -> None:
        """Lets partitions that wait for memory continue, as far as there is room."""
        buffer = self.buffer
        self.flow.update(held=buffer.bytes, ready=buffer.ready_bytes, watermark=self.graph.watermark)
