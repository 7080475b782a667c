"""Buffers records until the watermark has passed them, and cuts them into epochs. Pure: no clock, no I/O.

An epoch is all data change records committed in (low, high], in commit order. All records of a transaction share one
commit timestamp, so an epoch never splits a transaction. An epoch has at most about :data:`MAX_BYTES`; only the records
of one commit timestamp may exceed that. It lies in one minute of commit time, so that a sink can write a minute's file
once the watermark has passed it.
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import groupby

import numpy as np
import pyarrow.compute as pc

from connector.core.changes import Changes, integers
from connector.core.records import DataChangeRecord
from connector.core.timestamps import MINUTE

MAX_BYTES = 64 * 1024 * 1024
"""The size of an epoch, at most, unless one commit timestamp has more."""

EpochPart = DataChangeRecord | Changes
"""Records as they were received: one as an object, or many as columns in the order of their commit timestamps."""


@dataclass(frozen=True)
class SealedEpoch:
    """The records committed in (low, high], in commit order; timestamps are Unix nanoseconds."""

    low: int
    high: int
    parts: tuple[EpochPart, ...]
    bytes: int

    @cached_property
    def changes(self) -> Changes:
        """The records as columns."""
        return Changes.joined(self.parts)

    @cached_property
    def records(self) -> tuple[DataChangeRecord, ...]:
        """Each record as an object: expensive for many records."""
        return tuple(record for part in self.parts for record in _records(part))


@dataclass(frozen=True, slots=True)
class IncompleteTransaction:
    """A transaction that does not have the number of records that its records state: records were lost."""

    server_transaction_id: str
    commit_timestamp: int
    expected: int
    received: int


def incomplete_transactions(changes: Changes, *, of_some_placements: bool = False) -> list[IncompleteTransaction]:
    """The transactions in ``changes`` that do not have the number of records that they state.

    Args:
        changes: whole transactions, in commit order, before tables are filtered.
        of_some_placements: whether other placements are not read: a transaction of several partitions may have its
            other records there.
    """
    if len(changes) == 0:
        return []
    at, transactions = changes.commit_timestamps, changes.column("server_transaction_id")
    expected = integers(changes.column("number_of_records_in_transaction"))
    if len(changes) == 1:
        firsts = np.zeros(1, np.int64)
    else:
        other = pc.not_equal(transactions[1:], transactions[:-1]).to_numpy(zero_copy_only=False)
        firsts = np.concatenate(([0], np.flatnonzero((np.diff(at) != 0) | other) + 1))
    counts = np.diff(firsts, append=len(changes))
    wanted = expected[firsts + counts - 1]
    wrong = wanted != counts
    if of_some_placements:
        wrong &= (counts > wanted) | (integers(changes.column("number_of_partitions_in_transaction"))[firsts] == 1)
    return [
        IncompleteTransaction(transactions[int(first)].as_py(), int(at[first]), int(expected), int(count))
        for first, expected, count in zip(firsts[wrong], wanted[wrong], counts[wrong], strict=True)
    ]


def minute_end(timestamp: int) -> int:
    """The last nanosecond of the minute that ``timestamp`` lies in."""
    return timestamp - timestamp % MINUTE + MINUTE - 1


class EpochBuffer:
    """Holds records that are received and not yet sealed.

    Args:
        watermark: what was committed at or before it is delivered already, and dropped when it is returned again.
        max_bytes: the size at which an epoch is cut.
    """

    def __init__(self, watermark: int, *, max_bytes: int = MAX_BYTES) -> None:
        self._sealed = watermark
        self._max_bytes = max_bytes
        self._partitions: dict[str, deque[EpochPart]] = {}
        self._firsts: list[tuple[int, str]] = []
        """A heap of the commit timestamp of each partition's first record, and of some that were discarded."""
        self._ready: deque[EpochPart] = deque()
        self._ready_to = watermark
        self._before: int | None = None
        """No epoch reaches this timestamp."""
        self.bytes = 0
        """Bytes of all records held."""
        self.ready_bytes = 0
        """Bytes of the records held that the watermark has passed."""

    def add(self, token: str, record: DataChangeRecord, *, progress: int) -> bool:
        """Holds a record of a partition; returns False if it was known already and is dropped.

        ``progress`` is the partition's: what was committed at or before it has been received before.
        """
        if record.commit_timestamp <= max(progress, self._ready_to):
            return False
        self._hold(token, record, record.commit_timestamp, record.size)
        return True

    def add_all(self, token: str, changes: Changes, *, progress: int) -> tuple[Changes, Changes]:
        """Holds records of a partition that are in the order of their commit timestamps.

        Returns those that are held, and those that are late: they were not known, yet the watermark had passed them.
        What was known already is dropped.
        """
        known = changes.passed(progress)
        late = max(changes.passed(self._ready_to), known)
        held = changes.part(late)
        if len(held):
            self._hold(token, held, held.first, held.size)
        return held, changes.part(known, late)

    def _hold(self, token: str, part: EpochPart, first: int, size: int) -> None:
        held = self._partitions.get(token)
        if held is None:
            held = self._partitions[token] = deque()
            heappush(self._firsts, (first, token))
        held.append(part)
        self.bytes += size

    def discard(self, token: str, *, beyond: int) -> None:
        """Drops the records of a partition beyond its progress; its next query returns them again."""
        held = self._partitions.get(token)
        while held and _last(held[-1]) > beyond:
            part = held.pop()
            self.bytes -= part.size
            kept, _ = _split(part, beyond)
            if kept is not None:
                held.append(kept)
                self.bytes += kept.size
        if held is not None and not held:
            del self._partitions[token]
            if len(self._firsts) > 2 * len(self._partitions) + 64:
                self._firsts = [(_first(held[0]), token) for token, held in self._partitions.items()]
                heapify(self._firsts)

    def advance(self, watermark: int) -> None:
        """The watermark has moved: appends the records that it has passed to what is ready, in order."""
        if watermark <= self._ready_to:
            return
        passed: list[EpochPart] = []
        while self._firsts and self._firsts[0][0] <= watermark:
            first, token = heappop(self._firsts)
            held = self._partitions.get(token)
            if held is None or _first(held[0]) != first:
                continue  # it was discarded meanwhile
            while held and _first(held[0]) <= watermark:
                before, after = _split(held.popleft(), watermark)
                assert before is not None
                passed.append(before)
                if after is not None:
                    held.appendleft(after)
            if held:
                heappush(self._firsts, (_first(held[0]), token))
            else:
                del self._partitions[token]
        ordered = _in_order(passed)
        self._ready.extend(ordered)
        self.ready_bytes += sum(part.size for part in ordered)
        self._ready_to = watermark

    @property
    def sealed(self) -> int:
        """The timestamp up to which epochs have been taken, inclusive."""
        return self._sealed

    def seal_before(self, timestamp: int) -> None:
        """Ends sealing before ``timestamp``: no later epoch holds or passes it, since records of it may be missing."""
        self._before = timestamp if self._before is None else min(self._before, timestamp)

    @property
    def overdue(self) -> bool:
        """True if an epoch is full, or a minute has passed, so that one should be sealed at once."""
        full = self.ready_bytes >= self._max_bytes or self._ready_to >= minute_end(self._sealed + 1)
        return full and self._reached > self._sealed

    @property
    def _reached(self) -> int:
        """The timestamp up to which epochs may be taken, inclusive."""
        return self._ready_to if self._before is None else min(self._ready_to, self._before - 1)

    def take(self) -> SealedEpoch | None:
        """Takes the next epoch, with all that is ready or as much as an epoch may hold; None if there is nothing new.

        The epoch may be empty: it then moves nothing but the checkpoint.
        """
        if self._reached <= self._sealed:
            return None
        high = min(self._reached, minute_end(self._sealed + 1))
        parts: list[EpochPart] = []
        size = 0
        while self._ready and _first(self._ready[0]) <= high:
            together, after = self._next_instants(high, self._max_bytes - size, whole=not parts)
            if not together:
                high = _last(parts[-1])
                break
            parts += together
            size += sum(part.size for part in together)
            if after is not None:
                self._ready.appendleft(after)
        self.bytes -= size
        self.ready_bytes -= size
        low, self._sealed = self._sealed, high
        return SealedEpoch(low, high, tuple(parts), size)

    def _next_instants(self, high: int, room: int, *, whole: bool) -> tuple[list[EpochPart], EpochPart | None]:
        """Takes ready records of one commit timestamp or of several, as many as fit, from the front.

        Returns them with the rest of the part that they were cut from. ``whole``: the first timestamp always fits.
        """
        part = self._ready[0]
        if isinstance(part, Changes):
            count = _fitting(part, high, room, whole=whole)
            if count == 0:
                return [], None
            self._ready.popleft()
            return [part.part(0, count)], part.part(count) if count < len(part) else None
        _, group = next(groupby(self._ready, key=_first))
        together = list(group)
        if not whole and sum(record.size for record in together) > room:
            return [], None
        for _ in together:
            self._ready.popleft()
        return together, None


def _fitting(changes: Changes, high: int, room: int, *, whole: bool) -> int:
    """The number of records up to ``high`` that fit, without splitting those of one commit timestamp."""
    at = changes.commit_timestamps[: changes.passed(high)]
    fitting = int(np.searchsorted(np.cumsum(changes.sizes[: len(at)]), room, "right"))
    if fitting < len(at):
        fitting = int(np.searchsorted(at, at[fitting], "left"))
    if fitting == 0 and whole:
        fitting = int(np.searchsorted(at, at[0], "right"))
    return fitting


def _in_order(parts: list[EpochPart]) -> list[EpochPart]:
    """The parts in commit order; all that share a commit timestamp are adjacent."""
    if any(isinstance(part, Changes) for part in parts):
        return [Changes.joined(parts).in_order()]
    return sorted(parts, key=_order)


def _order(part: EpochPart) -> tuple[int, str, int, str]:
    assert isinstance(part, DataChangeRecord)
    return part.order


def _first(part: EpochPart) -> int:
    return part.commit_timestamp if isinstance(part, DataChangeRecord) else part.first


def _last(part: EpochPart) -> int:
    return part.commit_timestamp if isinstance(part, DataChangeRecord) else part.last


def _records(part: EpochPart) -> tuple[DataChangeRecord, ...]:
    return (part,) if isinstance(part, DataChangeRecord) else part.records()


def _split(part: EpochPart, timestamp: int) -> tuple[EpochPart | None, EpochPart | None]:
    """Splits a part into what was committed at or before ``timestamp``, and what was committed after."""
    if isinstance(part, DataChangeRecord):
        return (part, None) if part.commit_timestamp <= timestamp else (None, part)
    passed = part.passed(timestamp)
    return part.part(0, passed) if passed else None, part.part(passed) if passed < len(part) else None
