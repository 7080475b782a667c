"""The least progress of the partitions that have not finished. Pure."""

from collections.abc import Mapping
from heapq import heappop, heappush, heapreplace

from connector.core.partitions.partition import Partition


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
