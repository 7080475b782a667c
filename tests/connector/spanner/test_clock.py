"""Spanner's clock: asked once for all who wait."""

import asyncio

import pytest

from connector.errors import StreamError, UnreachableError
from connector.spanner.clock import SpannerClock
from tests.property.virtual_time import run


class Spanner:
    """Takes a second for each answer."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def clock(self) -> int:
        self.asked += 1
        answer = self._answers.pop(0)
        await asyncio.sleep(1)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_thousands_of_waiters_share_one_answer_and_a_later_one_requests_another() -> None:
    async def main() -> None:
        spanner = Spanner(70, 80)
        clock = SpannerClock(spanner.clock, 50)
        assert await asyncio.gather(*(clock.read() for _ in range(5_000))) == [70] * 5_000
        assert (spanner.asked, clock.passed) == (1, 70)
        assert await clock.read() == 80
        assert spanner.asked == 2

    run(main())


def test_the_clock_never_goes_back() -> None:
    async def main() -> None:
        clock = SpannerClock(Spanner(40).clock, 50)
        clock.saw(60)
        clock.saw(55)
        assert await clock.read() == 60

    run(main())


def test_an_error_that_passes_is_shared_too_and_the_next_who_asks_may_have_an_answer() -> None:
    async def main() -> None:
        spanner = Spanner(UnreachableError("Spanner does not answer", hint="Wait."), 80)
        clock = SpannerClock(spanner.clock, 50)
        answers = await asyncio.gather(*(clock.read() for _ in range(100)), return_exceptions=True)
        assert {str(answer) for answer in answers} == {"Spanner does not answer. Wait."}
        assert spanner.asked == 1
        assert await clock.read() == 80

    run(main())


def test_an_error_that_is_shared_keeps_the_error_of_the_call() -> None:
    async def main() -> None:
        call = ConnectionError()
        error = UnreachableError("Spanner does not answer")
        error.__cause__ = call
        clock = SpannerClock(Spanner(error).clock, 50)
        with pytest.raises(UnreachableError) as caught:
            await clock.read()
        assert caught.value.__cause__ is call

    run(main())


def test_a_permanent_error_is_raised_unchanged() -> None:
    async def main() -> None:
        clock = SpannerClock(Spanner(StreamError("permission denied")).clock, 50)
        with pytest.raises(StreamError, match="permission denied"):
            await clock.read()

    run(main())


def test_a_cancelled_waiter_does_not_take_the_answer_from_others() -> None:
    async def main() -> None:
        spanner = Spanner(70, 80)
        clock = SpannerClock(spanner.clock, 50)
        first, second = asyncio.create_task(clock.read()), asyncio.create_task(clock.read())
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second == 80

    run(main())
