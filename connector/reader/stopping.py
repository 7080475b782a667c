"""Stopping: the first signal drains, a second one stops at once, and neither loses data.

To drain is to read no further, to seal what the watermark has passed, and to end, within a limited time.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from connector.core.timestamps import SECOND
from connector.errors import StreamError
from connector.log import Log

_log = Log(__name__)


class Stoppable(Protocol):
    """An object that can be drained."""

    def stop(self) -> None:
        """Asks it to deliver what is complete and to end."""


class StopRequest:
    """A request to stop, by a signal or by the end of standard input.

    Args:
        drain_timeout: nanoseconds that draining may take.
    """

    def __init__(self, *, drain_timeout: int) -> None:
        self._drain = drain_timeout / SECOND
        self._requested = asyncio.Event()
        self.interrupted = False
        """True if it was requested by Ctrl-C."""
        self.reading = False
        """True if there is something to drain."""

    def request(self) -> None:
        """Requests a drain."""
        self._requested.set()

    @property
    def requested(self) -> bool:
        """True if a stop is requested."""
        return self._requested.is_set()

    async def wait(self) -> None:
        """Waits until a stop is requested."""
        await self._requested.wait()

    @asynccontextmanager
    async def draining(self, reader: Stoppable) -> AsyncIterator[None]:
        """Surrounds the running of a reader: drains it when a stop is requested.

        If the reader has not drained in time it is cancelled, a warning is logged, and the context ends without an
        error. Unsealed records are read again by the next run.
        """
        self.reading = True
        limit = asyncio.timeout(None)
        try:
            async with limit:
                draining = asyncio.create_task(self._drain_when_requested(reader, limit), name="stop")
                try:
                    yield
                finally:
                    draining.cancel()
                    await asyncio.wait({draining})
        except TimeoutError:
            if not limit.expired():
                raise
            _log.warning("the drain took too long; what is not sealed is read again", timeout_s=self._drain)

    async def _drain_when_requested(self, reader: Stoppable, limit: asyncio.Timeout) -> None:
        await self._requested.wait()
        reader.stop()
        limit.reschedule(asyncio.get_running_loop().time() + self._drain)


@asynccontextmanager
async def on_signals(stop: StopRequest) -> AsyncIterator[None]:
    """SIGTERM and SIGINT request a drain; a second one, or one before reading started, cancels this task.

    Raises:
        StreamError: it was cancelled by something else, which must not pass for an end.
    """
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    is_cancelled = False

    def received(number: signal.Signals) -> None:
        nonlocal is_cancelled
        if (stop.requested or not stop.reading) and main is not None:
            is_cancelled = True
            main.cancel()
        elif not stop.requested:
            _log.info("stopping: what is complete is delivered first; a second signal ends at once", signal=number.name)
        stop.interrupted = stop.interrupted or number is signal.SIGINT
        stop.request()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received, number)
    try:
        yield
    except asyncio.CancelledError as error:
        if not is_cancelled:
            raise unexpected_cancellation() from error
        raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def unexpected_cancellation() -> StreamError:
    """The error of a reader that was cancelled by neither a signal nor a stop."""
    return StreamError(
        "reading was cancelled without a signal",
        hint="Start it again: it continues from the last epoch. If it happens again, --verbose logs where.",
    )
