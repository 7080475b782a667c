"""The model of a change stream in the MUTABLE_KEY_RANGE mode.

Partitions are announced by others that stay alive, keys move between them, and an end record ends them. Every query
has an end, at most half an hour after Spanner's clock and its start.
"""

from collections import defaultdict
from random import Random

from connector.core.records import (
    INITIAL_TOKEN,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.timestamps import MINUTE
from tests.property.reading.change_stream import ChangeStream, End, Query, TruePartition

WINDOW = 30 * MINUTE
Item = DataChangeRecord | PartitionStartRecord | PartitionEndRecord | PartitionEventRecord


def instant_of(item: Item) -> int:
    match item:
        case PartitionStartRecord():
            return item.start_timestamp
        case PartitionEndRecord():
            return item.end_timestamp
        case _:
            return item.commit_timestamp


class MutableStream(ChangeStream):
    """The history; a partition's ``parents`` are those that announce it, its ``end`` the instant after its end record.

    A key's changes are on the partition that owns it: up to a move's instant on the source, afterwards on the
    destination. A partition that starts at that instant may own the key at once.
    """

    keys = 12

    def initial_starts(self, at: int) -> list[PartitionStartRecord]:
        at += self.first - self.start
        tokens = [p.token for p in self.partitions.values() if p.covers(at)]
        half = self._rng.randint(0, len(tokens))
        groups = [group for group in (tokens[:half], tokens[half:]) if group]
        return [PartitionStartRecord(at, tuple(group)) for group in groups]

    def _churn(self) -> None:
        rng, first = self._rng, self.instants[0]
        self.items: dict[str, list[Item]] = defaultdict(list)
        self._owners: list[list[tuple[int, str]]] = []
        """Each key's owners: the instant from which on a partition owns it, and the partition's token."""
        living = [self._born(first, frozenset()) for _ in range(self._options.first_partitions)]
        self._owners = [[(first, rng.choice(living).token)] for _ in range(self.keys)]
        for at in sorted(rng.choice(self.instants[1:]) for _ in range(self._options.churn)):
            what = rng.choice(("start", "start", "move", "move", "end"))
            if what == "start":
                living += self._start(at, living)
            elif what == "move":
                self._move(at, rng.choice(living), rng.choice(living))
            elif len(living) > 1:
                ending = rng.choice(living)
                if self._options.empty_partitions or ending.start < at:
                    living.remove(ending)
                    self._end(at, ending, rng.choice(living))

    def _start(self, at: int, living: list[TruePartition]) -> list[TruePartition]:
        announcers = self._rng.sample(living, min(len(living), self._rng.choice((1, 1, 2))))
        names = frozenset(p.token for p in announcers)
        born = [self._born(at, names) for _ in range(self._rng.choice((1, 1, 2)))]
        for announcer in announcers:
            self.items[announcer.token].append(PartitionStartRecord(at, tuple(p.token for p in born)))
        for partition in born:
            self._move(at, announcers[0], partition)
        return born

    def _move(self, at: int, source: TruePartition, destination: TruePartition) -> None:
        mine = [key for key, owners in enumerate(self._owners) if owners[-1][1] == source.token]
        if source is destination or not mine:
            return
        at_once = destination.start == at and self._rng.random() < 0.5
        for key in self._rng.sample(mine, self._rng.randint(1, len(mine))):
            self._owners[key].append((at if at_once else at + 1, destination.token))
        self.items[source.token].append(PartitionEventRecord(at, 0))
        self.items[destination.token].append(PartitionEventRecord(at, 1))

    def _end(self, at: int, ending: TruePartition, heir: TruePartition) -> None:
        for owners in self._owners:
            if owners[-1][1] == ending.token:
                owners.append((at + 1, heir.token))
        self.items[ending.token].append(PartitionEventRecord(at, 0))
        self.items[heir.token].append(PartitionEventRecord(at, 1))
        ending.end = at + 1

    def _touched(self, at: int) -> list[str]:
        keys = self._rng.sample(range(self.keys), self._rng.randint(1, 3))
        return list(dict.fromkeys(self._owner(key, at) for key in keys))

    def _owner(self, key: int, at: int) -> str:
        return [token for since, token in self._owners[key] if since <= at][-1]

    def all_items(self, token: str) -> list[Item]:
        """Returns the partition's records in the order of their instants; the end record is the last."""
        items = [*self.by_token[token], *self.items[token]]
        items.sort(key=instant_of)
        end = self.partitions[token].end
        return items if end is None else [*items, PartitionEndRecord(end - 1)]


class MutableQuery(Query):
    """One query of one partition; its end is a window's or the user's."""

    def __init__(self, stream: ChangeStream, rng: Random, token: str, *, start: int, end: int | None, now: int) -> None:
        assert isinstance(stream, MutableStream)
        assert end is not None, "INVALID_ARGUMENT: a query without an end"
        assert start <= end <= max(start, now) + WINDOW, f"INVALID_ARGUMENT: {token!r} is queried from {start} to {end}"
        self.token, self.sent_at, self.end, self._rng = token, now, end, rng
        self.announced = 0
        self._proved, self._last = start - 1, start
        if token == INITIAL_TOKEN:
            self._covers: int | None = start
            items: list[Item] = list(stream.initial_starts(start))
        else:
            partition = stream.partitions[token]
            self._covers = partition.end
            span = f"{token} covers {partition.start} to {partition.end}, queried at {start}"
            inside = partition.start <= start and (partition.end is None or start < partition.end)
            assert inside, f"OUT_OF_RANGE: {span}"
            items = [item for item in stream.all_items(token) if start <= instant_of(item) <= end]
        ties = {id(item): (isinstance(item, PartitionEndRecord), rng.random()) for item in items}
        items.sort(key=lambda item: (instant_of(item), ties[id(item)]))
        self._items = items[::-1]

    def omit(self) -> None:
        self._items = [item for item in self._items if not isinstance(item, PartitionEndRecord)]

    def next(self, now: int) -> Record | End | None:
        beat = self._heartbeat(now)
        if beat is not None and self._rng.random() < 0.3:
            return beat
        if self._items:
            # The initial query returns partitions that start a little later at once, as in Google's example.
            if instant_of(self._items[-1]) > now and self.token != INITIAL_TOKEN:
                return beat
            item = self._items.pop()
            self._last = instant_of(item)
            if self.token == INITIAL_TOKEN or isinstance(item, PartitionEndRecord):
                self.announced += 1
            return item
        assert self.end is not None
        return End() if self.announced or now >= self.end else beat

    def _heartbeat(self, now: int) -> HeartbeatRecord | None:
        if self.token == INITIAL_TOKEN or self.announced:
            return None
        assert self.end is not None
        most = min(now, self.end)
        if self._covers is not None:
            most = min(most, self._covers - 2)  # before its end record
        if self._items:
            most = min(most, instant_of(self._items[-1]) - 1)
        least = max(self._proved + 1, self._last)
        if most < least:
            return None
        self._proved = self._rng.choice((least, most, self._rng.randint(least, most)))
        return HeartbeatRecord(self._proved)
