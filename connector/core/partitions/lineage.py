"""Which partitions there are, which may start, and how far all of them have been read. Pure: no clock, no I/O."""

from collections import Counter
from collections.abc import Iterable, Iterator

from connector.core.partitions.following import Follows, follow_all
from connector.core.partitions.least_progress import LeastProgress
from connector.core.partitions.partition import CutPartition, Event, Partition, State
from connector.core.partitions.waiting import WaitingPartitions


class Lineage:
    """The partitions discovered so far, by their parents: who may start, the watermark, and the cut.

    Args:
        cut: where to start: the initial partition at the user's start, or the cut of a checkpoint.
        watermark: every record at or before it is already delivered; for a new stream the start less one.
        end: the user's end timestamp, inclusive, or None.
        follows: decides which children are added, where others read other parts of the cut.
    """

    def __init__(
        self,
        cut: Iterable[CutPartition],
        *,
        watermark: int,
        end: int | None = None,
        follows: Follows = follow_all,
    ) -> None:
        self._end = end
        self._follows = follows
        self._floor = self._watermark = watermark
        self._partitions: dict[str, Partition] = {}
        self._waiting = WaitingPartitions()
        self._progress = LeastProgress(self._partitions)
        self._ended: dict[str, Partition] = {}
        self.unfinished = 0
        """How many partitions have not finished."""
        self.churn: Counter[str] = Counter()
        """How many splits, merges and moves have been crossed; in the mutable mode starts, ends and moves."""
        for at in cut:
            self._add(at.token, at.start_timestamp, frozenset(), is_late=at.is_late)

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
        """Whether everything up to the user's end has been read."""
        return self._end is not None and self._watermark >= self._end

    def laggards(self) -> list[Partition]:
        """The partitions that hold the watermark; a walk over all."""
        unfinished = (p for p in self if p.end is None and p.state is not State.FINISHED)
        return [partition for partition in unfinished if partition.progress <= self._watermark]

    def unfinished_parents(self, token: str) -> list[str]:
        """The discovered parents that a partition waits for."""
        known = [self._partitions[parent] for parent in self[token].parents if parent in self._partitions]
        return [parent.token for parent in known if parent.state is not State.FINISHED or parent.end is None]

    def ready(self) -> list[str]:
        """Schedules, and returns, the tokens whose parents have all finished and that start before the end."""
        ready = []
        for partition in self._waiting.candidates(self._watermark):
            if self._may_start(partition):
                self._move(partition, Event.PARENTS_FINISHED)
                ready.append(partition.token)
            else:
                self._waiting.wait_for_watermark(partition, self._watermark)
        return ready

    def _may_start(self, partition: Partition) -> bool:
        if self._end is not None and partition.start > self._end:
            return False  # kept for a later run with a later end, not queried
        if self.unfinished_parents(partition.token):
            return False
        return partition.parents <= self._partitions.keys() or self._watermark >= partition.start - 1

    def advance(self) -> int:
        """Moves the watermark as far as it may go, and returns it."""
        least = self._progress.find()
        if least is None and self._follows is not follow_all:
            least = self._end  # all have ended, and others follow their children
        if least is not None:
            self._watermark = max(self._watermark, least if self._end is None else min(least, self._end))
        return self._watermark

    def cut(self, watermark: int) -> list[CutPartition]:
        """The partitions from which a reader that has everything up to ``watermark`` resumes.

        These are the partitions alive at the first instant after it, without those that a parent in the cut announces
        again. Together with the watermark they are a complete checkpoint.
        """
        instant = watermark + 1
        alive = {p.token: p for p in self._partitions.values() if p.alive_at(instant)}
        chosen = sorted((p.start, p.token) for p in alive.values() if alive.keys().isdisjoint(p.parents))
        return [CutPartition(token, start) for start, token in chosen]

    def sealed(self, watermark: int) -> None:
        """Forgets the partitions that no cut at or after ``watermark`` can hold: all their records are delivered."""
        awaited = self._waiting.parents()
        gone = [
            token
            for token, p in self._ended.items()
            if p.end is not None and p.end <= watermark + 1 and token not in awaited
        ]
        for token in gone:
            del self._partitions[token], self._ended[token]

    def _discovered(self, announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
        """Adds a partition that ``announcer`` has announced, if it is this graph's to follow; returns whether it is."""
        if not self._follows(announcer, child, parents):
            return False
        self._add(child.token, child.start_timestamp, parents, is_late=child.is_late)
        return True

    def _announced_child(self, token: str, start: int) -> CutPartition:
        return CutPartition(token, start, is_late=start <= self._watermark)

    def _add(self, token: str, start: int, parents: frozenset[str], *, is_late: bool) -> None:
        # One that is announced too late is read from its start all the same: it may have ended by the watermark.
        progress = start - 1 if is_late else max(start - 1, self._floor)
        added = self._partitions[token] = Partition(token, start, progress, parents, is_late=is_late)
        self._waiting.add(added)
        self._progress.add(added)
        self.unfinished += 1

    def _move(self, partition: Partition, event: Event) -> None:
        before = partition.state
        partition.change_state(event)
        if before is State.CREATED:
            self._waiting.remove(partition)
        if partition.state is State.FINISHED:
            self.unfinished -= 1
            self._waiting.parent_finished(partition.token)
        if event is Event.ENDED_FOR_GOOD:
            self._ended[partition.token] = partition
