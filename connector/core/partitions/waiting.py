"""Partitions that wait for their parents, found again when one of these may have finished. Pure."""

from collections.abc import Iterator
from heapq import heappop, heappush

from connector.core.partitions.partition import Partition


class WaitingPartitions:
    """The partitions that are created and not yet scheduled.

    A seal apart, nothing walks over all of them: :meth:`candidates` gives only those whose situation has changed.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Partition] = {}
        self._candidates: dict[str, None] = {}
        """Those that are new, or one of whose parents has finished since they were last looked at, in that order."""
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
