"""A share's reader: a scheduler over a part of the cut, which passes on proven records, and reports."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from connector.core.changes import Changes, chunks
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition, LeastParent
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from connector.core.windows import Share, ShareReport, Window
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import DeadLetterStore
from connector.reader.read_state import QueriedStream, Range
from connector.reader.scheduler import Scheduler
from connector.reader.sealer import SealedEpochSink
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQuery, SendsQueries
from connector.telemetry.metrics import ReaderMetrics

BUDGET = 16 * 1024 * 1024
"""Bytes of records that a share may read ahead: an executor runs a task for each of its cores."""

CHUNK = 4 * 1024 * 1024
"""Bytes of records that are handed on together."""

_SEAL_INTERVAL = SECOND // 10
"""Between two times that records are handed on: long enough for some to be joined."""

HandOn = Callable[[Changes], Awaitable[None]]
"""Takes records; returns when there is room for more."""


class ShareReader:
    """Reads a share of a window. Its :meth:`read` is called once.

    Args:
        stream: the change stream; its clock has passed the window's end.
        window: what is read.
        share: its partitions.
        hand_on: takes records.
        metrics: counts what is read.
        late_records: stores late records.
        budget: bytes of records that may be read ahead; None for :data:`BUDGET`.
    """

    def __init__(
        self,
        stream: QueriedStream,
        window: Window,
        share: Share,
        hand_on: HandOn,
        *,
        metrics: ReaderMetrics,
        late_records: DeadLetterStore | None,
        budget: int | None = None,
    ) -> None:
        self._share = share
        self._mutable = stream.window is not None
        self._metrics = metrics
        self._rule = LeastParent()
        self._weighed = WeighedQueries(stream.queries)
        self._sink = _Sink(hand_on)
        self._scheduler = Scheduler(
            replace(stream, queries=self._weighed),
            Range(share.cut, window.low, window.high, self._rule),
            self._sink,
            seal_interval=_SEAL_INTERVAL,
            flow=FlowControl(budget or BUDGET),
            metrics=metrics,
            late_records=late_records,
        )

    async def read(self) -> ShareReport:
        """Reads everything up to the window's end.

        Raises:
            SpannerCdcError: one clear line. What was handed on is a part of the share, and of no use.
        """
        began = time.perf_counter()
        await self._scheduler.run()
        assert self._sink.cut is not None, "the reader ends with an epoch up to its end"
        declined = self._rule.declined
        alive = {at.token for at in self._sink.cut}
        return ShareReport(
            self._share.number,
            tuple(self._sink.cut),
            tuple(sorted(self._rule.followed)),
            tuple(at.token for at in self._share.cut if at.token not in alive),
            tuple(child for child, _ in declined),
            tuple(least for _, least in declined),
            {at.token: size for at in self._sink.cut if (size := self._weighed.sizes[at.token])},
            self._sink.records,
            self._sink.mods,
            self._sink.bytes,
            self._metrics.queries,
            self._metrics.retries,
            time.perf_counter() - began,
            ends=self._scheduler.ends,
            mutable=self._mutable,
        )


class _Sink(SealedEpochSink):
    """An epoch sink that hands records on, and keeps the cut at the end."""

    def __init__(self, hand_on: HandOn) -> None:
        self._hand_on = hand_on
        self.cut: list[CutPartition] | None = None
        self.records = self.mods = self.bytes = 0

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Hands on the epoch's records."""
        self.records += len(epoch.changes)
        self.mods += epoch.changes.mods
        self.bytes += epoch.bytes
        for chunk in chunks(epoch.changes, CHUNK):
            await self._hand_on(chunk)
        if final:
            self.cut = cut


class WeighedQueries:
    """Queries that count the bytes of each partition's records."""

    def __init__(self, queries: SendsQueries) -> None:
        self._queries = queries
        self.sizes: Counter[str] = Counter()

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As of :class:`connector.spanner.partition_query.SendsQueries`."""
        async with aclosing(self._queries.read(query)) as messages:
            async for items in messages:
                size = sum(item.size for item in items if isinstance(item, Changes | DataChangeRecord))
                self.count(query.token, size)
                yield items

    def count(self, token: str, size: int) -> None:
        """Counts bytes that a partition has returned."""
        self.sizes[token] += size
