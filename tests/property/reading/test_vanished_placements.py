"""A placement that comes, gets rows, and goes while nothing is read: reading ends with one line, or loses nothing."""

import asyncio
from collections.abc import Sequence

import pytest

from connector.core.records import function_of
from connector.core.timestamps import SECOND
from connector.errors import PlacementLostError, SpannerCdcError, StreamGoneError
from emulator.scenario.history import Change
from emulator.scenario.placements import Placement
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import FaultPlan
from emulator.scripted.framing import Framing
from emulator.scripted.spanner import ScriptedSpanner
from tests.property.reading.whole_reader import ORIGIN, Memory, WholeReader, of_change


class DownMeanwhile(WholeReader):
    """Reads up to some time, is down until a placement was emptied and dropped, and reads on.

    Args:
        scenario: the history.
        placement: the placement.
        until: the time at which the reader goes down, Unix nanoseconds.
    """

    def __init__(self, scenario: Scenario, placement: Placement, until: int) -> None:
        super().__init__(scenario.seed, scenario, crashes=0, faults=FaultPlan())
        self.placement = placement
        self.until = until
        self.error: SpannerCdcError | None = None
        self.sealed = 0
        self.function = ""
        self.lost = 0

    async def _run(self) -> None:
        history, name = self.scenario.history, self.placement.name
        clock = ScriptedClock(ORIGIN)
        clock.start()
        engine = ScriptedSpanner(self.scenario, clock=clock, faults=self.faults, framing=Framing.drawn(self.seed))
        sink = Memory(history.origin, self.random, may_be_empty=True)
        reading = asyncio.create_task(self._read(engine, sink, clock))
        await asyncio.wait({reading}, timeout=(self.until - ORIGIN) / SECOND)
        reading.cancel()
        await asyncio.wait({reading})
        self.sealed = sink.watermark
        self.in_cut = {str(function_of(one.token)).rpartition("_")[2].lower() for one in sink.cut}
        await clock.sleep_until(max(self.scenario.emptied[name], self.until) + 30 * SECOND)
        engine.drop_placement(name)
        await clock.sleep_until(clock.now() + 30 * SECOND)
        wanted = [of_change(change) for change in history.in_commit_order()]
        try:
            async with asyncio.timeout(7200):
                await self._read(engine, sink, clock)
        except SpannerCdcError as error:
            self.error = error
        engine.close()
        assert sink.delivered == [one for one in wanted if one[0] <= sink.watermark], "something was lost"


def emptied(seed: int) -> tuple[Scenario, Sequence[Placement]]:
    """A history, and its placements that are created and emptied within it."""
    scenario = Scenario.generate(
        seed, origin=ORIGIN, seconds=60, transactions=200, churn=20, placements=4, mode="MUTABLE_KEY_RANGE"
    )
    assert scenario.placements is not None
    return scenario, [one for one in scenario.placements.each if one.emptied is not None]


def of_placement(scenario: Scenario, placement: Placement) -> bool:
    """True if the placement has records."""
    own = (one for one in scenario.history.partitions.values() if one.placement == placement.name)
    return any(isinstance(event, Change) for one in own for event in one.events)


@pytest.mark.long
def test_what_is_dropped_before_it_was_read_ends_with_one_line() -> None:
    ended = 0
    for seed in range(40):
        scenario, placements = emptied(seed)
        for one in placements:
            if one.created < ORIGIN + 3 * SECOND:
                continue
            reader = DownMeanwhile(scenario, one, (ORIGIN + one.created) // 2)
            reader.run()
            assert reader.sealed < one.created
            assert isinstance(reader.error, PlacementLostError), seed
            assert f"placement {one.name} was dropped before it was read" in str(reader.error)
            ended += of_placement(scenario, one)
    assert ended > 2


@pytest.mark.long
def test_what_was_emptied_before_the_reader_went_down_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warned = 0
    for seed in range(20):
        scenario, placements = emptied(seed)
        for one in placements[:1]:
            reader = DownMeanwhile(scenario, one, scenario.emptied[one.name] + 5 * SECOND)
            caplog.clear()
            reader.run()
            assert reader.error is None, seed
            warned += "a placement was dropped while nothing was read" in caplog.text
    assert warned > 2


@pytest.mark.long
def test_what_is_dropped_while_its_partitions_are_read_ends_with_one_line() -> None:
    ended = 0
    for seed in range(20):
        scenario, placements = emptied(seed)
        for one in placements[:1]:
            at = (max(one.created, ORIGIN) + scenario.emptied[one.name]) // 2
            if at < ORIGIN + 5 * SECOND or scenario.emptied[one.name] - at < 3 * SECOND:
                continue
            reader = DownMeanwhile(scenario, one, at)
            reader.run()
            assert isinstance(reader.error, (StreamGoneError, PlacementLostError)), seed
            ended += 1
    assert ended > 2
