"""A model of a Spanner change stream: its history, and what a query of it returns.

Everything is drawn from one seed. Commit timestamps are one nanosecond, seconds or minutes apart, and many are equal.
Partitions split, merge, move, do two of these at once, and may end in the instant in which they start.
"""

from collections import defaultdict
from dataclasses import dataclass
from random import Random

from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartition,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    Record,
)
from connector.core.timestamps import MINUTE, SECOND

_STEPS = (1, 1, 1, 1, 2, 3, 1000, SECOND, 25 * SECOND, MINUTE - 1, MINUTE, 2 * MINUTE)


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """The size of a history, and the rate at which its partitions change."""

    instants: int = 14
    churn: int = 8
    transactions: int = 14
    first_partitions: int = 2
    empty_partitions: bool = True
    """True if a partition may end in the instant in which it starts."""


@dataclass(slots=True)
class TruePartition:
    """A partition as Spanner knows it: it covers [start, end)."""

    token: str
    start: int
    parents: frozenset[str]
    end: int | None = None
    announcements: tuple[ChildPartitionsRecord, ...] = ()

    def covers(self, instant: int) -> bool:
        return self.start <= instant and (self.end is None or instant < self.end)


class ChangeStream:
    """The history of one change stream, from its first instant to ``horizon``; reading begins at ``start``."""

    def __init__(self, rng: Random, options: HistoryOptions) -> None:
        self.partitions: dict[str, TruePartition] = {}
        self._rng = rng
        self._options = options
        self.instants = self._instants()
        self.horizon = self.instants[-1]
        self.start = rng.choice(self.instants[: max(2, len(self.instants) // 4)]) + rng.choice((0, 0, 1))
        self.first = self.start + rng.choice((0, 0, 0, 1, 2, 1000, MINUTE))
        """The start of the partitions that the initial query returns; a second after the start in Google's example."""
        self._churn()
        self.records = self._transactions()
        self.by_token: dict[str, list[DataChangeRecord]] = defaultdict(list)
        self.owner: dict[tuple[str, str], str] = {}
        for token, record in self.records:
            self.by_token[token].append(record)
            self.owner[identity(record)] = token
        self.expected = sorted(
            (record for _, record in self.records if record.commit_timestamp >= self.first), key=history
        )

    def initial(self, at: int) -> list[ChildPartitionsRecord]:
        """Returns what the initial query at ``at`` returns: the partitions alive soon after, each in its own record."""
        at += self.first - self.start
        alive = [p.token for p in self.partitions.values() if p.covers(at)]
        return [
            ChildPartitionsRecord(at, f"{number:08d}", (ChildPartition(token, frozenset()),))
            for number, token in enumerate(alive)
        ]

    def _instants(self) -> list[int]:
        rng = self._rng
        at = rng.randrange(10, 40) * MINUTE + rng.choice((-2, -1, 0, 1, SECOND))
        out = [at]
        while len(out) < self._options.instants:
            at += rng.choice(_STEPS)
            out.append(at)
            if rng.random() < 0.2:  # a minute's last nanosecond, or the next one's first
                at += MINUTE - 1 - at % MINUTE + rng.choice((0, 1))
                if at > out[-1]:
                    out.append(at)
        return out

    def _churn(self) -> None:
        rng, first = self._rng, self.instants[0]
        ranges = [self._born(first, frozenset()) for _ in range(self._options.first_partitions)]
        events = sorted(rng.choice(self.instants[1:]) for _ in range(self._options.churn))
        for at in events:
            width, heirs = rng.choice(((1, 2), (1, 2), (1, 3), (2, 1), (2, 1), (3, 1), (1, 1), (2, 2)))
            place = rng.randrange(len(ranges))
            parents = ranges[place : place + width]
            if not self._options.empty_partitions and any(p.start == at for p in parents):
                continue
            names = frozenset(p.token for p in parents)
            children = [self._born(at, names) for _ in range(heirs)]
            announcements = self._announcements(at, children)
            for parent in parents:
                parent.end, parent.announcements = at, announcements
            ranges[place : place + width] = children

    def _born(self, start: int, parents: frozenset[str]) -> TruePartition:
        # The order of tokens has nothing to do with lineage.
        token = f"{self._rng.randrange(16**4):04x}-p{len(self.partitions)}"
        partition = TruePartition(token, start, parents)
        self.partitions[token] = partition
        return partition

    def _announcements(self, at: int, children: list[TruePartition]) -> tuple[ChildPartitionsRecord, ...]:
        groups: list[list[TruePartition]] = []
        for child in children:
            if groups and self._rng.random() < 0.4:
                groups[-1].append(child)
            else:
                groups.append([child])
        return tuple(
            ChildPartitionsRecord(at, f"{number:08d}", tuple(ChildPartition(c.token, c.parents) for c in group))
            for number, group in enumerate(groups)
        )

    def _transactions(self) -> list[tuple[str, DataChangeRecord]]:
        rng = self._rng
        out: list[tuple[str, DataChangeRecord]] = []
        for number in range(self._options.transactions):
            at = rng.choice(self.instants)
            touched = self._touched(at)
            places = [token for token in touched for _ in range(rng.randint(1, 2))]
            rng.shuffle(places)
            sequence = rng.randrange(20)
            name = f"{rng.randrange(16**6):06x}-t{number}"
            for place, token in enumerate(places):
                sequence += rng.randint(1, 3)
                record = DataChangeRecord(
                    commit_timestamp=at,
                    record_sequence=f"{sequence:08d}" if rng.random() < 0.7 else str(sequence),
                    server_transaction_id=name,
                    is_last_record_in_transaction_in_partition=token not in places[place + 1 :],
                    table_name="Singers",
                    column_types=(),
                    mods=(Mod("{}", "{}", "{}"),),
                    mod_type="INSERT",
                    value_capture_type="NEW_ROW",
                    number_of_records_in_transaction=len(places),
                    number_of_partitions_in_transaction=len(touched),
                    transaction_tag="",
                    is_system_transaction=False,
                    read_timestamp=at,
                    size=rng.randint(1, 60),
                )
                out.append((token, record))
        return out

    def _touched(self, at: int) -> list[str]:
        alive = [p.token for p in self.partitions.values() if p.covers(at)]
        return self._rng.sample(alive, self._rng.randint(1, min(3, len(alive))))


def identity(record: DataChangeRecord) -> tuple[str, str]:
    """Returns what identifies a record."""
    return (record.server_transaction_id, record.record_sequence)


def history(record: DataChangeRecord) -> tuple[int, str, int]:
    """Returns a record's place in the order of the history, without the code under test."""
    return (record.commit_timestamp, record.server_transaction_id, int(record.record_sequence))


class End:
    """The query ended with OK."""


class Query:
    """One query of one partition: it returns records up to Spanner's clock, and heartbeats at random.

    Both bounds are inclusive. Transactions with the same commit timestamp may be in another order each time.
    """

    def __init__(self, stream: ChangeStream, rng: Random, token: str, *, start: int, end: int | None, now: int) -> None:
        self.token = token
        self.sent_at = now
        self.end = end
        self.announced = 0
        self._rng = rng
        self._proved = start - 1
        self._last = start
        if end is not None and start > end:
            raise AssertionError(f"INVALID_ARGUMENT: {token!r} is queried from {start} to {end}")
        if token == INITIAL_TOKEN:
            self._covers: int | None = start
            self._data: list[DataChangeRecord] = []
            self._children = stream.initial(start)
            self._ends_in_children = True
            return
        partition = stream.partitions[token]
        if start < partition.start or (partition.end is not None and start > partition.end):
            raise AssertionError(
                f"OUT_OF_RANGE: {token} covers {partition.start} to {partition.end}, queried at {start}"
            )
        self._covers = partition.end
        most = stream.horizon if end is None else end
        data = [record for record in stream.by_token[token] if start <= record.commit_timestamp <= most]
        ties = {record.server_transaction_id: rng.random() for record in data}
        data.sort(key=lambda r: (r.commit_timestamp, ties[r.server_transaction_id], int(r.record_sequence)))
        self._data = data[::-1]
        self._children = list(partition.announcements)
        # Children that start just after the end may be announced, or not.
        self._ends_in_children = partition.end is not None and (
            end is None or partition.end <= end or (partition.end == end + 1 and now > end and rng.random() < 0.5)
        )

    def omit(self) -> None:
        """Makes it end at its bound with OK, without the records that end its partition."""
        self._children = []
        self._ends_in_children = False

    @property
    def may_end_for_nothing(self) -> bool:
        """True if Spanner may end it with OK now although the partition has not finished."""
        if self.token == INITIAL_TOKEN:
            return self.announced == 0
        return self.announced == 0 and (self.end is None or self.sent_at < self.end)

    def next(self, now: int) -> Record | End | None:
        """Returns the next record, the end, or None if there is nothing new."""
        beat = self._heartbeat(now)
        if beat is not None and self._rng.random() < 0.3:
            return beat
        if self._data:
            if self._data[-1].commit_timestamp > now:
                return beat
            record = self._data.pop()
            self._last = record.commit_timestamp
            return record
        if self._ends_in_children and self._covers is not None and self._covers <= now:
            if self.announced < len(self._children):
                self.announced += 1
                return self._children[self.announced - 1]
            return End()
        if not self._ends_in_children and self.end is not None and now >= self.end:
            return End()
        return beat

    def _heartbeat(self, now: int) -> HeartbeatRecord | None:
        if self.token == INITIAL_TOKEN or self.announced:
            return None
        most = now if self._covers is None else min(now, self._covers - 1)
        if self.end is not None:
            most = min(most, self.end)
        if self._data:
            most = min(most, self._data[-1].commit_timestamp - 1)
        least = max(self._proved + 1, self._last)
        if most < least:
            return None
        at = self._rng.choice((least, most, self._rng.randint(least, most)))
        self._proved = at
        return HeartbeatRecord(at)
