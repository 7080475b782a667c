"""The graph of a change stream's partitions. Pure: no clock, no I/O.

The rules that the graph keeps:

- A child is scheduled once, after every one of its parents has finished. A parent that was never discovered counts as
  finished only when every other partition has been read up to the child's start: until then it may merely not have been
  discovered yet, since partitions are read at different speeds.
- ``progress`` of a partition is the timestamp up to which, inclusive, all its records have been received. A data change
  record at t proves t - 1, since another transaction may share t. A child partitions record that starts at s proves
  s - 1. A heartbeat at t proves t - 1 too: where t is the partition's end, as the emulator may have it, records at t
  belong to its children, which are not known yet.
- The watermark is the least progress of all partitions that have not finished, including children that wait.
- The end of a query is not the end of its partition. Only child partitions records before a clean end, or the user's
  end timestamp, finish a partition. After any other end it is queried again from its progress. That a partition has
  been read up to the user's end is believed when a second query confirms it: :meth:`Partition.confirm_bound`.
- The cut at W is what a reader needs to resume after W: see :meth:`PartitionGraph.cut`.

In the MUTABLE_KEY_RANGE mode a partition outlives those that it announces, and ends with a record of its own. Its
partitions have no parents here: none waits for another, and the cut at W is every partition alive after W. A key that
moves between them needs no barrier, because an epoch closes only when all partitions have passed W, and is sorted by
commit timestamp.

A token here is the id of a partition: :func:`connector.core.records.partition_id`. A change stream may have several
read functions, one for each placement, each with tokens of its own. What a partition announces belongs to its function.
Functions appear while the stream is read, and one that did not exist at a timestamp has only records after it. So the
watermark does not pass the timestamp as of which they were listed last: :mod:`connector.core.partitions.functions`.

All timestamps are integers, Unix nanoseconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from connector.core.partitions.churn import churn_of
from connector.core.partitions.following import Follows, follow_all
from connector.core.partitions.functions import ReadFunctions
from connector.core.partitions.indexes import LeastProgress, WaitingPartitions
from connector.core.partitions.partition import NOTHING, CutPartition, Partition, PartitionChange, PartitionState
from connector.core.records import (
    ChildPartitionsRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    beside,
    is_initial,
)


class PartitionGraph:
    """The partitions discovered so far, and what their queries have returned: who may start, the watermark, the cut.

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
        """The number of partitions that have not finished."""
        self.functions = ReadFunctions(self._partitions, self._add_initial, self._finish)
        """The read functions, if the change stream has several."""
        self.churn: Counter[str] = Counter()
        """The number of splits, merges and moves crossed; in the mutable mode starts, ends and moves."""
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
        """True if everything up to the user's end has been read."""
        return self._end is not None and self._watermark >= self._end

    def laggards(self) -> list[Partition]:
        """The partitions that hold the watermark; a walk over all."""
        unfinished = (p for p in self if p.end is None and p.state is not PartitionState.FINISHED)
        return [partition for partition in unfinished if partition.progress <= self._watermark]

    def unfinished_parents(self, token: str) -> list[str]:
        """The discovered parents that a partition waits for."""
        known = [self._partitions[parent] for parent in self[token].parents if parent in self._partitions]
        return [parent.token for parent in known if parent.state is not PartitionState.FINISHED or parent.end is None]

    def ready(self) -> list[str]:
        """Schedules, and returns, the tokens whose parents have all finished and that start before the end."""
        ready = []
        for partition in self._waiting.candidates(self._watermark):
            if self._may_start(partition):
                self._move(partition, PartitionChange.PARENTS_FINISHED)
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
            bounds = [bound for bound in (self._end, self.functions.listed_at) if bound is not None]
            self._watermark = max(self._watermark, min([least, *bounds]))
        return self._watermark

    def cut(self, watermark: int) -> list[CutPartition]:
        """The partitions from which a reader that has everything up to ``watermark`` resumes.

        These are the partitions alive at the first instant after it, without those that a parent in the cut announces
        again. Together with the watermark they are a complete checkpoint. The initial query of a function without
        partitions is left out: the function is asked again if it is listed, and nothing is missing if it is not.
        """
        instant = watermark + 1
        alive = {p.token: p for p in self._partitions.values() if p.alive_at(instant) and not p.is_empty}
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

    def query_start(self, token: str) -> int:
        """The start of the partition's next query, inclusive; what it returns at or before the progress is known.

        The initial query starts at the start each time: from a later timestamp it returns other partitions.
        """
        partition = self._partitions[token]
        if is_initial(token):
            return partition.first or partition.start
        return max(partition.start, partition.progress, partition.start if partition.is_late else self._floor)

    def is_laggard(self, token: str) -> bool:
        """True if the partition holds the watermark, so that nothing more can be sealed before it is read further."""
        return self._partitions[token].progress <= self._watermark

    def sent(self, token: str) -> None:
        """The partition's query has been sent."""
        partition = self._partitions[token]
        self._move(partition, PartitionChange.QUERY_SENT)
        partition.ending = False
        partition.proved = NOTHING

    def broke(self, token: str) -> int:
        """The partition's query ended without finishing the partition; returns the progress it is resumed from.

        What was received beyond the progress is returned again, and must be discarded. A query that broke among several
        child partitions records returns all of them again: the progress is before their start.
        """
        partition = self._partitions[token]
        self._move(partition, PartitionChange.QUERY_BROKE)
        return partition.progress

    def proved(self, token: str, timestamp: int) -> None:
        """Every record of the partition at or before ``timestamp`` has been received.

        The initial query proves nothing until it has finished: the partitions it returns may start at different
        instants.
        """
        if not is_initial(token):
            self._partitions[token].prove(timestamp)

    def announced(self, token: str, record: ChildPartitionsRecord) -> None:
        """The partition returned a child partitions record. A child that is known already is the same one."""
        parent = self._partitions[token]
        if self._leaves_to_next(token, record.start_timestamp):
            self.proved(token, record.start_timestamp - 1)
            return
        parent.ends(record.start_timestamp)
        parent.is_empty = False
        for child in record.children:
            name = beside(token, child.token)
            parent.children.add(name)
            if name not in self._partitions:
                # The initial query is not named among the parents of those it returns, yet they follow it.
                announced = self._announced_child(name, record.start_timestamp)
                self._discovered(token, announced, frozenset(beside(token, one) for one in child.parents) | {token})
        self.proved(token, record.start_timestamp - 1)

    def _leaves_to_next(self, token: str, start: int) -> bool:
        """True if an announcement is left to a later window, where a change stream is read in windows.

        A query may announce children that start just after its end, or not. If one parent of a child finished with this
        window and another did not, no report of a single window would show whether a reader follows the child.
        """
        ends_before = self._end is not None and start > self._end
        return ends_before and self._follows is not follow_all and not is_initial(token)

    def started(self, token: str, record: PartitionStartRecord) -> None:
        """The partition returned a partition start record; only those that the initial query returns follow it.

        What an earlier query has returned is repeated at the start of a query. What is behind what this query itself
        has proved is late instead (:mod:`connector.core.late_records`), and the partitions it names may be new.
        """
        announcer = self._partitions[token]
        parents: frozenset[str] = frozenset()
        if is_initial(token):
            announcer.ends(record.start_timestamp)
            announcer.is_empty = False  # until it has finished, there may be others: the cut keeps it
            parents = frozenset({token})
        elif announcer.proved < record.start_timestamp <= announcer.progress:
            return  # a repeat: the partitions it names are known, or have ended and are forgotten
        for started in (beside(token, one) for one in record.tokens):
            if started not in self._partitions:
                announced = self._announced_child(started, record.start_timestamp)
                self.churn["starts"] += self._discovered(token, announced, parents) and not is_initial(token)
        self.proved(token, record.start_timestamp - 1)

    def moved(self, token: str, record: PartitionEventRecord) -> None:
        """The partition returned a partition event record."""
        partition = self._partitions[token]
        if record.commit_timestamp > partition.moved_at:
            partition.moved_at = record.commit_timestamp
            self.churn["moves"] += record.moves_in
        self.proved(token, record.commit_timestamp - 1)

    def terminated(self, token: str, record: PartitionEndRecord) -> None:
        """The partition returned its partition end record, after which it has no records."""
        partition = self._partitions[token]
        partition.ends_at = record.end_timestamp + 1
        partition.ending = partition.complete = True
        self.proved(token, record.end_timestamp)
        self.functions.terminated(partition)

    def ended(self, token: str, *, proven: int | None) -> bool:
        """The partition's query ended with OK; returns whether this finishes the partition.

        Children that only an earlier query returned, before it broke, finish nothing: siblings may be missing.

        Args:
            token: the partition.
            proven: the query's end bound, if the query was sent after Spanner's clock had passed it: everything up to
                it, inclusive, should have been returned. A bound before the user's end finishes nothing.
        """
        partition = self._partitions[token]
        if partition.ending:
            self._finish(partition)
            return True
        if partition.ends_at is not None or is_initial(token):
            return False  # an initial query that returned nothing finishes nothing, wherever it ended
        if proven is not None:
            partition.confirm_bound(proven)
        return self._reached_end(partition)

    def nothing_left(self, token: str) -> bool:
        """Finishes a scheduled partition that has no more records, or none before the user's end."""
        partition = self._partitions[token]
        if partition.complete:
            self._finish(partition)
            return True
        return partition.ends_at is None and self._reached_end(partition)

    def _finish(self, partition: Partition) -> None:
        self._move(partition, PartitionChange.ENDED_FOR_GOOD)
        self.churn.update(churn_of(partition, self._partitions))

    def _reached_end(self, partition: Partition) -> bool:
        if self._end is None or partition.progress < self._end:
            return False
        self._move(partition, PartitionChange.REACHED_END)
        return True

    def _discovered(self, announcer: str, child: CutPartition, parents: frozenset[str]) -> bool:
        """Adds a partition that ``announcer`` has announced, if it is this graph's to follow; returns whether it is."""
        if not self._follows(announcer, child, parents):
            return False
        self._add(child.token, child.start_timestamp, parents, is_late=child.is_late)
        return True

    def _announced_child(self, token: str, start: int) -> CutPartition:
        return CutPartition(token, start, is_late=start <= self._watermark)

    def _add_initial(self, token: str, start: int | None) -> None:
        self._ended.pop(token, None)  # a function of that name may have ended before
        if start is None:
            start = max(self._watermark, self.functions.listed_at or self._watermark) + 1
        self._add(token, start, frozenset(), is_late=False)

    def _add(self, token: str, start: int, parents: frozenset[str], *, is_late: bool) -> None:
        # One that is announced too late is read from its start all the same: it may have ended by the watermark.
        progress = start - 1 if is_late else max(start - 1, self._floor)
        added = self._partitions[token] = Partition(token, start, progress, parents, is_late=is_late)
        self._waiting.add(added)
        self._progress.add(added)
        self.unfinished += 1

    def _move(self, partition: Partition, event: PartitionChange) -> None:
        before = partition.state
        partition.change_state(event)
        if before is PartitionState.CREATED:
            self._waiting.remove(partition)
        if partition.state is PartitionState.FINISHED:
            self.unfinished -= 1
            self._waiting.parent_finished(partition.token)
        if event is PartitionChange.ENDED_FOR_GOOD:
            self._ended[partition.token] = partition
