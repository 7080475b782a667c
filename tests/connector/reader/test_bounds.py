"""The ends of queries, and the times at which Spanner's clock is requested for them."""

import asyncio

import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.reader.bounds import NEAR_END, Bounds
from connector.spanner.clock import SpannerClock
from tests.property.virtual_time import run

START = 1_800_000_000 * SECOND
WINDOW = 30 * MINUTE


class Spanner:
    """Its clock goes with the loop's time, from ``START`` on."""

    def __init__(self) -> None:
        self.requests = 0

    async def clock(self) -> int:
        self.requests += 1
        return START + round(asyncio.get_running_loop().time() * SECOND)


def bounds_of(spanner: Spanner, *, end: int | None = None, window: int | None = WINDOW) -> Bounds:
    return Bounds(end, window, SpannerClock(spanner.clock, START))


def test_a_window_lies_ahead_of_the_clock_as_far_as_that_is_known_and_within_half_an_hour() -> None:
    bounds = bounds_of(Spanner())
    for token in map(str, range(100)):
        for start in (START - 10 * MINUTE, START, START + MINUTE):
            bound = bounds.of(token, start)
            assert bound is not None
            assert WINDOW // 2 < bound - max(start, START) <= WINDOW
            assert bounds.proven(bound) is None


@pytest.mark.parametrize(("clean", "news"), [(True, True), (True, False), (False, False)])
def test_after_a_window_that_ended_or_made_no_progress_the_next_starts_from_the_present_clock(
    clean: bool, news: bool
) -> None:
    async def main() -> None:
        spanner = Spanner()
        bounds = bounds_of(spanner)
        await bounds.settle("p")
        old = bounds.of("p", START)
        await asyncio.sleep(7200)
        bounds.ended("p", old, clean=clean, news=news)
        await bounds.settle("p")
        new = bounds.of("p", START)
        assert old is not None
        assert new == old + 7200 * SECOND
        assert spanner.requests == 1
        await bounds.settle("p")
        assert spanner.requests == 1, "once for each query"

    run(main())


def test_after_a_window_that_broke_with_progress_the_clock_is_not_requested() -> None:
    async def main() -> None:
        spanner = Spanner()
        bounds = bounds_of(spanner)
        bounds.ended("p", bounds.of("p", START), clean=False, news=True)
        await bounds.settle("p")
        assert spanner.requests == 0

    run(main())


def test_without_windows_and_an_end_the_clock_is_not_requested() -> None:
    async def main() -> None:
        spanner = Spanner()
        bounds = bounds_of(spanner, window=None)
        bounds.ended("p", bounds.of("p", START), clean=True, news=False)
        await bounds.settle("p")
        assert (bounds.of("p", START), spanner.requests) == (None, 0)

    run(main())


@pytest.mark.parametrize("left", [0.0, 1.0, NEAR_END])
def test_a_clean_end_shortly_before_the_users_end_waits_for_it_and_is_then_provable(left: float) -> None:
    async def main() -> None:
        end = START + round(left * SECOND)
        bounds = bounds_of(Spanner(), end=end, window=None)
        assert bounds.proven(end) is None
        bounds.ended("p", end, clean=True, news=False)
        await bounds.settle("p")
        assert bounds.proven(end) == end
        assert asyncio.get_running_loop().time() <= left + 0.1

    run(main())


def test_a_clean_end_long_before_the_users_end_waits_for_nothing() -> None:
    async def main() -> None:
        end = START + 3600 * SECOND
        bounds = bounds_of(Spanner(), end=end, window=None)
        bounds.ended("p", end, clean=True, news=False)
        await bounds.settle("p")
        assert asyncio.get_running_loop().time() == 0
        assert bounds.proven(end) is None

    run(main())
