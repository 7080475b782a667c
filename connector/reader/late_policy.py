"""Decides about late records: each is counted and logged, and then stops the reader or becomes a dead letter.

A reader that stops seals nothing at or past the late record, so that the next run reads all of it again from Spanner. A
late record of a timestamp that is sealed already becomes a dead letter even so, because it is not read again. A reader
that continues stores the dead letter before it seals the next epoch. Transactions that lack records are counted, logged
and stored here, too; they stop no reader.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from connector.core.changes import Changes
from connector.core.epoch import IncompleteTransaction
from connector.core.late_records import LateRecord, in_time, passed_before
from connector.core.records import DataChangeRecord, Record, partition_name
from connector.core.timestamps import format_rfc3339
from connector.errors import LateRecordError, SpoolError, StreamError
from connector.log import Log
from connector.reader.read_state import ReadState
from connector.spanner.decoding.decoder import Item
from connector.telemetry.metrics import ReaderMetrics

_log = Log(__name__)


class DeadLetterStore(Protocol):
    """Stores late records and incomplete transactions."""

    @property
    def continues(self) -> bool:
        """True if the reader continues after a late record is stored."""

    async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
        """Stores late records, and transactions that lack records, durably.

        Raises:
            StreamError: too many are stored; these are stored all the same.
            SpoolError: the store cannot be written.
        """


def count_incomplete(transactions: Iterable[IncompleteTransaction], metrics: ReaderMetrics) -> None:
    """Counts and logs transactions that lack records."""
    for one in transactions:
        metrics.incomplete_transactions += 1
        _log.error(
            "a transaction is incomplete",
            server_transaction_id=one.server_transaction_id,
            commit_timestamp=format_rfc3339(one.commit_timestamp),
            expected_records=one.expected,
            received_records=one.received,
        )


class LatePolicy:
    """Sorts late records out of what queries return.

    Args:
        state: the reader's.
        store: stores late records as dead letters; None where there is no store, so that the first stops the reader.
    """

    def __init__(self, state: ReadState, store: DeadLetterStore | None) -> None:
        self._stream = state.stream.name
        self._graph = state.graph
        self._buffer = state.buffer
        self._metrics = state.metrics
        self._store = store
        self._delivered = state.span.watermark if state.span.is_shared else None
        """The timestamp up to which epochs are delivered, where the reader's own are only parts of one."""
        self._error: LateRecordError | None = None
        self._unstored: list[LateRecord] = []
        self._storing = asyncio.Lock()

    def without_late(self, token: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yields what a query has returned, without late data change records; each is judged when it is taken.

        If the reader continues, late announcements are returned: the partitions they name are read as far as possible.
        If it stops, nothing more is returned.
        """
        for item in items:
            in_time_part = self._in_time(token, item)
            if self._error is not None:
                return
            if in_time_part is not None:
                yield in_time_part

    def _in_time(self, token: str, item: Item) -> Item | None:
        if isinstance(item, Changes):
            kept, late, passed = in_time(item, self._graph[token].proved)
            if len(late):
                self._found(token, late.records(), passed.tolist())
            return kept if len(kept) else None
        before = passed_before(self._graph, token, item)
        if before is not None:
            self._found(token, [item], [before])
        return item if before is None or not isinstance(item, DataChangeRecord) else None

    def behind_watermark(self, token: str, records: Sequence[DataChangeRecord]) -> None:
        """Takes data change records that the watermark had passed before they were received."""
        if records:
            self._found(token, records, [self._graph.watermark] * len(records))

    async def settled(self) -> None:
        """Waits until late records are stored.

        Raises:
            LateRecordError: there was one, and the reader does not continue.
            StreamError: too many are stored.
            SpoolError: they cannot be stored.
        """
        await self.stored()
        if self._error is not None:
            raise self._error

    async def stored(self) -> None:
        """Waits until every late record that is to be stored is stored.

        Raises:
            StreamError: too many are stored.
            SpoolError: they cannot be stored.
        """
        if not self._unstored and not self._storing.locked():
            return
        async with self._storing:
            while self._unstored:
                assert self._store is not None
                some = tuple(self._unstored)
                try:
                    await self._store.keep(some)
                except SpoolError:
                    self._buffer.seal_before(min(late.at for late in some))
                    del self._unstored[: len(some)]
                    raise
                except StreamError:  # they are stored all the same
                    del self._unstored[: len(some)]
                    raise
                del self._unstored[: len(some)]  # if this is cancelled they stay, for the next seal

    async def report_incomplete(self, transactions: Sequence[IncompleteTransaction]) -> None:
        """Counts, logs and stores transactions that lack records; without a store they are only counted and logged.

        Raises:
            StreamError: too many are stored.
            SpoolError: they cannot be stored.
        """
        count_incomplete(transactions, self._metrics)
        if transactions and self._store is not None:
            await self._store.keep(transactions)

    def _found(self, token: str, records: Sequence[Record], passed: Sequence[int]) -> None:
        watermark = self._graph.watermark
        delivered = self._buffer.sealed if self._delivered is None else self._delivered
        found = [
            LateRecord(token, record, before, watermark, delivered)
            for record, before in zip(records, passed, strict=True)
        ]
        first = min(found, key=lambda late: late.at)
        self._metrics.late_records += len(found)
        _log.error(
            "a record is late: Spanner had proved that everything up to its timestamp had been returned",
            change_stream=self._stream,
            partition=partition_name(token),
            kind=first.kind,
            server_transaction_id=first.transaction,
            timestamp=format_rfc3339(first.at),
            proved_up_to=format_rfc3339(first.passed),
            records=len(found),
        )
        if self._store is not None and self._store.continues:
            self._unstored += found
            return
        self._buffer.seal_before(first.at)
        if self._store is not None:
            self._unstored += [late for late in found if late.missed]
        self._error = self._error or _stopped(self._stream, first, kept=self._store is not None)


def _stopped(stream: str, late: LateRecord, *, kept: bool) -> LateRecordError:
    """The error of a reader that stops; ``kept`` if the records that epochs miss are stored as dead letters."""
    transaction = f" of transaction {late.transaction}" if late.transaction else ""
    where, at = f"change stream {stream}, {partition_name(late.partition)}", format_rfc3339(late.at)
    missed = f"Epochs up to {format_rfc3339(late.delivered)} were delivered without it"
    if not late.missed:
        hint = "No epoch past it was delivered. Start the reader again: it reads all of it again."
    elif kept:
        hint = f"{missed}. It is stored as a dead letter in late/ of the spool."
    else:
        hint = f"{missed}, and it is not read again."
    return LateRecordError(
        f"{where}: a {late.kind}{transaction} at {at} is late: Spanner had proved that everything up to"
        f" {format_rfc3339(late.passed)} had been returned",
        hint=f"{hint} With source.late_records: dead-letter the daemon stores such records and continues.",
    )
