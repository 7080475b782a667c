"""Reads the model through the pure core alone, in the scheduler's role, and holds every step against the truth.

What is random is drawn from the seed: which query returns next, how fast each is, when one breaks or ends for
nothing, when the watermark moves, when an epoch is sealed, and when the process dies with all that it remembers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from connector.core.changes import Changes
from connector.core.epoch import Epoch, EpochBuffer, incomplete_transactions, minute_end
from connector.core.late_records import in_time, passed_before
from connector.core.partitions import CutPartition, PartitionGraph, State
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from connector.core.timestamps import MINUTE, SECOND
from tests.property.reading.change_stream import ChangeStream, End, Query, Shape, identity
from tests.property.reading.mutable_stream import WINDOW, MutableQuery, MutableStream

GraphType = Callable[..., PartitionGraph]
BufferType = Callable[..., EpochBuffer]


@dataclass(frozen=True, slots=True)
class Roughness:
    """How often things go wrong, each from 0 to 1, and how many steps they may."""

    breaks: float = 0.04
    ends_for_nothing: float = 0.03
    crashes: float = 0.005
    omits: float = 0.3
    """How often a partition's query over the past leaves out what the partition ends with, once."""
    steps: int = 400


@dataclass(frozen=True, slots=True)
class Sealed:
    """What outlives a crash."""

    watermark: int
    cut: tuple[CutPartition, ...]


def check(condition: object, message: str) -> None:
    """States an invariant."""
    if not condition:
        raise AssertionError(message)


class Reading:
    """Reads a change stream from its start to its horizon, with crashes, in runs with ever later ends."""

    graph_type: GraphType = PartitionGraph
    buffer_type: BufferType = EpochBuffer
    stream_type: type[ChangeStream] = ChangeStream
    query_type: type[Query] = Query

    def __init__(self, seed: int, shape: Shape, roughness: Roughness, ends: int) -> None:
        self.rng = Random(seed)
        self.stream = self.stream_type(self.rng, shape)
        self.roughness = roughness
        self.now = self.stream.start
        self.delivered: list[DataChangeRecord] = []
        self.told: Counter[str] = Counter()
        """What happened, so that a test can show that it did."""
        self.max_bytes = self.rng.choice((1, 60, 200, 10**9))
        self.together = 5 if seed % 7 == 6 else 1
        """How many data change records may come at once; if several do, they are columns."""
        start = self.stream.start
        # Ends like most to be commit timestamps, and the last instant before children begin.
        edges = [*self.stream.instants, *(p.start - 1 for p in self.stream.partitions.values())]
        later = [at for at in edges if start <= at <= self.stream.horizon] or [start]
        self._ends: list[int | None] = [*sorted(self.rng.choice(later) for _ in range(ends)), None]
        self.sealed = Sealed(start - 1, (CutPartition(INITIAL_TOKEN, start),))
        self._steps = roughness.steps // len(self._ends)
        self._omitted: set[str] = set()

    # What a mutant changes.

    def data_proves(self, record: DataChangeRecord) -> int:
        return record.commit_timestamp - 1

    def forgets_at(self, epoch: Epoch) -> int:
        return epoch.high

    def proves_end(self, query: Query) -> bool:
        return query.end is not None and query.sent_at >= query.end

    def bound(self, start: int) -> int | None:
        """Where a query that begins at ``start`` ends."""
        return self.end

    def run(self) -> None:
        """Reads all of it, run after run.

        Raises:
            AssertionError: an invariant does not hold.
        """
        for end in self._ends:
            self.end = end
            self._begin()
            self._rough()
            self._smooth()
        check(self.delivered == self.stream.expected, "something was lost, doubled or out of order")

    # One process.

    def _begin(self) -> None:
        self.graph = type(self).graph_type(self.sealed.cut, watermark=self.sealed.watermark, end=self.end)
        self.buffer = type(self).buffer_type(self.sealed.watermark, max_bytes=self.max_bytes)
        self.queries: dict[str, Query] = {}
        self.speeds: dict[str, float] = {}
        self.waiting: list[str] = []
        self.finished: set[str] = set()
        self.held: dict[str, list[DataChangeRecord]] = {}
        self.began_at = self.sealed.watermark
        self.watermark = self.sealed.watermark
        self._passed = sum(1 for r in self.stream.expected if r.commit_timestamp <= self.watermark)
        check(self.graph.watermark == self.watermark, "the watermark after a restart is another")

    def _rough(self) -> None:
        for _ in range(self._steps):
            if self.done:
                return
            chance = self.rng.random()
            if chance < self.roughness.crashes:
                self.told["crashes"] += 1
                self._begin()
            elif chance < 0.1:
                self._tick()
            elif chance < 0.2:
                self._advance()
            elif chance < 0.25:
                self._seal()
            elif chance < 0.4:
                self._schedule()
            elif self.queries:
                self._disturb()

    def _smooth(self) -> None:
        """Everything is readable now, so that the run ends in a bounded number of rounds."""
        self.now = self.stream.horizon
        for _ in range(40 * (len(self.stream.partitions) + 2)):
            for token in list(self.queries):
                for _ in range(4):
                    if token in self.queries:
                        self._receive(self.queries[token])
            self._advance()
            for _ in range(4):
                self._seal()
            self._schedule(all_of_them=True)
            if self.done:
                check(self.graph.finished == (self.end is not None), "it does not know that it has finished")
                return
        states = {p.token: (p.state.value, p.start, p.progress) for p in self.graph}
        raise AssertionError(f"it stands still at {self.watermark}, sealed {self.sealed.watermark}: {states}")

    @property
    def done(self) -> bool:
        return self.sealed.watermark >= (self.stream.horizon if self.end is None else self.end)

    def _tick(self) -> None:
        later = [at for at in self.stream.instants if at > self.now]
        if later:
            self.now = later[0] - self.rng.choice((0, 0, 1))

    def _disturb(self) -> None:
        tokens = list(self.queries)
        query = self.queries[self.rng.choices(tokens, [self.speeds[token] for token in tokens])[0]]
        chance = self.rng.random()
        if chance < self.roughness.breaks:
            self.told["breaks among announcements" if query.announced else "breaks"] += 1
            self._broke(query.token)
        elif chance < self.roughness.breaks + self.roughness.ends_for_nothing:
            if query.may_end_for_nothing:
                self.told["clean ends without children"] += 1
                self._ended(query)
        else:
            for _ in range(self.rng.choice((1, 1, 3))):
                if self.queries.get(query.token) is query:
                    self._receive(query)

    # The scheduler's role.

    def _schedule(self, *, all_of_them: bool = False) -> None:
        self._advance()
        for token in self.graph.ready():
            check(token not in self.queries, "a partition is scheduled twice")
            check(self._may_come_again(token), "a partition that has finished is scheduled again")
            self._check_parents(token)
            self.speeds[token] = self.rng.choice((0.01, 0.1, 1.0, 1.0))
            self.waiting.append(token)
        some = [token for token in self.waiting if all_of_them or self.rng.random() < 0.6]
        for token in some:
            self.waiting.remove(token)
            if self.graph.nothing_left(token):
                self.finished.add(token)
                continue
            start = self.graph.query_start(token)
            self._check_query_start(token, start)
            bound = self.bound(start)
            query = self.query_type(self.stream, self.rng, token, start=start, end=bound, now=self.now)
            self.queries[token] = query
            self.graph.sent(token)
            self._omit(query)

    def _omit(self, query: Query) -> None:
        over = query.end is not None and query.sent_at >= query.end and query.token != INITIAL_TOKEN
        if over and query.token not in self._omitted and self.rng.random() < self.roughness.omits:
            self.told["omissions"] += 1
            self._omitted.add(query.token)
            query.omit()

    def _receive(self, query: Query) -> None:
        token, item = query.token, query.next(self.now)
        block: list[DataChangeRecord] = []
        while isinstance(item, DataChangeRecord):
            block.append(item)
            item = query.next(self.now) if len(block) < self.together else None
        if block:
            self._check_in_time(token, block)
            self._add(token, block)
            self.graph.proved(token, self.data_proves(block[-1]))
        if item is not None and not isinstance(item, End):
            check(passed_before(self.graph, token, item) is None, "an announcement is taken for late")
        match item:
            case HeartbeatRecord() as record:
                self.graph.proved(token, record.timestamp)
            case ChildPartitionsRecord() as record:
                self.graph.announced(token, record)
            case PartitionStartRecord() as record:
                self.graph.started(token, record)
            case PartitionEventRecord() as record:
                self.graph.moved(token, record)
            case PartitionEndRecord() as record:
                self.graph.terminated(token, record)
            case End():
                self._ended(query)
            case None:
                pass

    def _check_in_time(self, token: str, block: list[DataChangeRecord]) -> None:
        if self.together == 1:
            late = any(passed_before(self.graph, token, one) is not None for one in block)
        else:
            late = len(in_time(Changes.of(block), self.graph[token].proved)[1]) > 0
        check(not late, "a data change record is taken for late")

    def _add(self, token: str, block: list[DataChangeRecord]) -> None:
        held = self.held.setdefault(token, [])
        known = [one for one in block if one.commit_timestamp <= self.sealed.watermark or one in held]
        taken = self._taken(token, block)
        for one in block:
            told = f"{one.server_transaction_id} at {one.commit_timestamp}"
            check(one in taken or one in known, f"{told} is dropped unseen")
            check(not (one in taken and one in known), f"{told} is held twice")
        held += taken

    def _taken(self, token: str, block: list[DataChangeRecord]) -> list[DataChangeRecord]:
        """Gives the buffer records, those that come together as columns, and says which of them it holds."""
        progress = self.graph[token].progress
        if self.together == 1:
            return [one for one in block if self.buffer.add(token, one, progress=progress)]
        taken, late = self.buffer.add_all(token, Changes.of(block), progress=progress)
        check(not len(late), "what was not known came too late")
        self.told["columns"] += len(taken)
        return [*taken.records()]

    def _ended(self, query: Query) -> None:
        token = query.token
        if self.graph.ended(token, proven=query.end if self.proves_end(query) else None):
            del self.queries[token]
            self.finished.add(token)
        else:
            self._broke(token)

    def _broke(self, token: str) -> None:
        del self.queries[token]
        progress = self.graph.broke(token)
        check(progress >= self.watermark or self.graph[token].complete, "a partition falls back behind the watermark")
        self.buffer.discard(token, beyond=progress)
        self.held[token] = [r for r in self.held.get(token, []) if r.commit_timestamp <= progress]
        self.waiting.append(token)

    def _advance(self) -> None:
        watermark = self.graph.advance()
        check(watermark >= self.watermark, "the watermark goes back")
        check(self.end is None or watermark <= max(self.end, self.began_at), "the watermark passes the user's end")
        expected = self.stream.expected
        while self._passed < len(expected) and expected[self._passed].commit_timestamp <= watermark:
            record = expected[self._passed]
            owner = self.stream.owner[identity(record)]
            check(
                record in self.held.get(owner, []),
                f"the watermark {watermark} passes {record.commit_timestamp} of {owner}, which has not come",
            )
            self._passed += 1
        self.watermark = watermark
        self.buffer.advance(watermark)
        check(self.graph.watermark == watermark, "the watermark is another when it is asked again")

    def _seal(self) -> None:
        epoch = self.buffer.take()
        if epoch is None:
            return
        check(epoch.low == self.sealed.watermark < epoch.high <= self.watermark, "epochs leave a gap, or overlap")
        check(minute_end(epoch.low + 1) >= epoch.high, "an epoch spans two minutes")
        instants = {record.commit_timestamp for record in epoch.records}
        check(epoch.bytes == sum(record.size for record in epoch.records), "an epoch's size is another")
        check(epoch.bytes <= self.max_bytes or len(instants) == 1, "an epoch is too large")
        first = len(self.delivered)
        due = [r for r in self.stream.expected[first:] if r.commit_timestamp <= epoch.high]
        check(list(epoch.records) == due, "an epoch is not the history from its low to its high")
        check(not incomplete_transactions(epoch.changes), "an epoch splits a transaction")
        cut = self.graph.cut(epoch.high)
        self._check_cut(cut, epoch.high)
        self.delivered += epoch.records
        self.sealed = Sealed(epoch.high, tuple(cut))
        self.told["epochs"] += 1
        self.graph.sealed(self.forgets_at(epoch))
        check(self.buffer.bytes >= self.buffer.ready_bytes >= 0, "bytes are counted wrongly")

    # Against the truth.

    def _check_parents(self, token: str) -> None:
        if token == INITIAL_TOKEN:
            return
        for name in self.stream.partitions[token].parents:
            parent = self.stream.partitions[name]
            assert parent.end is not None
            if parent.start == parent.end or parent.end <= self.stream.first:
                continue  # it has no records, or none that are read
            done = name in self.finished or parent.end <= self.began_at + 1
            check(done, f"{token} is scheduled before its parent {name} has finished")

    def _may_come_again(self, token: str) -> bool:
        """A parent that lives for no time may be found after its child was read and forgotten; all is dropped then."""
        if token not in self.finished:
            return True
        parents = [self.stream.partitions[name] for name in self.stream.partitions[token].parents]
        return any(parent.start == parent.end for parent in parents)

    def _check_query_start(self, token: str, start: int) -> None:
        if token == INITIAL_TOKEN:
            check(start >= self.stream.start, "the initial query begins before the start")
            return
        held = self.held.get(token, [])
        for record in self.stream.by_token[token]:
            if self.sealed.watermark < record.commit_timestamp < start and record.commit_timestamp >= self.stream.first:
                check(record in held, f"{token} is asked after a record that has not come")

    def _check_cut(self, cut: list[CutPartition], watermark: int) -> None:
        tokens = {at.token for at in cut}
        check(len(tokens) == len(cut) > 0, "a cut is empty, or names a partition twice")
        if INITIAL_TOKEN in tokens:
            check(len(tokens) == 1, "the initial query and what it announces are both in the cut")
        else:
            self._check_cut_tokens(tokens, watermark)

    def _check_cut_tokens(self, tokens: set[str], watermark: int) -> None:
        for token in tokens:
            partition = self.stream.partitions[token]
            check(not tokens & partition.parents, "a partition and its parent are both in the cut")
            check(partition.start <= watermark + 1, "a cut holds a partition of the future")
            check(partition.end is None or partition.end > watermark, "a cut holds a partition of the past")
        for partition in self.stream.partitions.values():
            if partition.covers(watermark + 1):
                check(self._reached(partition.token, tokens), f"{partition.token} is not reached from the cut")

    def _reached(self, token: str, tokens: set[str]) -> bool:
        if token in tokens:
            return True
        return any(self._reached(parent, tokens) for parent in self.stream.partitions[token].parents)

    def check_forgotten(self) -> None:
        """What no cut can hold any more is not kept beyond the next seal."""
        self.graph.sealed(self.sealed.watermark)
        for partition in self.graph:
            over = partition.end is not None and partition.end <= self.sealed.watermark + 1
            if over and partition.state is State.FINISHED:
                heirs = [self.graph[child] for child in partition.children if child in self.graph]
                check(any(heir.state is State.CREATED for heir in heirs), f"{partition.token} is kept for ever")


class MutableReading(Reading):
    """Reads a change stream of the MUTABLE_KEY_RANGE mode, in windows."""

    stream_type = MutableStream
    query_type = MutableQuery

    def bound(self, start: int) -> int | None:
        window = max(self.now, start) + self.rng.choice((0, 1, SECOND, MINUTE, WINDOW, WINDOW))
        return window if self.end is None else min(window, self.end)

    def _check_parents(self, token: str) -> None:
        """None waits for another but those that the initial query returns, for that."""

    def _may_come_again(self, token: str) -> bool:
        return token not in self.finished

    def _check_cut_tokens(self, tokens: set[str], watermark: int) -> None:
        for token in tokens:
            check(self.stream.partitions[token].covers(watermark + 1), "a cut holds a partition that is not alive")

        def reached(token: str) -> bool:
            """One that starts only at the instant is announced again, by one that is in the cut or such a one."""
            partition = self.stream.partitions[token]
            again = partition.start == watermark + 1
            return token in tokens or (again and any(reached(announcer) for announcer in partition.parents))

        for partition in self.stream.partitions.values():
            if partition.covers(watermark + 1):
                check(reached(partition.token), f"{partition.token} is not reached from the cut")
