"""Timelines: which partition owns which keys at which timestamp."""

from functools import cache
from itertools import pairwise
from random import Random

import pytest

from connector.core.timestamps import SECOND
from emulator.scenario.history import (
    PartitionEvent,
    PartitionMode,
)
from emulator.scenario.instants import instants
from emulator.scenario.timelines import WHOLE, Timelines, timelines
from tests.emulator.scenario.drawn import LENGTHS, ORIGIN, SEEDS, by_seed_and_mode


@cache
def drawn_timelines(seed: int, mode: PartitionMode) -> Timelines:
    seconds = LENGTHS[seed % 3]
    return timelines(Random(seed), mode, ORIGIN, ORIGIN + int(seconds * SECOND), churn=30, first_partitions=3)


@by_seed_and_mode
def test_at_any_timestamp_each_place_has_one_owner(seed: int, mode: PartitionMode) -> None:
    drawn = drawn_timelines(seed, mode)
    for at in {mark + step for mark in drawn.marks() for step in (-1, 0, 1)} - {ORIGIN - 1}:
        owned = sorted(
            (span.low, span.high, span.token)
            for span in drawn.spans
            if span.since <= at and (span.until is None or at < span.until)
        )
        assert (owned[0][0], owned[-1][1]) == (0, WHOLE)
        assert all(one[1] == other[0] for one, other in pairwise(owned))
        for low, high, token in owned:
            assert low < high
            assert drawn.partitions[token].covers(at)
            assert {drawn.owner(low, at), drawn.owner(high - 1, at)} == {token}


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_at_the_timestamp_of_a_move_stay_on_the_source(seed: int) -> None:
    drawn = drawn_timelines(seed, "MUTABLE_KEY_RANGE")
    moves = {
        (notice.token, destination, notice.record.timestamp)
        for notice in drawn.notices
        if isinstance(notice.record, PartitionEvent)
        for destination in notice.record.destinations
    }
    for span in drawn.spans:
        for other in drawn.spans:
            if (
                span.until is not None
                and other.since == span.until
                and overlap(span.low, span.high, other.low, other.high)
            ):
                after = (span.token, other.token, span.until - 1) in moves
                starts = drawn.partitions[other.token].start == span.until
                assert after or (starts and (span.token, other.token, span.until) in moves)


def overlap(low: int, high: int, other_low: int, other_high: int) -> bool:
    return max(low, other_low) < min(high, other_high)


def test_timestamps_are_in_order_and_within_their_bounds() -> None:
    drawn = instants(Random(1), ORIGIN, ORIGIN + 10, 500, [ORIGIN, ORIGIN + 10])
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (ORIGIN, ORIGIN + 10)
