"""Mutants of the core: each breaks one rule, and the properties must catch it."""

from collections.abc import Iterable
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer, EpochPart, SealedEpoch
from connector.core.partitions import CutPartition, Partition, PartitionChange, PartitionGraph, PartitionState
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartitionsRecord,
    DataChangeRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tests.property.reading.change_stream import Query
from tests.property.reading.reading import MutableReading, Reading


class UnknownParentHasFinished(PartitionGraph):
    def _may_start(self, partition: Partition) -> bool:
        if self._end is not None and partition.start > self._end:
            return False
        known = [self._partitions[parent] for parent in partition.parents if parent in self._partitions]
        return all(parent.end is not None for parent in known)


class ParentsAreNotWaitedFor(PartitionGraph):
    def _may_start(self, partition: Partition) -> bool:
        return self._end is None or partition.start <= self._end


class OneParentIsEnough(PartitionGraph):
    def _may_start(self, partition: Partition) -> bool:
        if self._end is not None and partition.start > self._end:
            return False
        known = [self._partitions[parent] for parent in partition.parents if parent in self._partitions]
        return not known or any(parent.end is not None for parent in known)


class CutKeepsChildrenOfItsOwn(PartitionGraph):
    def cut(self, watermark: int) -> list[CutPartition]:
        return [CutPartition(p.token, p.start) for p in self if p.alive_at(watermark + 1)]


class CutAnInstantTooLate(PartitionGraph):
    def cut(self, watermark: int) -> list[CutPartition]:
        return super().cut(watermark + 1)


class CutLeavesOutWhoHasFinished(PartitionGraph):
    def cut(self, watermark: int) -> list[CutPartition]:
        unfinished = [p for p in self if p.state is not PartitionState.FINISHED]
        tokens = {p.token for p in unfinished}
        return [CutPartition(p.token, p.start) for p in unfinished if not tokens & p.parents]


class EndOfTheRunEndsPartitions(PartitionGraph):
    def cut(self, watermark: int) -> list[CutPartition]:
        done = {p.token for p in self if p.state is PartitionState.FINISHED and p.end is None}
        return [at for at in super().cut(watermark) if at.token not in done]


class CleanEndFinishes(PartitionGraph):
    def ended(self, token: str, *, proven: int | None) -> bool:
        self._move(self._partitions[token], PartitionChange.ENDED_FOR_GOOD)
        return True


class InitialQueryFinishesAtTheEnd(PartitionGraph):
    def ended(self, token: str, *, proven: int | None) -> bool:
        if super().ended(token, proven=proven):
            return True
        if token == INITIAL_TOKEN and proven is not None:
            self._move(self._partitions[token], PartitionChange.REACHED_END)
            return True
        return False


class ChildrenOfAnEarlierQueryFinish(PartitionGraph):
    def ended(self, token: str, *, proven: int | None) -> bool:
        partition = self._partitions[token]
        partition.ending = partition.ends_at is not None
        return super().ended(token, proven=proven)


class WaitingChildrenDoNotHoldTheWatermark(PartitionGraph):
    def advance(self) -> int:
        running = [
            p.progress for p in self if p.end is None and p.state in (PartitionState.RUNNING, PartitionState.FINISHED)
        ]
        least = min(running, default=self._watermark)
        self._watermark = max(self._watermark, least if self._end is None else min(least, self._end))
        return self._watermark


class WatermarkOfTheFastest(PartitionGraph):
    def advance(self) -> int:
        most = max((p.progress for p in self if p.state is not PartitionState.FINISHED), default=self._watermark)
        self._watermark = max(self._watermark, most if self._end is None else min(most, self._end))
        return self._watermark


class WatermarkGoesBack(PartitionGraph):
    def advance(self) -> int:
        self._watermark = min(
            (p.progress for p in self if p.state is not PartitionState.FINISHED), default=self._watermark
        )
        return self._watermark


class AnnouncementProvesTheStart(PartitionGraph):
    def announced(self, token: str, record: ChildPartitionsRecord) -> None:
        super().announced(token, record)
        self.proved(token, record.start_timestamp)


class AnnouncementsOfASiblingRenewChildren(PartitionGraph):
    def announced(self, token: str, record: ChildPartitionsRecord) -> None:
        for child in record.children:
            if child.token in self._partitions:
                del self._partitions[child.token]
        super().announced(token, record)


class QueryStartsBeforeThePartition(PartitionGraph):
    def query_start(self, token: str) -> int:
        return max(self[token].progress, self._floor)


class InitialQueryContinues(PartitionGraph):
    def query_start(self, token: str) -> int:
        return max(super().query_start(token), self[token].progress)


class QueryStartsAtTheGlobalWatermark(PartitionGraph):
    def query_start(self, token: str) -> int:
        return self._watermark


class QuerySkipsAnInstant(PartitionGraph):
    def query_start(self, token: str) -> int:
        return super().query_start(token) + 1


class FirstProofIsBelieved(PartitionGraph):
    def ended(self, token: str, *, proven: int | None) -> bool:
        self[token].doubted = None if proven is None else (proven, self[token].progress)
        return super().ended(token, proven=proven)


class WhatWasHeldIsKept(EpochBuffer):
    def discard(self, token: str, *, beyond: int) -> None:
        pass


class DiscardIsInclusive(EpochBuffer):
    def discard(self, token: str, *, beyond: int) -> None:
        super().discard(token, beyond=beyond - 1)


class WhatIsKnownIsHeldAgain(EpochBuffer):
    def add(self, token: str, record: DataChangeRecord, *, progress: int) -> bool:
        return super().add(token, record, progress=0)


class ColumnsThatAreKnownAreHeldAgain(EpochBuffer):
    def add_all(self, token: str, changes: Changes, *, progress: int) -> tuple[Changes, Changes]:
        return super().add_all(token, changes, progress=0)


class LateColumnsAreNotReported(EpochBuffer):
    def add_all(self, token: str, changes: Changes, *, progress: int) -> tuple[Changes, Changes]:
        held, _ = super().add_all(token, changes, progress=progress)
        return held, held.part(0, 0)


class ColumnsWithWhatIsKnownAreDropped(EpochBuffer):
    def add_all(self, token: str, changes: Changes, *, progress: int) -> tuple[Changes, Changes]:
        if changes.first <= progress:
            return changes.part(0, 0), changes.part(0, 0)
        return super().add_all(token, changes, progress=progress)


class ColumnsAreDiscardedWhole(EpochBuffer):
    def discard(self, token: str, *, beyond: int) -> None:
        with patch("connector.core.epoch._split", lambda part, _: (None, part)):
            super().discard(token, beyond=beyond)


class ColumnsPassWhole(EpochBuffer):
    def advance(self, watermark: int) -> None:
        with patch("connector.core.epoch._split", lambda part, _: (part, None)):
            super().advance(watermark)


class ColumnsAreCutWhereThereIsRoom(EpochBuffer):
    """Even among the records of one commit timestamp."""

    def take(self) -> SealedEpoch | None:
        with patch("connector.core.epoch._fitting", _fitting):
            return super().take()


def _fitting(changes: Changes, high: int, room: int, *, whole: bool) -> int:
    fitting = int(np.searchsorted(np.cumsum(changes.sizes), room, "right"))
    return min(max(fitting, int(whole)), changes.passed(high))


class OrderedByArrival(EpochBuffer):
    def advance(self, watermark: int) -> None:
        with patch("connector.core.epoch._in_order", _by_time):
            super().advance(watermark)


def _by_time(parts: list[EpochPart]) -> list[EpochPart]:
    if any(isinstance(part, Changes) for part in parts):
        joined = Changes.joined(parts)
        order = np.argsort(joined.commit_timestamps, kind="stable")
        return [Changes(joined.batch.take(pa.array(order)), joined.record_schemas)]
    return sorted(parts, key=lambda part: part.commit_timestamp if isinstance(part, DataChangeRecord) else part.first)


class CutInTheMiddleOfAnInstant(EpochBuffer):
    def take(self) -> SealedEpoch | None:
        epoch = super().take()
        if epoch is None or len(epoch.records) < 2:
            return epoch
        *kept, last = epoch.records
        self._ready.appendleft(last)
        self.bytes += last.size
        self.ready_bytes += last.size
        return SealedEpoch(epoch.low, epoch.high, tuple(kept), epoch.bytes - last.size)


class EpochsWithoutMinutes(EpochBuffer):
    def take(self) -> SealedEpoch | None:
        if self._ready_to <= self._sealed:
            return None
        epoch = SealedEpoch(self._sealed, self._ready_to, tuple(self._ready), self.ready_bytes)
        self._ready.clear()
        self._sealed, self.bytes, self.ready_bytes = self._ready_to, self.bytes - self.ready_bytes, 0
        return epoch


class DataProvesItsInstant(Reading):
    def data_proves(self, record: DataChangeRecord) -> int:
        return record.commit_timestamp


class ForgetsAtTheReceivedWatermark(Reading):
    def forgets_at(self, epoch: SealedEpoch) -> int:
        return self.watermark


class EveryCleanEndProvesTheEnd(Reading):
    def proves_end(self, query: Query) -> bool:
        return query.end is not None


class WindowsFinishPartitions(PartitionGraph):
    def ended(self, token: str, *, proven: int | None) -> bool:
        finished = super().ended(token, proven=proven)
        if not finished and proven is not None:
            self._move(self._partitions[token], PartitionChange.REACHED_END)
            return True
        return finished


class AnnouncersAreParents(PartitionGraph):
    def started(self, token: str, record: PartitionStartRecord) -> None:
        known = set(self._partitions)
        super().started(token, record)
        for started in self._partitions.keys() - known:
            self._partitions[started].parents = frozenset({token})


class RedeliveredStartsAreNew(PartitionGraph):
    def started(self, token: str, record: PartitionStartRecord) -> None:
        partition = self._partitions[token]
        proven, partition.progress = partition.progress, min(partition.progress, record.start_timestamp - 1)
        super().started(token, record)
        partition.progress = max(proven, partition.progress)


class StartProvesItsInstant(PartitionGraph):
    def started(self, token: str, record: PartitionStartRecord) -> None:
        super().started(token, record)
        self.proved(token, record.start_timestamp)


class MoveProvesItsInstant(PartitionGraph):
    def moved(self, token: str, record: PartitionEventRecord) -> None:
        self.proved(token, record.commit_timestamp)


class EndIsExclusive(PartitionGraph):
    def terminated(self, token: str, record: PartitionEndRecord) -> None:
        super().terminated(token, record)
        self._partitions[token].ends_at = record.end_timestamp


class EndRecordsAreForgotten(PartitionGraph):
    def terminated(self, token: str, record: PartitionEndRecord) -> None:
        self.proved(token, record.end_timestamp)


class EveryWindowIsProven(MutableReading):
    def proves_end(self, query: Query) -> bool:
        return True


MUTABLE_MUTANTS = {
    WindowsFinishPartitions, AnnouncersAreParents, RedeliveredStartsAreNew, StartProvesItsInstant,
    MoveProvesItsInstant, EndIsExclusive, EndRecordsAreForgotten,
}  # fmt: skip


OF_COLUMNS = (
    ColumnsThatAreKnownAreHeldAgain, LateColumnsAreNotReported, ColumnsWithWhatIsKnownAreDropped,
    ColumnsAreDiscardedWhole, ColumnsPassWhole, ColumnsAreCutWhereThereIsRoom,
)  # fmt: skip


def _reading(graph: type[PartitionGraph] = PartitionGraph, buffer: type[EpochBuffer] = EpochBuffer) -> type[Reading]:
    name = (graph if graph is not PartitionGraph else buffer).__name__
    kind = MutableReading if graph in MUTABLE_MUTANTS else Reading
    return type(name, (kind,), {"graph_type": graph, "buffer_type": buffer})


def _all() -> Iterable[type[Reading]]:
    yield from (DataProvesItsInstant, ForgetsAtTheReceivedWatermark, EveryCleanEndProvesTheEnd, EveryWindowIsProven)
    yield from (_reading(graph=graph) for graph in PartitionGraph.__subclasses__())
    buffers = set(EpochBuffer.__subclasses__()) - {LateColumnsAreNotReported}  # nothing is ever late in the model
    yield from (_reading(buffer=buffer) for buffer in sorted(buffers, key=lambda buffer: buffer.__name__))


MUTANTS = tuple(_all())
