"""The server's time: it begins where it is told to, and goes as fast as it is told to."""

from __future__ import annotations

import asyncio

from connector.core.timestamps import SECOND

_SHORTEST = 1e-6
"""Seconds. A shorter sleep may add nothing to a loop's time, which is a float, and would then never end."""
_LONGEST = 3600.0


class ScriptedClock:
    """A clock in nanoseconds since 1970: `origin`, and from its start on the event loop's time, `speed` times as fast.

    It starts at `start`, or at the first use inside a running loop; until then it stands still. Of the loop it uses
    `time()` and timers only, so that a loop of virtual time will do. `now` may be asked from any thread.
    """

    def __init__(self, origin: int, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed is {speed:g}, and must be above 0")
        self.origin = origin
        self.speed = speed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = 0.0

    def start(self) -> None:
        """Start it, on the running loop's time; a clock that has started goes on as it is."""
        if self._loop is None:
            loop = asyncio.get_running_loop()
            self._started = loop.time()
            self._loop = loop

    def now(self) -> int:
        """Give the time; it never goes back."""
        if self._loop is None:
            try:
                self.start()
            except RuntimeError:  # no loop runs here
                return self.origin
        assert self._loop is not None
        return self.origin + int((self._loop.time() - self._started) * self.speed * SECOND)

    async def sleep_until(self, instant: int) -> None:
        """Sleep until the clock shows `instant` or later; returns at once where it does."""
        while (left := instant - self.now()) > 0:  # noqa: ASYNC110 - a timer may come too early
            await asyncio.sleep(min(max(left / SECOND / self.speed, _SHORTEST), _LONGEST))
