"""Finds partitions without a walk over all of them: those that may start, and the least progress. Pure."""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush, heapreplace

from connector.core.partitions.partition import Partition


class WaitingPartitions:
    """The partitions that are created and not yet scheduled.

    A seal apart, nothing walks over all of them: :meth:`candidates` gives only those whose situation has changed.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Partition] = {}
        self._candidates: dict[str, None] = {}
        """Partitions that are new, or that had a parent finish since the last call, in that order."""
        self._children_of: dict[str, list[str]] = {}
        """The waiting partitions that name a partition, known or not, as their parent."""
        self._for_watermark: list[tuple[int, str]] = []
        """A heap of the watermark at which an undiscovered parent of a waiting partition counts as finished."""

    def add(self, partition: Partition) -> None:
        """Adds a partition that was discovered."""
        self._waiting[partition.token] = partition
        self._candidates[partition.token] = None
        for parent in partition.parents:
            self._children_of.setdefault(parent, []).append(partition.token)

    def remove(self, partition: Partition) -> None:
        """Removes a partition that is scheduled."""
        del self._waiting[partition.token]
        for parent in partition.parents:
            children = self._children_of.get(parent, [])
            if partition.token in children:
                children.remove(partition.token)
            if not children:
                self._children_of.pop(parent, None)

    def parent_finished(self, token: str) -> None:
        """A partition has finished: those that name it as their parent are candidates."""
        self._candidates.update(dict.fromkeys(self._children_of.pop(token, ())))

    def candidates(self, watermark: int) -> Iterator[Partition]:
        """Those that may have become ready since the last call, in the order in which they became candidates.

        Whoever iterates calls :meth:`remove` for each that is scheduled, and :meth:`wait_for_watermark` for the others.
        """
        while self._for_watermark and self._for_watermark[0][0] <= watermark:
            self._candidates[heappop(self._for_watermark)[1]] = None
        candidates, self._candidates = self._candidates, {}
        for token in candidates:
            if token in self._waiting:
                yield self._waiting[token]

    def wait_for_watermark(self, partition: Partition, watermark: int) -> None:
        """Makes a partition a candidate again when the watermark reaches its start, if it has not."""
        if watermark < partition.start - 1:
            heappush(self._for_watermark, (partition.start - 1, partition.token))

    def parents(self) -> set[str]:
        """The tokens that waiting partitions name as their parents."""
        return {parent for partition in self._waiting.values() for parent in partition.parents}


class LeastProgress:
    """Finds the least progress without a walk over all partitions.

    Args:
        partitions: those that are not forgotten, by token; the owner changes it.
    """

    def __init__(self, partitions: Mapping[str, Partition]) -> None:
        self._partitions = partitions
        self._heap: list[tuple[int, str]] = []
        """Every unfinished partition's progress, as it was when the partition was last at the top."""

    def add(self, partition: Partition) -> None:
        """Adds a partition that was discovered."""
        heappush(self._heap, (partition.progress, partition.token))

    def find(self) -> int | None:
        """The least progress of all partitions that have not finished; None where there are none."""
        while self._heap:
            progress, token = self._heap[0]
            partition = self._partitions.get(token)
            if partition is None or partition.end is not None:
                heappop(self._heap)
            elif partition.progress > progress:
                heapreplace(self._heap, (partition.progress, token))
            else:
                return progress
        return None
