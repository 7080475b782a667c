"""The daemon's side of the spool: seals epochs into it, prunes it, and waits for its consumers while it is full."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pyarrow as pa

from connector.core.epoch import IncompleteTransaction, SealedEpoch
from connector.core.late_records import LateRecord
from connector.core.partitions import CutPartition
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError
from connector.log import Log
from connector.reader.stopping import StopRequest
from connector.spanner.key_order import KeyOrder
from connector.spool import consumers
from connector.spool.late_store import LateStore
from connector.spool.manifest import Manifest, SegmentFile
from connector.spool.reading import Spool
from connector.spool.retention.pruning import PRUNE_GRACE, Keeping
from connector.spool.writing import SpoolWriter
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.spans import span
from connector.threads import first_of, in_thread

PRUNE_INTERVAL = 1.0
"""Seconds between two prunings."""

_WARN_INTERVAL = 60.0
"""Seconds between two warnings of the same thing."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class WrittenEpoch:
    """An epoch whose segments are in the spool, and not named by a manifest yet.

    Attributes:
        low: it holds what was committed after this, Unix nanoseconds,
        high: and up to this, inclusive.
        files: its segments, in the order of their records.
        tables: mods by table.
        schemas: those that are new in it, in the order in which records have them.
        cut: the partitions from which reading continues.
        final: whether the user's end timestamp is reached.
    """

    low: int
    high: int
    files: Sequence[SegmentFile]
    tables: Mapping[str, int]
    schemas: Sequence[TableSchema]
    cut: Sequence[CutPartition]
    final: bool


class SpoolSink:
    """An epoch sink that seals into a spool, prunes what all consumers are done with, and waits while it is full.

    Args:
        writer: the spool's writer.
        spool: the spool.
        max_bytes: the size from which on the reader waits.
        keep: nanoseconds of commit time for which epochs are kept that all consumers are done with.
        metrics: counters of the daemon; they have how long Spanner keeps the stream's records.
        key_order: learns the order of new tables' keys; None where the positions of their columns give it.
        continues: whether the reader continues after a late record that is kept.

    Attributes:
        writer: as it was given.
        spool: as it was given.
    """

    def __init__(
        self,
        writer: SpoolWriter,
        spool: Spool,
        *,
        max_bytes: int,
        keep: int = 0,
        metrics: ReaderMetrics,
        key_order: KeyOrder | None = None,
        continues: bool = False,
    ) -> None:
        self.writer = writer
        self._retention = writer.retention
        self.spool = spool
        self._max_bytes = max_bytes
        self._keeping = Keeping.within(keep, max_bytes)
        self._metrics = metrics
        metrics.spool_bytes = self._retention.bytes
        self._key_order = key_order
        self.continues = continues
        self._late_store = LateStore(spool)
        self._lock = asyncio.Lock()
        self._warned_of_full_spool = self._warned_of_strays = -_WARN_INTERVAL
        self.watermark = 0

    async def room(self, stopping: asyncio.Event) -> bool:
        """Waits until consumers have made room in the spool; False if ``stopping`` was set before."""
        while self._retention.bytes >= self._max_bytes:
            await self._prune(grace=0)
            if self._retention.bytes < self._max_bytes or self._all_is_consumed():
                break
            if stopping.is_set():
                return False
            self._warn_of_full_spool()
            await first_of(stopping.wait(), within=PRUNE_INTERVAL / 2)
        self._metrics.spool_bytes = self._retention.bytes
        return True

    def _all_is_consumed(self) -> bool:
        """True if only the newest epoch is left, which is never pruned, however large it is.

        The numbers of strays are of epochs that this copy of the spool does not have.
        """
        if self._retention.strays:
            return False
        known = consumers.consumers(self.spool)
        return bool(known) and min(consumer.epoch for consumer in known) >= self.writer.epoch

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Seals the epoch; when it returns the epoch exists and survives a crash."""
        if self._key_order is not None:
            await self._key_order.learn(self.writer.registry, epoch.changes)
        await self._sealed(functools.partial(self._seal, epoch, cut, final=final))

    def _seal(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> Manifest:
        try:
            return self.writer.seal(epoch, cut, now=time.time_ns(), final=final)
        finally:
            # Arrow's pool keeps freed memory for each thread that it was used in.
            pa.default_memory_pool().release_unused()

    async def deliver_written(self, written: WrittenEpoch) -> None:
        """Seals an epoch whose segments are written already; when it returns the epoch survives a crash.

        Raises:
            SpoolError: the schemas that were found are not those that the segments name.
        """
        await self._sealed(functools.partial(self._seal_written, written))

    async def _sealed(self, seal: Callable[[], Manifest]) -> None:
        with span("seal epoch") as sealing:
            async with self._lock:
                manifest = await in_thread(seal)
            high, lag = manifest.watermark_high, (time.time_ns() - manifest.watermark_high) / SECOND
            counts = {"epoch": manifest.epoch, "mods": manifest.rows, "bytes": manifest.size}
            sealing.set_attributes({f"spanner_cdc.{name}": n for name, n in {**counts, "lag_seconds": lag}.items()})
        self.watermark = high
        self._metrics.newest_epoch = manifest.epoch
        self._metrics.spool_bytes = self._retention.bytes
        rows, size = manifest.rows, manifest.size
        _log.debug("epoch sealed", epoch=manifest.epoch, rows=rows, bytes=size, watermark=format_rfc3339(high))

    def _seal_written(self, written: WrittenEpoch) -> Manifest:
        registry = self.writer.registry
        for schema in written.schemas:
            registry.declare(schema.table, schema.primary_keys)
            registry.observe(schema.table, schema.columns)
            if schema.key not in registry.schemas:
                raise SpoolError(f"the schema {schema.key} of table {schema.table} does not follow from the known one")
        return self.writer.seal_written(
            written.files,
            written.tables,
            low=written.low,
            high=written.high,
            cut=written.cut,
            now=time.time_ns(),
            final=written.final,
        )

    async def order_keys(self, unordered: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The key order of new tables; ``unordered`` has their key columns in the order of their positions."""
        if self._key_order is None:
            return dict(unordered)
        return await self._key_order.order(self.writer.registry, unordered)

    async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
        """Keeps late records and incomplete transactions as dead letters; when it returns they survive a crash."""
        await in_thread(self._late_store.keep, late, now=time.time_ns())

    @asynccontextmanager
    async def pruned(self, stop: StopRequest) -> AsyncIterator[None]:
        """Prunes in the background; an error of it asks ``stop`` for a drain, and is raised at the end.

        When this is left, no thread writes to the spool any more.
        """
        pruning = asyncio.create_task(self._keep_pruned(), name="prune")

        def drain(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                stop.request()

        pruning.add_done_callback(drain)
        try:
            yield
            if pruning.done():
                await pruning
        finally:
            pruning.remove_done_callback(drain)  # reading is over: there is nothing left to drain
            pruning.cancel()
            await asyncio.wait({pruning})
            if not pruning.cancelled() and (error := pruning.exception()) is not None:
                _log.warning("pruning the spool failed; the reader drains and ends", error=str(error))

    async def _keep_pruned(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_INTERVAL)
            await self._prune()

    async def _prune(self, grace: int = PRUNE_GRACE) -> None:
        now = time.time_ns()
        async with self._lock:
            await in_thread(self._retention.prune, now=now, grace=grace, keeping=self._keeping)
        self._metrics.spool_bytes, self._metrics.kept_less = self._retention.bytes, self._retention.kept_less
        self._warn_of_strays()

    def _warn_of_strays(self) -> None:
        strays, now = self._retention.strays, time.monotonic()
        if strays and now - self._warned_of_strays >= _WARN_INTERVAL:
            self._warned_of_strays = now
            _log.warning(
                "nothing is pruned: consumers are done with epochs of another copy of this spool. It was put back from"
                " an older one. Restore the newer copy, or drop them with `spanner-cdc spool PATH --forget NAME`",
                consumers=", ".join(strays),
                newest_epoch=self.writer.epoch,
            )

    def _warn_of_full_spool(self) -> None:
        now = time.monotonic()
        if now - self._warned_of_full_spool < _WARN_INTERVAL:
            return
        self._warned_of_full_spool = now
        known = consumers.consumers(self.spool)
        slowest = min(known, key=lambda consumer: consumer.epoch, default=None)
        left = (self.watermark + self._metrics.retention - time.time_ns()) // SECOND
        _log.warning(
            "the spool is full and the reader waits for its consumers",
            bytes=self._retention.bytes,
            max_bytes=self._max_bytes,
            slowest_consumer=slowest.consumer if slowest else "none is registered",
            its_epoch=slowest.epoch if slowest else 0,
            newest_epoch=self.writer.epoch,
            seconds_until_spanner_drops_data=left,
        )
