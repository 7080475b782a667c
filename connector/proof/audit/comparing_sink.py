"""An epoch sink that writes nothing: it compares records that are read again with those in a spool."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from connector.core.changes import Changes
from connector.core.epoch import SealedEpoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.proof.audit.comparison import differences
from connector.proof.audit.findings import AuditFindings
from connector.proof.audit.rows import ComparableRows
from connector.proof.audit.spool_rows import SpanRows
from connector.reader.sealer import SealedEpochSink
from connector.threads import in_thread

SLICE_BYTES = 4 * 1024 * 1024
"""Bytes of records that are compared at once."""


class ComparingSink(SealedEpochSink):
    """Compares the epochs of a span.

    Args:
        source: the change stream.
        tables: its tables as they are known now.
        keeps: selects the records that are compared.
        spool: the spool's rows of the span.
        findings: receives what was found, and how much was compared.

    Attributes:
        reached: the timestamp up to which everything was compared, in nanoseconds since 1970; None before the first.
    """

    def __init__(
        self,
        source: Source,
        tables: tuple[TableSchema, ...],
        keeps: RecordFilter,
        spool: SpanRows,
        findings: AuditFindings,
    ) -> None:
        self._envelope = EnvelopeBuilder(source, stream_name=None, read_method="")
        self._registry = SchemaRegistry(tables)
        self._keeps = keeps
        self._spool = spool
        self._findings = findings
        self.reached: int | None = None

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Compares an epoch.

        Raises:
            SpoolError: the spool cannot be read at all.
        """
        await in_thread(partial(self._compare, epoch))

    def _compare(self, epoch: SealedEpoch) -> None:
        for changes, high in _slices(epoch):
            self._compare_slice(changes, high)
        # Arrow's pool keeps freed memory for each thread that it was used in.
        pa.default_memory_pool().release_unused()

    def _compare_slice(self, changes: Changes, high: int) -> None:
        expected, part = self._rows(changes), self._spool.upto(high)
        for low, top in part.left_out:
            expected = expected.without(low, top)
        self._findings.transactions += expected.transactions
        self._findings.mods += len(expected)
        self._findings.add(differences(expected, part.rows))
        self.reached = high

    def _rows(self, changes: Changes) -> ComparableRows:
        kept = self._keeps(changes)
        if not kept.mods:
            return ComparableRows.none()
        return ComparableRows.of(self._envelope.build(kept, self._registry, 0))[0]


def _slices(epoch: SealedEpoch) -> Iterator[tuple[Changes, int]]:
    """The records in slices of about :data:`SLICE_BYTES`, which split no commit timestamp; each with its end."""
    changes = epoch.changes
    ends = np.cumsum(changes.sizes)
    start, before = 0, 0
    while start < len(changes):
        reached = min(int(np.searchsorted(ends, before + SLICE_BYTES)), len(changes) - 1)
        high = int(changes.commit_timestamps[reached])
        stop = changes.passed(high)
        yield changes.part(start, stop), high
        start, before = stop, int(ends[stop - 1])
    if not len(changes) or changes.last < epoch.high:
        yield changes.part(len(changes)), epoch.high
