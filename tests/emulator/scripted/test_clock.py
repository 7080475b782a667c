import asyncio

import pytest

from connector.core.timestamps import SECOND
from emulator import ScriptedClock
from tests.property import virtual_time

_ORIGIN = 1_790_000_000 * SECOND + 1


def test_the_clock_shows_its_origin_until_a_loop_runs() -> None:
    clock = ScriptedClock(_ORIGIN)
    assert clock.now() == _ORIGIN

    async def later() -> int:
        await asyncio.sleep(100)
        first = clock.now()
        await asyncio.sleep(2)
        return clock.now() - first

    assert virtual_time.run(later()) == 2 * SECOND


def test_the_clock_runs_at_its_speed() -> None:
    async def main() -> tuple[int, float]:
        clock = ScriptedClock(_ORIGIN, speed=60)
        clock.start()
        await clock.sleep_until(_ORIGIN + 3600 * SECOND)
        return clock.now(), asyncio.get_running_loop().time()

    now, took = virtual_time.run(main())
    assert now >= _ORIGIN + 3600 * SECOND
    assert took == pytest.approx(60)


def test_sleeping_until_a_time_that_has_passed_returns_at_once() -> None:
    async def main() -> float:
        clock = ScriptedClock(_ORIGIN)
        await clock.sleep_until(_ORIGIN)
        await clock.sleep_until(_ORIGIN - 1)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(main()) == 0


def test_every_nanosecond_can_be_slept_until() -> None:
    async def main() -> None:
        clock = ScriptedClock(_ORIGIN)
        clock.start()
        await asyncio.sleep(1e6)  # where a float of seconds has few digits left
        for step in (1, 3, 999):
            wanted = clock.now() + step
            await clock.sleep_until(wanted)
            assert clock.now() >= wanted

    virtual_time.run(main())


def test_the_clock_can_be_read_outside_its_loop() -> None:
    clock = ScriptedClock(_ORIGIN)

    async def start() -> None:
        clock.start()
        await asyncio.sleep(5)

    virtual_time.run(start())
    assert clock.now() == _ORIGIN + 5 * SECOND


def test_a_speed_of_zero_or_less_is_rejected() -> None:
    with pytest.raises(ValueError, match="speed"):
        ScriptedClock(_ORIGIN, speed=0)
