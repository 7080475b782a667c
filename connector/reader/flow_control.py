"""Keeps what is held in memory within a budget: who may read on, and who waits until something was sealed.

A partition that runs ahead of the watermark waits. The laggard that holds the watermark is exempt, for nothing can be
sealed before it is read on; not, however, from the limit of what is ready and only waits for room in the spool. Those
that wait go on in the order of their progress, no more at once than there is room for: thousands that were all woken
for the room of one would cost more than what they read.
"""

import asyncio
from heapq import heappop, heappush
from itertools import count

BUDGET = 32 * 1024 * 1024
"""Bytes of records that may be read ahead; as many again may be ready, and as many are being sealed.

An epoch is cut at this size too, so that what waits to be sealed is never more than what makes an epoch full. The
process stays below 400 MB with it, where 64 MB brought it to 417 (measured with rows of incompressible text).
"""

MESSAGE = 64 * 1024
"""Bytes that a partition is expected to bring when it goes on."""


class FlowControl:
    """Asked before a partition's next message is pulled."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self._waiting: list[tuple[int, int, str, asyncio.Event]] = []
        self._order = count()
        self._going_on: set[str] = set()
        """Those that were woken and have brought nothing yet."""
        self.waiting = 0
        """How many partitions wait."""

    def admits(self, *, held: int, ready: int, laggard: bool) -> bool:
        """Whether a partition may read on.

        Args:
            held: bytes in the buffer, in all.
            ready: bytes of them that the watermark has passed.
            laggard: whether the partition holds the watermark.
        """
        return held < self.budget or (laggard and ready < self.budget)

    def holds_back(self, watermark: int) -> bool:
        """Whether a partition that holds the watermark waits, for room in what is sealed."""
        return any(progress <= watermark and not woken.is_set() for progress, _, _, woken in self._waiting)

    def moved(self, *, held: int, ready: int, watermark: int) -> None:
        """The watermark moved or something was sealed: those that may now read on ask again."""
        room = 1 + (self.budget - held) // MESSAGE - len(self._going_on) if held < self.budget else 0
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
            self._going_on.add(token)
            room -= 1

    def arrived(self, token: str) -> None:
        """A partition that may have waited has brought a message, or its query has ended."""
        self._going_on.discard(token)

    async def wait(self, token: str, progress: int) -> None:
        """Until the partition, which is of that progress, may go on."""
        self.arrived(token)
        woken = asyncio.Event()
        heappush(self._waiting, (progress, next(self._order), token, woken))
        self.waiting += 1
        try:
            await woken.wait()
        finally:
            woken.set()
            self.waiting -= 1
