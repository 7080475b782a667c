"""Spanner's clock as far as it is known: from timestamps of records, and from requests."""

import asyncio
from collections.abc import Awaitable, Callable

from connector.errors import UnreachableError


class SpannerClock:
    """The latest timestamp that Spanner's clock is known to have passed, in Unix nanoseconds.

    Args:
        request: requests Spanner's clock.
        known: a timestamp that it has passed already.
    """

    def __init__(self, request: Callable[[], Awaitable[int]], known: int) -> None:
        self._request = request
        self.passed = known
        self._requesting = asyncio.Lock()
        self._answers = 0
        self._error: UnreachableError | None = None

    def saw(self, timestamp: int) -> None:
        """A record of Spanner has a timestamp, which its clock has passed therefore."""
        self.passed = max(self.passed, timestamp)

    async def read(self) -> int:
        """Requests Spanner's clock and returns it; one request runs at a time, and its answer serves all that wait.

        Raises:
            UnreachableError: Spanner does not answer now.
            SpannerCdcError: Spanner answers with a permanent error.
        """
        before = self._answers
        async with self._requesting:
            if self._answers == before:
                try:
                    self.saw(await self._request())
                    self._error = None
                except UnreachableError as error:
                    self._error = error
                self._answers += 1
        if self._error is not None:
            raise UnreachableError(self._error.args[0], hint=self._error.hint) from self._error.__cause__
        return self.passed
