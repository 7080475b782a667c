"""The server's clock, with a configurable start and speed."""

from __future__ import annotations

import asyncio

from connector.core.timestamps import SECOND

_SHORTEST = 1e-6
"""The shortest sleep, in seconds: a shorter one may not change the loop's time, which is a float, and would not end."""
_LONGEST = 3600.0


class ScriptedClock:
    """A clock in nanoseconds since 1970 that shows `origin` when it starts, and runs at `speed` times the loop's time.

    It starts at `start`, or at the first use inside a running loop; until then it shows `origin`. It uses only the
    loop's `time()` and timers, so a loop of virtual time works too. `now` may be called in any thread.
    """

    def __init__(self, origin: int, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed is {speed:g}, but must be above 0")
        self.origin = origin
        self.speed = speed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = 0.0

    def start(self) -> None:
        """Starts the clock on the running loop's time; it has no effect on a clock that has started."""
        if self._loop is None:
            loop = asyncio.get_running_loop()
            self._started = loop.time()
            self._loop = loop

    def now(self) -> int:
        """Returns the time, which never decreases."""
        if self._loop is None:
            try:
                self.start()
            except RuntimeError:  # no loop runs here
                return self.origin
        assert self._loop is not None
        return self.origin + int((self._loop.time() - self._started) * self.speed * SECOND)

    async def sleep_until(self, timestamp: int) -> None:
        """Sleep until the clock shows `timestamp` or later; return at once if it does already."""
        while (left := timestamp - self.now()) > 0:  # noqa: ASYNC110 - a timer may fire too early
            await asyncio.sleep(min(max(left / SECOND / self.speed, _SHORTEST), _LONGEST))
