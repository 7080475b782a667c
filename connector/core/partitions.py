"""The graph of change stream partitions: lineage, progress, watermark and cut. Pure: no clock, no I/O.

A partition's life is in one table, :data:`TRANSITIONS`; what is not in it raises. The rules that the graph keeps:

- A child is scheduled once, after every one of its parents has finished. A parent never heard of counts as
  finished only when everything else alive has been read up to the child's start: until then it may merely not
  have been discovered, since partitions are read at different speeds.
- ``progress`` of a partition is the timestamp up to which, inclusive, all its records have been received.
  A data record at t proves t - 1 (another transaction may share t), a child partitions record that starts at s
  proves s - 1, and a heartbeat at t proves t - 1 too: it tells of t itself, but where t is the partition's end, as the
  emulator may have it, records at t are its children's, which are not known yet.
- The watermark is the least progress of all partitions that have not finished, waiting children included.
- A query that ends is not a finished partition: only child partitions seen before a clean end, or the user's
  end timestamp, finish it. Every other end is resumed from the progress. That the user's end was reached is believed
  when a second query says so: see :meth:`PartitionGraph.ended`.
- The cut at W is what a reader needs to begin again after W: see :meth:`PartitionGraph.cut`.

In the MUTABLE_KEY_RANGE mode a partition outlives those that it announces, and ends with a record of its own. Its
partitions have no parents here: none waits for another, and the cut at W is every one that is alive after W. A key that
moves between them needs no barrier, for an epoch closes only when all have passed W, and is in commit order.

All timestamps are integers of nanoseconds since the epoch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush, heapreplace

from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartitionsRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)

NOTHING = -(2**63)
"""Has been proved: a timestamp before every other."""


class State(Enum):
    """Where a partition is in its life."""

    CREATED = "created"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    FINISHED = "finished"


class Event(Enum):
    """What happens to a partition."""

    PARENTS_FINISHED = "parents finished"
    QUERY_SENT = "query sent"
    QUERY_BROKE = "query broke"
    ENDED_FOR_GOOD = "ended for good"
    REACHED_END = "reached the user's end"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.CREATED, Event.PARENTS_FINISHED): State.SCHEDULED,
    (State.SCHEDULED, Event.QUERY_SENT): State.RUNNING,
    (State.RUNNING, Event.QUERY_BROKE): State.SCHEDULED,
    (State.RUNNING, Event.ENDED_FOR_GOOD): State.FINISHED,
    (State.RUNNING, Event.REACHED_END): State.FINISHED,
    (State.SCHEDULED, Event.ENDED_FOR_GOOD): State.FINISHED,
    (State.SCHEDULED, Event.REACHED_END): State.FINISHED,
}
"""The whole life of a partition. A query that broke leaves it scheduled, to be sent again."""


class IllegalTransitionError(RuntimeError):
    """An event that the transition table does not have: a fault of this program, never of the stream."""


@dataclass(frozen=True, slots=True)
class CutPartition:
    """A partition of a cut: its token (empty for the initial query) and its start timestamp.

    One that ``is_late`` was announced after the watermark had passed its start, and is read from there all the same.
    """

    token: str
    start_timestamp: int
    is_late: bool = False


@dataclass(slots=True)
class Partition:
    """A discovered partition; ``end`` is the first instant that is no longer its own, once it has finished."""

    token: str
    start: int
    progress: int
    parents: frozenset[str] = frozenset()
    state: State = State.CREATED
    ends_at: int | None = None
    """Its children's start timestamp, or the instant after its end record's, when one has come."""
    children: set[str] = field(default_factory=set)
    ending: bool = False
    """Whether the query under way has returned a record that ends the partition."""
    proved: int = NOTHING
    """What the query under way has proved by itself: every record at or before it has been returned."""
    moved_at: int = 0
    """The commit timestamp of the last partition event that was counted."""
    complete: bool = False
    """Whether its end record has come, after which there is none."""
    is_late: bool = False
    """Whether it was announced after the watermark had passed its start."""
    doubted: tuple[int, int] | None = None
    """The bound that a clean end has proven, believed when the next says the same, and the progress that it left."""

    @property
    def end(self) -> int | None:
        """The first instant that is no longer its own, known once it has no more records."""
        return self.ends_at if self.complete or self.state is State.FINISHED else None

    def alive_at(self, instant: int) -> bool:
        """Whether it covers ``instant``: started by then, and not known to have ended by then."""
        return self.start <= instant and (self.end is None or self.end > instant)


class PartitionGraph:
    """The partitions discovered so far.

    Args:
        cut: where to begin: the initial partition at the user's start, or the cut of a checkpoint.
        watermark: every record at or before it is already delivered; for a new stream the start less one.
        end: the user's end timestamp, inclusive, or None.
    """

    def __init__(self, cut: Iterable[CutPartition], *, watermark: int, end: int | None = None) -> None:
        self._end = end
        self._floor = watermark
        self._partitions: dict[str, Partition] = {}
        self._created: dict[str, Partition] = {}
        self._may_be_ready: dict[str, None] = {}
        """Those that are new, or one of whose parents has finished since they were last looked at, in that order."""
        self._children_of: dict[str, list[str]] = {}
        """Which created partitions name a partition, known or not, as their parent."""
        self._waiting_for_watermark: list[tuple[int, str]] = []
        """A heap of the watermark at which a parent of a waiting child counts as finished if it was never heard of."""
        self._ended: dict[str, Partition] = {}
        self._least: list[tuple[int, str]] = []
        """A heap of every unfinished partition's progress, each as it was when it was last at the top."""
        self._alive = 0
        self._watermark = watermark
        self.discovered = 0
        self.churn: Counter[str] = Counter()
        """How many splits, merges and moves have been crossed; in the mutable mode starts, ends and moves."""
        for at in cut:
            self._add(at.token, at.start_timestamp, frozenset(), is_late=at.is_late)

    @classmethod
    def initial(cls, start: int, end: int | None = None) -> "PartitionGraph":
        """A graph of the initial query alone, which reads from ``start``, inclusive."""
        return cls([CutPartition(INITIAL_TOKEN, start)], watermark=start - 1, end=end)

    def __getitem__(self, token: str) -> Partition:
        return self._partitions[token]

    def __contains__(self, token: str) -> bool:
        return token in self._partitions

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def watermark(self) -> int:
        """Every record committed at or before it has been received, on every partition. It never goes back."""
        return self._watermark

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be read before the user's end."""
        return self._end is not None and self._watermark >= self._end

    def query_start(self, token: str) -> int:
        """Where the partition's next query begins, inclusive; what it returns at or before progress is known.

        The initial query begins at the start each time: asked from later it returns others, that begin later.
        """
        partition = self._partitions[token]
        if token == INITIAL_TOKEN:
            return partition.start
        return max(partition.start, partition.progress, partition.start if partition.is_late else self._floor)

    def is_laggard(self, token: str) -> bool:
        """Whether the partition holds the watermark, so that nothing can be sealed before it is read on."""
        return self._partitions[token].progress <= self._watermark

    def laggards(self) -> list[Partition]:
        """Those that hold the watermark, looked for among all."""
        unfinished = (p for p in self if p.end is None and p.state is not State.FINISHED)
        return [partition for partition in unfinished if partition.progress <= self._watermark]

    def unfinished_parents(self, token: str) -> list[str]:
        """The parents, of those that are known, that a partition waits for."""
        known = [self._partitions[parent] for parent in self[token].parents if parent in self._partitions]
        return [parent.token for parent in known if parent.state is not State.FINISHED or parent.end is None]

    def ready(self) -> list[str]:
        """Schedules, and returns, the tokens whose parents have all finished and that start before the end."""
        while self._waiting_for_watermark and self._waiting_for_watermark[0][0] <= self._watermark:
            self._may_be_ready[heappop(self._waiting_for_watermark)[1]] = None
        out = []
        for token in self._may_be_ready:
            partition = self._created.get(token)
            if partition is None:
                continue
            if self._may_start(partition):
                self._move(partition, Event.PARENTS_FINISHED)
                out.append(token)
            elif self._watermark < partition.start - 1:
                heappush(self._waiting_for_watermark, (partition.start - 1, token))
        self._may_be_ready.clear()
        return out

    def _may_start(self, partition: Partition) -> bool:
        if self._end is not None and partition.start > self._end:
            return False  # kept for a later run with a later end, not queried
        if self.unfinished_parents(partition.token):
            return False
        return partition.parents <= self._partitions.keys() or self._watermark >= partition.start - 1

    def sent(self, token: str) -> None:
        """The partition's query has been sent."""
        partition = self._partitions[token]
        self._move(partition, Event.QUERY_SENT)
        partition.ending = False
        partition.proved = NOTHING

    def broke(self, token: str) -> int:
        """The partition's query ended without finishing it; returns the progress it is resumed from.

        What was received beyond the progress comes again and must be discarded. A query that broke among several
        child partitions records returns them all again: progress is before their start.
        """
        partition = self._partitions[token]
        self._move(partition, Event.QUERY_BROKE)
        return partition.progress

    def proved(self, token: str, timestamp: int) -> None:
        """Every record of the partition at or before ``timestamp`` has been received.

        The initial query proves nothing until it has finished: what it returns may begin at different instants.
        """
        partition = self._partitions[token]
        if token != INITIAL_TOKEN:
            partition.progress = max(partition.progress, timestamp)
            partition.proved = max(partition.proved, timestamp)

    def announced(self, token: str, record: ChildPartitionsRecord) -> None:
        """The partition returned a child partitions record. A child that is known already is the same one."""
        parent = self._partitions[token]
        self._ends(parent, record.start_timestamp)
        for child in record.children:
            parent.children.add(child.token)
            if child.token not in self._partitions:
                # The initial query is not named among the parents of those it returns, yet they follow it.
                self._discovered(child.token, record.start_timestamp, child.parents | {token})
        self.proved(token, record.start_timestamp - 1)

    def started(self, token: str, record: PartitionStartRecord) -> None:
        """The partition returned a partition start record; only those that the initial query returns follow it.

        What an earlier query has returned comes again at a query's start. What lies behind what this query itself has
        proved is late instead (:mod:`connector.core.late_records`), and what it names may be new.
        """
        announcer = self._partitions[token]
        parents: frozenset[str] = frozenset()
        if token == INITIAL_TOKEN:
            self._ends(announcer, record.start_timestamp)
            parents = frozenset({token})
        elif announcer.proved < record.start_timestamp <= announcer.progress:
            return  # it comes again: what it names is known, or has ended and is forgotten
        for started in record.tokens:
            if started not in self._partitions:
                self._discovered(started, record.start_timestamp, parents)
                self.churn["starts"] += token != INITIAL_TOKEN
        self.proved(token, record.start_timestamp - 1)

    def _ends(self, partition: Partition, instant: int) -> None:
        partition.ends_at = max(partition.ends_at or instant, instant)
        partition.ending = True

    def moved(self, token: str, record: PartitionEventRecord) -> None:
        """The partition returned a partition event record."""
        partition = self._partitions[token]
        if record.commit_timestamp > partition.moved_at:
            partition.moved_at = record.commit_timestamp
            self.churn["moves"] += record.moves_in
        self.proved(token, record.commit_timestamp - 1)

    def terminated(self, token: str, record: PartitionEndRecord) -> None:
        """The partition returned its partition end record, after which nothing comes."""
        partition = self._partitions[token]
        partition.ends_at = record.end_timestamp + 1
        partition.ending = partition.complete = True
        self.proved(token, record.end_timestamp)

    def ended(self, token: str, *, proven: int | None) -> bool:
        """The partition's query ended with OK; returns whether the partition has finished by it.

        Children that only an earlier query returned, before it broke, finish nothing: siblings may be missing.

        An end bound is believed once two queries in a row have proven it, the second from the progress that the first
        has left, and without moving it: a query over the past may end with OK and leave out the record that ends its
        partition, and what its children hold up to the bound would be lost. Where the second brings anything that is
        new, that counts, and the next is the first again. It costs one more query of a partition, from its last record.

        Args:
            token: the partition.
            proven: the query's end bound, if it was sent after Spanner's clock had passed it: everything up to it,
                inclusive, should have been returned. A bound before the user's end finishes nothing.
        """
        partition = self._partitions[token]
        if partition.ending:
            self._move(partition, Event.ENDED_FOR_GOOD)
            self._count_churn(partition)
            return True
        if partition.ends_at is not None or token == INITIAL_TOKEN:
            return False  # an initial query that returned nothing finishes nothing, wherever it ended
        if proven is not None:
            if partition.doubted is not None and partition.doubted[1] == partition.progress:
                self.proved(token, min(proven, partition.doubted[0]))
            partition.doubted = (proven, partition.progress)
        if self._end is not None and partition.progress >= self._end:
            self._move(partition, Event.REACHED_END)
            return True
        return False

    def nothing_left(self, token: str) -> bool:
        """Finishes a scheduled partition that has no more records, or none before the user's end."""
        partition = self._partitions[token]
        if partition.complete:
            self._move(partition, Event.ENDED_FOR_GOOD)
            self._count_churn(partition)
        elif self._end is not None and partition.progress >= self._end and partition.ends_at is None:
            self._move(partition, Event.REACHED_END)
        return partition.state is State.FINISHED

    def advance(self) -> int:
        """Moves the watermark to where it may be now, and returns it."""
        while self._least:
            progress, token = self._least[0]
            partition = self._partitions.get(token)
            if partition is None or partition.end is not None:
                heappop(self._least)
            elif partition.progress > progress:
                heapreplace(self._least, (partition.progress, token))
            else:
                break
        least = self._least[0][0] if self._least else self._watermark
        if self._end is not None:
            least = min(least, self._end)
        self._watermark = max(self._watermark, least)
        return self._watermark

    def cut(self, watermark: int) -> list[CutPartition]:
        """The partitions from which a reader that has everything up to ``watermark`` goes on.

        These are the partitions alive at the first instant after it, without those that a parent in the cut
        announces again. Together with the watermark they are a whole checkpoint.
        """
        instant = watermark + 1
        alive = {p.token: p for p in self._partitions.values() if p.alive_at(instant)}
        chosen = sorted((p.start, p.token) for p in alive.values() if alive.keys().isdisjoint(p.parents))
        return [CutPartition(token, start) for start, token in chosen]

    def sealed(self, watermark: int) -> None:
        """Forgets the partitions that no cut at or after ``watermark`` can hold; all before it is delivered."""
        waiting = {parent for p in self._created.values() for parent in p.parents}
        gone = [
            token
            for token, p in self._ended.items()
            if p.end is not None and p.end <= watermark + 1 and token not in waiting
        ]
        for token in gone:
            del self._partitions[token], self._ended[token]

    def alive(self) -> int:
        """How many partitions have not finished."""
        return self._alive

    def _count_churn(self, parent: Partition) -> None:
        if parent.token == INITIAL_TOKEN:
            return
        if not parent.children:
            self.churn["ends"] += 1
            return
        merged = [c for c in parent.children if c in self._partitions and len(self._partitions[c].parents) > 1]
        for child in merged:
            known = [self._partitions[p] for p in self._partitions[child].parents if p in self._partitions]
            if all(p.state is State.FINISHED for p in known):
                self.churn["merges"] += 1
        if len(parent.children) > 1:
            self.churn["splits"] += 1
        elif not merged:
            self.churn["moves"] += 1

    def _discovered(self, token: str, start: int, parents: frozenset[str]) -> None:
        self._add(token, start, parents, is_late=start <= self._watermark)

    def _add(self, token: str, start: int, parents: frozenset[str], *, is_late: bool) -> None:
        # One that is announced too late is read from its start all the same: it may have ended by the watermark.
        progress = start - 1 if is_late else max(start - 1, self._floor)
        added = Partition(token, start, progress, parents, is_late=is_late)
        self._partitions[token] = self._created[token] = added
        self._may_be_ready[token] = None
        for parent in parents:
            self._children_of.setdefault(parent, []).append(token)
        heappush(self._least, (added.progress, token))
        self._alive += 1
        self.discovered += 1

    def _move(self, partition: Partition, event: Event) -> None:
        after = TRANSITIONS.get((partition.state, event))
        if after is None:
            raise IllegalTransitionError(f"a {partition.state.value} partition cannot have {event.value}")
        if partition.state is State.CREATED:
            del self._created[partition.token]
            self._waits_no_longer(partition)
        partition.state = after
        if after is State.FINISHED:
            self._alive -= 1
            self._may_be_ready.update(dict.fromkeys(self._children_of.pop(partition.token, ())))
        if event is Event.ENDED_FOR_GOOD:
            self._ended[partition.token] = partition

    def _waits_no_longer(self, partition: Partition) -> None:
        for parent in partition.parents:
            waiting = self._children_of.get(parent, [])
            if partition.token in waiting:
                waiting.remove(partition.token)
            if not waiting:
                self._children_of.pop(parent, None)
