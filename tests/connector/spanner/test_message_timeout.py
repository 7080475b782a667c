import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest

from connector.spanner.message_timeout import MessageTimeout
from tests.property.virtual_time import VirtualTimeLoop, run

LIMIT = 10.0


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def watched() -> AsyncIterator[MessageTimeout]:
    with closing(MessageTimeout(LIMIT)) as watchdog:
        yield watchdog


def test_a_wait_that_takes_too_long_ends_at_the_limit() -> None:
    async def main() -> None:
        async with watched() as watchdog:
            with pytest.raises(TimeoutError), watchdog:
                await asyncio.sleep(3600)
            assert now() == pytest.approx(LIMIT)

    run(main())


def test_each_wait_has_the_limit_to_itself() -> None:
    async def main() -> None:
        async with watched() as watchdog:
            for seconds in (9.0, 1.0, 9.9, 9.9, 0.0, 4.0):
                with watchdog:
                    await asyncio.sleep(seconds)
            began = now()
            with pytest.raises(TimeoutError), watchdog:
                await asyncio.sleep(3600)
            assert now() == pytest.approx(began + LIMIT)

    run(main())


def test_what_lies_between_two_waits_does_not_count() -> None:
    async def main() -> None:
        async with watched() as watchdog:
            for pause in (5.0, 9.0, 100.0, 0.0):
                with watchdog:
                    await asyncio.sleep(6.0)
                await asyncio.sleep(pause)
            began = now()
            with pytest.raises(TimeoutError), watchdog:
                await asyncio.sleep(3600)
            assert now() == pytest.approx(began + LIMIT)

    run(main())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait() -> None:
        async with watched() as watchdog:
            with watchdog:
                await asyncio.sleep(3600)

    async def main() -> None:
        for moment in (5.0, LIMIT):  # at the limit both come at once
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(moment)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(main())


def test_a_wait_that_succeeds_as_the_limit_passes_is_not_an_error() -> None:
    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

    async def main() -> None:
        async with watched() as watchdog:
            with watchdog:
                await stubborn()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(1)

    run(main())


def test_another_error_passes() -> None:
    async def main() -> None:
        async with watched() as watchdog:
            with pytest.raises(ValueError, match="other"), watchdog:
                raise ValueError("other")

    run(main())


def test_a_limit_that_has_become_shorter_counts_from_the_next_wait_on() -> None:
    async def main() -> None:
        async with watched() as watchdog:
            watchdog.limit = 600.0
            with watchdog:
                await asyncio.sleep(400)
            watchdog.limit = LIMIT
            began = now()
            with pytest.raises(TimeoutError), watchdog:
                await asyncio.sleep(3600)
            assert now() == pytest.approx(began + LIMIT)

    run(main())


def test_a_time_in_which_the_process_was_suspended_is_not_silence() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        async with watched() as watchdog:
            with watchdog:
                await asyncio.sleep(5)
                loop.stall(7200)
                await asyncio.sleep(LIMIT - 1)
            began = now()
            with pytest.raises(TimeoutError), watchdog:
                await asyncio.sleep(3600)
            assert now() == pytest.approx(began + LIMIT)

    run(main())
