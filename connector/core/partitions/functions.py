"""The read functions of a change stream that has several, and their initial queries. Pure: no clock, no I/O.

Functions are listed again and again while the stream is read. One that is not in a list has only records after it, so
that its initial query begins there, and the watermark waits at the newest list. A function whose last partition has
ended may have others after that, which nothing announces. So its initial query begins at that end.
"""

from collections.abc import Callable, MutableMapping

from connector.core.partitions.partition import Partition
from connector.core.records import INITIAL_TOKEN, beside, function_of


class ReadFunctions:
    """The functions of a graph; without a call of :meth:`listed` the watermark does not wait for them.

    Args:
        partitions: the graph's, by id.
        add: adds an initial query with a start; None for after the watermark and the newest list.
        finish: finishes a partition.
    """

    def __init__(
        self,
        partitions: MutableMapping[str, Partition],
        add: Callable[[str, int | None], None],
        finish: Callable[[Partition], None],
    ) -> None:
        self._partitions = partitions
        self._add = add
        self._finish = finish
        self.listed_at: int | None = None
        """The timestamp as of which they were listed last."""
        self.ends: dict[str, int] = {}
        """The latest end of a partition of each function, of those that have ended."""

    def listed(self, timestamp: int) -> None:
        """All functions that existed at ``timestamp`` are in the graph; the watermark may advance up to it."""
        self.listed_at = timestamp if self.listed_at is None else max(self.listed_at, timestamp)

    def appeared(self, token: str) -> None:
        """A function has appeared, whose initial query is ``token``: it has no record up to the last list."""
        self._add(token, None)

    def has_ended(self, token: str) -> None:
        """All partitions of a function have ended, and it is still listed: its initial query is sent again."""
        self._add(token, None)
        self._partitions[token].is_empty = True

    def terminated(self, partition: Partition) -> None:
        """A partition has no more records. After the last one of a function its initial query is sent from there on."""
        function = function_of(partition.token)
        if function is None or partition.ends_at is None:
            return
        self.ends[function] = max(partition.ends_at, self.ends.get(function, 0))
        if self.listed_at is None:
            return
        ends = [one.end for one in self._partitions.values() if function_of(one.token) == function]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            initial = beside(partition.token, INITIAL_TOKEN)
            self._add(initial, max(known))  # they are read at different speeds: the last one to be read may end first
            self._partitions[initial].is_empty = True

    def asked_from(self, token: str, first: int) -> None:
        """An initial query is sent from ``first`` on, before which its function has no records."""
        partition = self._partitions[token]
        partition.first, partition.is_empty = first, False
        partition.progress = max(partition.progress, first - 1)

    def empty_until(self, token: str, timestamp: int) -> None:
        """The function of an initial query has no partition up to ``timestamp``, and is asked again."""
        partition = self._partitions[token]
        partition.start, partition.first, partition.is_empty = timestamp + 1, None, True
        partition.progress = max(partition.progress, timestamp)

    def gone(self, token: str) -> None:
        """The function of an initial query is gone, and had no partition when it was asked last."""
        partition = self._partitions[token]
        partition.ends(partition.start)
        self._finish(partition)
