"""Stopping: the first signal drains, a second one stops at once, and either loses nothing.

To drain is to read no further, to seal what the watermark has passed, and to end, within a bounded time.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from connector.core.timestamps import SECOND
from connector.log import Log
from connector.reader.scheduler import Scheduler

_log = Log(__name__)


class Stop:
    """A wish to stop, by a signal or by a lifeline that was cut.

    Args:
        drain_timeout: nanoseconds that draining may take.
    """

    def __init__(self, *, drain_timeout: int) -> None:
        self._drain = drain_timeout / SECOND
        self._asked = asyncio.Event()
        self.interrupted = False
        """Whether it was Ctrl-C."""
        self.reading = False
        """Whether there is something to drain."""

    def ask(self) -> None:
        """Asks for a drain."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether a stop is wished."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Until a stop is wished."""
        await self._asked.wait()

    async def run(self, scheduler: Scheduler) -> None:
        """Runs the reader until it ends by itself, or has drained, or the drain took too long.

        Raises:
            SpannerCdcError: as the reader does.
        """
        self.reading = True
        running = asyncio.create_task(scheduler.run(), name="scheduler")
        asking = asyncio.create_task(self._asked.wait(), name="stop")
        try:
            await asyncio.wait({running, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                scheduler.stop()
                done, _ = await asyncio.wait({running}, timeout=self._drain)
                if not done:
                    _log.warning("the drain took too long; what is not sealed is read again", timeout_s=self._drain)
        finally:
            asking.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running})
        try:
            await running
        except asyncio.CancelledError:
            if not self.asked:
                raise


@asynccontextmanager
async def on_signals(stop: Stop) -> AsyncIterator[None]:
    """SIGTERM and SIGINT ask ``stop`` for a drain; a second one, or one before reading began, cancels this task."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    def received(number: signal.Signals) -> None:
        if (stop.asked or not stop.reading) and main is not None:
            main.cancel()
        elif not stop.asked:
            _log.info("stopping: what is complete is delivered first; a second signal ends at once", signal=number.name)
        stop.interrupted = stop.interrupted or number is signal.SIGINT
        stop.ask()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
