"""A stop drains the reader within a limited time, and then cancels it."""

import asyncio
import os
import signal

import pytest

from connector.core.timestamps import SECOND
from connector.errors import StreamError
from connector.reader.stopping import StopRequest, on_signals
from tests.property.virtual_time import run


class Reader:
    """Drains in some seconds after it is asked to stop.

    Args:
        drains_in: seconds.
    """

    def __init__(self, drains_in: float) -> None:
        self._drains_in = drains_in
        self._stopping = asyncio.Event()
        self.drained = False

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self._drains_in)
        self.drained = True


async def drained(drains_in: float) -> tuple[bool, float]:
    """Returns whether a reader drained after a stop at 5 s, and when it ended."""
    stop, reader = StopRequest(drain_timeout=10 * SECOND), Reader(drains_in)
    loop = asyncio.get_running_loop()
    loop.call_later(5, stop.request)
    async with stop.draining(reader):
        await reader.run()
    return reader.drained, loop.time()


def test_a_reader_that_drains_in_time_ends_by_itself() -> None:
    assert run(drained(9)) == (True, 14)


def test_a_reader_that_does_not_drain_in_time_is_cancelled_and_a_warning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert run(drained(11)) == (False, 15)
    assert "the drain took too long" in caplog.text


def test_a_reader_that_ends_by_itself_ends_the_context() -> None:
    async def main() -> float:
        stop = StopRequest(drain_timeout=SECOND)
        async with stop.draining(Reader(0)):
            await asyncio.sleep(3)
        return asyncio.get_running_loop().time()

    assert run(main()) == 3


def test_an_error_of_the_reader_is_raised() -> None:
    async def main() -> None:
        async with StopRequest(drain_timeout=SECOND).draining(Reader(0)):
            raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        run(main())


def test_a_cancellation_from_outside_is_raised_and_not_taken_for_a_drain() -> None:
    async def main() -> None:
        stop = StopRequest(drain_timeout=SECOND)

        async def read() -> None:
            async with stop.draining(Reader(0)):
                await asyncio.Event().wait()

        reading = asyncio.create_task(read())
        await asyncio.sleep(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    run(main())


def test_a_cancellation_without_a_signal_is_an_error_and_no_end() -> None:
    async def main() -> None:
        async with on_signals(StopRequest(drain_timeout=SECOND)):
            raise asyncio.CancelledError

    with pytest.raises(StreamError, match="cancelled without a signal"):
        asyncio.run(main())


def test_a_signal_before_reading_has_started_cancels() -> None:
    async def main() -> None:
        async with on_signals(StopRequest(drain_timeout=SECOND)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
