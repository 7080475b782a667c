"""Spanner's clock as far as it is known: by what came from Spanner, and by asking for it."""

import asyncio
from collections.abc import Awaitable, Callable

from connector.errors import UnreachableError


class SpannerClock:
    """What Spanner's clock has passed. Timestamps are nanoseconds since the epoch.

    Args:
        ask: asks Spanner for its clock.
        known: what it has passed already.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]], known: int) -> None:
        self._ask = ask
        self.passed = known
        self._asking = asyncio.Lock()
        self._answers = 0
        self._failure: UnreachableError | None = None

    def saw(self, timestamp: int) -> None:
        """Something came from Spanner that tells of a timestamp it has passed."""
        self.passed = max(self.passed, timestamp)

    async def ask(self) -> int:
        """Asks Spanner and returns what its clock has passed; one call is under way at a time, and serves all who wait.

        Raises:
            UnreachableError: there is no answer now.
            SpannerCdcError: there will be none.
        """
        before = self._answers
        async with self._asking:
            if self._answers == before:
                try:
                    self.saw(await self._ask())
                    self._failure = None
                except UnreachableError as error:
                    self._failure = error
                self._answers += 1
        if self._failure is not None:
            raise UnreachableError(self._failure.args[0], hint=self._failure.hint)
        return self.passed
