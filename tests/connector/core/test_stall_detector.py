"""Decides when the watermark is stalled for a reason outside the reader."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.stall_detector import LONGEST_PAUSE, StallDetector
from connector.core.timestamps import SECOND

PATIENCE, STEP = 60.0, 10.0
START = 1_800_000_000 * SECOND


class Watched:
    """A detector on a clock of its own; Spanner's clock advances as fast."""

    def __init__(self) -> None:
        self.detector = StallDetector(PATIENCE, step=STEP)
        self.now = 1000.0
        self.watermark = START
        self.reported_at: list[float] = []
        self.look()

    @property
    def clock(self) -> int:
        return START + round((self.now - 1000.0) * SECOND)

    def look(self, *, waits_for_reader: bool = False, clock: int | None = None) -> None:
        clock = self.clock if clock is None else clock
        known = min(clock, self.watermark)
        if self.detector.look(self.now, watermark=self.watermark, clock=known, waits_for_reader=waits_for_reader) and (
            self.detector.is_stalled(clock)
        ):
            self.reported_at.append(self.now - 1000.0)

    def for_seconds(
        self, seconds: float, *, waits_for_reader: bool = False, moves: bool = False, clock: int | None = None
    ) -> None:
        for _ in range(round(seconds / 5)):
            self.now += 5
            self.watermark += moves
            self.look(waits_for_reader=waits_for_reader, clock=clock)


def test_a_stalled_watermark_is_reported_again_after_twice_the_pause_each_time() -> None:
    watched = Watched()
    watched.for_seconds(1000)
    assert watched.reported_at == [60, 180, 420, 900]
    assert watched.detector.times == 4
    watched.for_seconds(40_000)
    pauses = [later - sooner for sooner, later in pairwise(watched.reported_at)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_a_watermark_that_moves_however_little_is_not_reported_and_restarts_the_count() -> None:
    watched = Watched()
    watched.for_seconds(1000, moves=True)
    assert not watched.reported_at
    watched.for_seconds(100)
    watched.for_seconds(5, moves=True)
    assert watched.detector.times == 0
    watched.for_seconds(60)
    assert watched.reported_at == [1060, 1165]


def test_a_watermark_that_waits_for_the_reader_is_not_stalled_and_its_time_does_not_count() -> None:
    watched = Watched()
    watched.for_seconds(55)
    watched.for_seconds(10_000, waits_for_reader=True)
    watched.for_seconds(55)
    assert not watched.reported_at
    watched.for_seconds(5)
    assert watched.reported_at == [10_115]


def test_a_time_in_which_the_process_was_suspended_counts_as_one_step() -> None:
    watched = Watched()
    watched.now += 7200
    watched.look()
    assert watched.detector.stalled_for == STEP
    assert not watched.reported_at


def test_an_outage_of_spanner_does_not_count() -> None:
    watched = Watched()
    watched.for_seconds(55)
    watched.detector.reset()
    watched.for_seconds(55)
    assert not watched.reported_at
    watched.for_seconds(5)
    assert watched.reported_at == [115]


@pytest.mark.parametrize("ahead", [0, 3600 * SECOND])
def test_where_spanners_clock_does_not_advance_either_nothing_is_reported(ahead: int) -> None:
    watched = Watched()
    watched.detector = StallDetector(PATIENCE, step=STEP)
    assert not watched.detector.look(watched.now, watermark=START, clock=START + ahead, waits_for_reader=False)
    for _ in range(100):
        watched.now += 5
        stands = watched.detector.look(watched.now, watermark=START, clock=START + ahead, waits_for_reader=False)
        assert not (stands and watched.detector.is_stalled(START + ahead))


def test_a_watermark_that_is_where_spanners_clock_is_waits_for_nothing() -> None:
    watched = Watched()
    watched.for_seconds(1000, clock=START + 59 * SECOND)
    assert not watched.reported_at


steps = st.lists(
    st.tuples(
        st.floats(0.1, STEP) | st.floats(STEP, 1e6),
        st.sampled_from(("moves", "waits_for_reader", "stands", "stands", "stands", "stands")),
    ),
    max_size=200,
)


@given(steps)
def test_it_is_noticed_exactly_when_it_has_stood_for_so_long_in_steps_that_count(
    steps: list[tuple[float, str]],
) -> None:
    watched = Watched()
    stood, due, times = 0.0, PATIENCE, 0
    for passed, what in steps:
        watched.now += passed
        watched.watermark += what == "moves"
        before = len(watched.reported_at)
        watched.look(waits_for_reader=what == "waits_for_reader", clock=START + 10**9 * SECOND + round(watched.now))
        if what != "stands":
            stood, due, times = 0.0, PATIENCE, 0
        else:
            stood += min(passed, STEP)
        is_due = what == "stands" and stood >= due
        assert len(watched.reported_at) - before == is_due
        if is_due:
            times += 1
            due = stood + min(PATIENCE * 2**times, LONGEST_PAUSE)
        assert watched.detector.times == times
