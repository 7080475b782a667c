"""Keeps memory within a budget: decides which partitions may continue, and which wait for a seal.

A partition that is ahead of the watermark waits. The laggard that holds the watermark is exempt, because nothing can be
sealed before it is read further. But it too waits if epochs that only wait for room in the spool fill the budget.
Waiting partitions resume in the order of their progress, no more at once than there is room for. To wake thousands for
the room of one would cost more than to read what they return.
"""

import asyncio
from heapq import heappop, heappush
from itertools import count

BUDGET = 32 * 1024 * 1024
"""Bytes of records that may be read ahead; as many again may be ready, and as many are being sealed.

An epoch is cut at this size too, so that what waits to be sealed is never more than one full epoch.
"""

MESSAGE = 64 * 1024
"""Bytes that a partition is expected to return when it resumes."""


class FlowControl:
    """Decides before a partition's next message is pulled whether the partition may read on.

    Args:
        budget: bytes of records that may be read ahead.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self._waiting: list[tuple[int, int, str, asyncio.Event]] = []
        self._order = count()
        self._resumed: set[str] = set()
        """Partitions that were woken and have returned nothing yet."""
        self.waiting = 0
        """The number of partitions that wait."""

    def admits(self, *, held: int, ready: int, laggard: bool) -> bool:
        """True if a partition may read on.

        Args:
            held: bytes in the buffer, in all.
            ready: bytes of them that the watermark has passed.
            laggard: whether the partition holds the watermark.
        """
        return held < self.budget or (laggard and ready < self.budget)

    def pauses_laggard(self, watermark: int) -> bool:
        """True if a partition that holds the watermark waits until the sink has room."""
        return any(progress <= watermark and not woken.is_set() for progress, _, _, woken in self._waiting)

    def update(self, *, held: int, ready: int, watermark: int) -> None:
        """The watermark has moved or an epoch was sealed: wakes the partitions that may now read on.

        Args:
            held: bytes in the buffer, in all.
            ready: bytes of them that the watermark has passed.
            watermark: Unix nanoseconds.
        """
        room = 1 + (self.budget - held) // MESSAGE - len(self._resumed) if held < self.budget else 0
        while self._waiting:
            progress, _, token, woken = self._waiting[0]
            if woken.is_set():
                heappop(self._waiting)  # it was cancelled
                continue
            laggard = progress <= watermark and ready < self.budget
            if room <= 0 and not laggard:
                break
            heappop(self._waiting)
            woken.set()
            self._resumed.add(token)
            room -= 1

    def arrived(self, token: str) -> None:
        """A partition that may have waited has returned a message, or its query has ended."""
        self._resumed.discard(token)

    async def wait(self, token: str, progress: int) -> None:
        """Waits until a partition may read on.

        Args:
            token: the partition.
            progress: the partition's, Unix nanoseconds.
        """
        self.arrived(token)
        woken = asyncio.Event()
        heappush(self._waiting, (progress, next(self._order), token, woken))
        self.waiting += 1
        try:
            await woken.wait()
        finally:
            woken.set()
            self.waiting -= 1
