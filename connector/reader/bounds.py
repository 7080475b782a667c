"""The ends of the queries of partitions, and what an end proves.

A query has an end if the user has given one, and in the MUTABLE_KEY_RANGE mode, where the end may lie at most half an
hour ahead of Spanner's clock: a window. A window reaches beyond what is known of Spanner's clock, so that its end
proves nothing; only what was received does. But after the reader was suspended, or Spanner was unreachable, the known
clock is old. A window computed from it may lie wholly in the past: it returns nothing and moves nothing, and neither
would the next. So Spanner's clock is requested after each window that ended, or that broke without progress.
"""

import asyncio
from zlib import crc32

from connector.core.timestamps import SECOND
from connector.spanner.clock import SpannerClock

NEAR_END = 2.0
"""A query that ends this many seconds before the user's end, or less, is sent again only after the end."""

_AFTER_END = 0.02
"""Seconds after the user's end at which Spanner's clock is requested again."""


class Bounds:
    """The end bounds of a reader's queries. Timestamps are Unix nanoseconds.

    Args:
        end: the user's end, inclusive, or None.
        window: how far the end of a query may lie past Spanner's clock and its start, at most; None where a query needs
            no end.
        clock: Spanner's.
    """

    def __init__(self, end: int | None, window: int | None, clock: SpannerClock) -> None:
        self._end = end
        self._window = window
        self._clock = clock
        self._unsettled: set[str] = set()
        """Partitions before whose next query Spanner's clock has to be requested."""

    def of(self, token: str, start: int) -> int | None:
        """The end of a query: the user's, or a window's; windows are spread so that not all end at once."""
        if self._window is None:
            return self._end
        window = max(self._clock.passed, start) + self._window - crc32(token.encode()) % (self._window // 2)
        return window if self._end is None else min(window, self._end)

    def proven(self, bound: int | None) -> int | None:
        """The bound of a query that is sent now, if Spanner's clock has passed it, so that a clean end proves it."""
        return bound if bound is not None and self._clock.passed > bound else None

    def ended(self, token: str, bound: int | None, *, clean: bool, news: bool) -> None:
        """A query with that bound ended without having finished its partition.

        Args:
            token: the partition.
            bound: the query's.
            clean: whether it ended with OK.
            news: whether it has moved the partition's progress.
        """
        if bound is not None and (clean or not (news or bound == self._end)):
            self._unsettled.add(token)

    async def settle(self, token: str) -> None:
        """Before a partition's query: requests Spanner's clock if it is needed; waits for the user's end if it is near.

        A clean end at the user's end proves nothing before Spanner's clock has passed it. A clean end long before means
        nothing, and the query is sent again.

        Raises:
            UnreachableError: Spanner does not answer now.
            SpannerCdcError: Spanner answers with a permanent error.
        """
        if token not in self._unsettled:
            return
        if self._end is None or self._clock.passed <= self._end:
            await self._clock.read()
            left = float("inf") if self._end is None else (self._end - self._clock.passed) / SECOND
            if 0 <= left <= NEAR_END:
                await asyncio.sleep(left + _AFTER_END)
                await self._clock.read()
        self._unsettled.discard(token)
