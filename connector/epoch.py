"""Buffers records until the watermark has passed them, and cuts them into epochs. Pure: no clock, no I/O.

An epoch is all the data change records committed in (low, high], sorted into the database's history. Since all
records of a transaction share one commit timestamp, an epoch never splits a transaction. An epoch is bounded: it
holds about :data:`MAX_BYTES` at most (only the records of one commit timestamp may exceed it), and all of it lies
in one minute of commit time, so that a sink can write a minute's file once the watermark has passed it.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby

from connector.records import DataChangeRecord
from connector.timestamps import MINUTE

MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Epoch:
    """The records committed in (low, high], in commit order; timestamps are nanoseconds since the epoch."""

    low: int
    high: int
    records: tuple[DataChangeRecord, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class IncompleteTransaction:
    """A transaction of which another number of records came than it says it has: records were lost."""

    server_transaction_id: str
    commit_timestamp: int
    expected: int
    received: int


def incomplete_transactions(records: Iterable[DataChangeRecord]) -> list[IncompleteTransaction]:
    """The transactions in ``records`` that do not have as many records as they say.

    ``records`` are whole transactions, in commit order, before tables are filtered.
    """
    received: Counter[tuple[int, str]] = Counter()
    expected: dict[tuple[int, str], int] = {}
    for record in records:
        key = (record.commit_timestamp, record.server_transaction_id)
        received[key] += 1
        expected[key] = record.number_of_records_in_transaction
    return [
        IncompleteTransaction(transaction, at, expected[at, transaction], count)
        for (at, transaction), count in received.items()
        if count != expected[at, transaction]
    ]


def minute_end(timestamp: int) -> int:
    """The last nanosecond of the minute that ``timestamp`` lies in."""
    return timestamp - timestamp % MINUTE + MINUTE - 1


class EpochBuffer:
    """Holds what was received and is not yet sealed.

    Args:
        watermark: what was committed at or before it is delivered already, and dropped when it comes again.
        max_bytes: the size at which an epoch is cut.
    """

    def __init__(self, watermark: int, *, max_bytes: int = MAX_BYTES) -> None:
        self._sealed = watermark
        self._max_bytes = max_bytes
        self._partitions: dict[str, deque[DataChangeRecord]] = {}
        self._firsts: list[tuple[int, str]] = []
        """A heap of the commit timestamp of each partition's first record, and of some that were discarded."""
        self._ready: deque[DataChangeRecord] = deque()
        self._ready_to = watermark
        self.bytes = 0
        """What is held, in bytes."""
        self.ready_bytes = 0
        """What is held of records that the watermark has passed, in bytes."""

    def add(self, token: str, record: DataChangeRecord, *, progress: int) -> bool:
        """Holds a record of a partition; returns False where it was known already and is dropped.

        ``progress`` is the partition's: what was committed at or before it has come before.
        """
        if record.commit_timestamp <= max(progress, self._ready_to):
            return False
        held = self._partitions.get(token)
        if held is None:
            held = self._partitions[token] = deque()
            heappush(self._firsts, (record.commit_timestamp, token))
        held.append(record)
        self.bytes += record.size
        return True

    def discard(self, token: str, *, beyond: int) -> None:
        """Drops what is held of a partition beyond its progress; the query that is sent next returns it again."""
        held = self._partitions.get(token)
        while held and held[-1].commit_timestamp > beyond:
            self.bytes -= held.pop().size
        if held is not None and not held:
            del self._partitions[token]
            if len(self._firsts) > 2 * len(self._partitions) + 64:
                self._firsts = [(held[0].commit_timestamp, token) for token, held in self._partitions.items()]
                heapify(self._firsts)

    def advance(self, watermark: int) -> None:
        """The watermark has moved: sorts what it has passed to the end of what is ready."""
        if watermark <= self._ready_to:
            return
        passed: list[DataChangeRecord] = []
        while self._firsts and self._firsts[0][0] <= watermark:
            first, token = heappop(self._firsts)
            held = self._partitions.get(token)
            if held is None or held[0].commit_timestamp != first:
                continue  # it was discarded meanwhile
            while held and held[0].commit_timestamp <= watermark:
                passed.append(held.popleft())
            if held:
                heappush(self._firsts, (held[0].commit_timestamp, token))
            else:
                del self._partitions[token]
        passed.sort(key=lambda record: record.order)
        self._ready.extend(passed)
        self.ready_bytes += sum(record.size for record in passed)
        self._ready_to = watermark

    @property
    def overdue(self) -> bool:
        """Whether an epoch is full, or a minute has passed, so that one should be sealed at once."""
        return self.ready_bytes >= self._max_bytes or self._ready_to >= minute_end(self._sealed + 1)

    def take(self) -> Epoch | None:
        """The next epoch, of all that is ready or as much as an epoch may hold; None if the watermark stood still.

        The epoch may be empty: it then moves nothing but the checkpoint.
        """
        if self._ready_to <= self._sealed:
            return None
        high = min(self._ready_to, minute_end(self._sealed + 1))
        records: list[DataChangeRecord] = []
        size = 0
        for at, group in groupby(self._ready, key=lambda record: record.commit_timestamp):
            if at > high:
                break
            together = list(group)
            weight = sum(record.size for record in together)
            if records and size + weight > self._max_bytes:
                high = records[-1].commit_timestamp
                break
            records.extend(together)
            size += weight
        for _ in records:
            self._ready.popleft()
        self.bytes -= size
        self.ready_bytes -= size
        low, self._sealed = self._sealed, high
        return Epoch(low, high, tuple(records), size)
