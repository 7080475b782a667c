"""An epoch sink that writes nothing: it compares what is read again with what a spool holds of the same time."""

import asyncio
from dataclasses import dataclass, field

from connector.audit.comparison import differences
from connector.audit.findings import Findings
from connector.audit.rows import ComparableRows
from connector.audit.spool_rows import SpanRows
from connector.core.changes import Changes
from connector.core.epoch import Epoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source


@dataclass(slots=True)
class AuditTotals:
    """What has been compared so far.

    Attributes:
        transactions: transactions that Spanner returned and the filter keeps.
        mods: their mods.
        findings: what was found.
    """

    transactions: int = 0
    mods: int = 0
    findings: Findings = field(default_factory=Findings)


class ComparingSink:
    """Compares the epochs of a span.

    Args:
        source: the change stream.
        tables: its tables as they are known now.
        keeps: selects the records that are compared.
        spool: the spool's rows of the span.
        totals: counts.

    Attributes:
        reached: the timestamp up to which everything was compared, in nanoseconds since 1970; None before the first.
    """

    def __init__(
        self,
        source: Source,
        tables: tuple[TableSchema, ...],
        keeps: RecordFilter,
        spool: SpanRows,
        totals: AuditTotals,
    ) -> None:
        self._envelope = EnvelopeBuilder(source, stream_name=None, read_method="")
        self._registry = SchemaRegistry(tables)
        self._keeps = keeps
        self._spool = spool
        self._totals = totals
        self.reached: int | None = None

    async def room(self, stopping: asyncio.Event) -> bool:
        """There is always room: :meth:`deliver` returns when all is compared."""
        return True

    async def deliver(self, epoch: Epoch, cut: list[CutPartition], *, final: bool) -> None:
        """Compares an epoch.

        Raises:
            SpoolError: the spool cannot be read at all.
        """
        comparing = asyncio.ensure_future(asyncio.to_thread(self._compare, epoch))
        try:
            await asyncio.shield(comparing)
        finally:
            await asyncio.wait({comparing})  # a thread cannot be cancelled

    def _compare(self, epoch: Epoch) -> None:
        totals = self._totals
        expected, part = self._rows(epoch.changes), self._spool.upto(epoch.high)
        for low, high in part.left_out:
            expected = expected.without(low, high)
        totals.transactions += expected.transactions
        totals.mods += len(expected)
        totals.findings.add(differences(expected, part.rows))
        self.reached = epoch.high

    def _rows(self, changes: Changes) -> ComparableRows:
        kept = self._keeps(changes)
        if not kept.mods:
            return ComparableRows.none()
        return ComparableRows.of([self._envelope.build(kept, self._registry, 0)])[0]
