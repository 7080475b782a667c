"""The request to stop that callers hold, and its link to the stop of a reader."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from connector.reader import stopping
from connector.threads import in_background


class Stop:
    """A request to stop: what is complete is still delivered, and then the work returns.

    One object may stop several calls. It cannot be taken back.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt the thread that holds it
        self._requested = False
        self._waiting: set[Callable[[], None]] = set()

    def request(self) -> None:
        """Requests the stop; from any task, thread or signal handler. Once is enough."""
        with self._lock:
            self._requested = True
            waiting = tuple(self._waiting)
        for wake in waiting:
            with suppress(RuntimeError):  # its loop is closed
                wake()

    @property
    def requested(self) -> bool:
        """True if the stop was requested."""
        return self._requested

    async def wait(self) -> None:
        """Waits until the stop is requested."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        with self._lock:
            if self._requested:
                return
            self._waiting.add(wake)
        try:
            await woken.wait()
        finally:
            with self._lock:
                self._waiting.discard(wake)


@asynccontextmanager
async def reader_stop(stop: Stop | None, drain_timeout: int) -> AsyncIterator[stopping.StopRequest]:
    """A reader's stop that follows the caller's, if there is one; ``drain_timeout`` is in nanoseconds."""
    follower = stopping.StopRequest(drain_timeout=drain_timeout)

    async def forward(requested: Stop) -> None:
        await requested.wait()
        follower.request()

    if stop is None:
        yield follower
        return
    async with in_background(forward(stop), name="stop"):
        yield follower
