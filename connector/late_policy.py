"""What is done about late records: each is counted and logged, and then stops the reader or becomes a dead letter.

A reader that stops seals nothing at or past the late record, so that the next run asks Spanner anew for all of it. One
that goes on has the dead letter stored before the next epoch is sealed.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from connector.changes import Changes
from connector.decode import Item
from connector.epoch import EpochBuffer
from connector.errors import SpannerCdcError, StreamError
from connector.late_records import LateRecord, in_time, late_record
from connector.log import Log
from connector.metrics import ReaderMetrics
from connector.partitions import PartitionGraph
from connector.records import DataChangeRecord, partition_name
from connector.timestamps import format_rfc3339

_log = Log(__name__)


class DeadLetterStore(Protocol):
    """Where late records are kept."""

    async def keep(self, late: Sequence[LateRecord]) -> None:
        """Stores them; when it returns they survive a crash.

        Raises:
            SpannerCdcError: it is full, or cannot be written.
        """


class LatePolicy:
    """Sorts late records out of what queries return.

    Args:
        stream: the change stream's name, for messages.
        graph: what has been proved.
        buffer: what is not sealed yet.
        metrics: what is counted.
        store: takes late records as dead letters; None where the first one stops the reader.
    """

    def __init__(
        self,
        stream: str,
        graph: PartitionGraph,
        buffer: EpochBuffer,
        metrics: ReaderMetrics,
        store: DeadLetterStore | None,
    ) -> None:
        self._stream = stream
        self._graph = graph
        self._buffer = buffer
        self._metrics = metrics
        self._store = store
        self._unstored: list[LateRecord] = []
        self._storing = asyncio.Lock()

    def sorted_out(self, token: str, items: Iterable[Item]) -> Iterator[Item]:
        """What a query has returned, without the data change records that are late; each judged when it is taken.

        Announcements stay, late or not: the partitions that they name are read, as far as they can be.

        Raises:
            StreamError: something is late, and there is no store.
        """
        for item in items:
            if isinstance(item, Changes):
                kept, late, passed = in_time(item, self._graph[token].proved)
                if len(late):
                    self._found(list(map(self._late(token), late.records(), passed.tolist())))
                if len(kept):
                    yield kept
                continue
            found = late_record(self._graph, token, item)
            if found is not None:
                self._found([found])
            if found is None or not isinstance(item, DataChangeRecord):
                yield item

    def behind_watermark(self, token: str, records: Sequence[DataChangeRecord]) -> None:
        """Data change records that the watermark had passed before they came.

        Raises:
            StreamError: there are any, and there is no store.
        """
        if records:
            self._found([self._late(token)(record, self._graph.watermark) for record in records])

    async def stored(self) -> None:
        """Waits until every late record that was found is stored.

        Raises:
            SpannerCdcError: the store is full, or cannot be written.
        """
        if not self._unstored and not self._storing.locked():
            return
        async with self._storing:
            while self._unstored:
                assert self._store is not None
                some, self._unstored = self._unstored, []
                try:
                    await self._store.keep(some)
                except SpannerCdcError:
                    self._buffer.seal_before(min(late.at for late in some))
                    raise

    def _late(self, token: str) -> Callable[[DataChangeRecord, int], LateRecord]:
        return lambda record, passed: LateRecord(token, record, passed, self._graph.watermark)

    def _found(self, found: list[LateRecord]) -> None:
        first = min(found, key=lambda late: late.at)
        self._metrics.late_records += len(found)
        _log.error(
            "a record came after Spanner had proved that everything up to its timestamp had come",
            change_stream=self._stream,
            partition=partition_name(first.partition),
            kind=first.kind,
            server_transaction_id=first.transaction,
            timestamp=format_rfc3339(first.at),
            proved_up_to=format_rfc3339(first.passed),
            records=len(found),
        )
        if self._store is not None:
            self._unstored += found
            return
        sealed = self._buffer.sealed
        self._buffer.seal_before(first.at)
        raise _stopped(self._stream, first, sealed)


def _stopped(stream: str, late: LateRecord, delivered: int) -> StreamError:
    """The error of a reader that has delivered everything up to ``delivered``."""
    transaction = f" of transaction {late.transaction}" if late.transaction else ""
    where, at = f"change stream {stream}, {partition_name(late.partition)}", format_rfc3339(late.at)
    way_out = (
        "No epoch past it was delivered: start again, and Spanner is asked anew."
        if late.at > delivered
        else f"Epochs up to {format_rfc3339(delivered)} were delivered without it, and it is not read again."
    )
    return StreamError(
        f"{where}: a {late.kind}{transaction} at {at} came after Spanner had proved that everything up to"
        f" {format_rfc3339(late.passed)} had come",
        hint=f"{way_out} With source.late_records: dead-letter a reader into a spool keeps such records there,"
        " and goes on.",
    )
