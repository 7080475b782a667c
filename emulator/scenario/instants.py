"""Draws the timestamps of a scripted stream's events, with the edge cases that are hard for readers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from connector.core.timestamps import MINUTE


def instants(random: Random, first: int, last: int, count: int, marks: Sequence[int] = ()) -> list[int]:
    """Draws timestamps from `first` to `last`, both inclusive, in order, with many edge cases.

    Edge cases are equal timestamps, timestamps a nanosecond apart, the last and the first nanosecond of a minute, and
    timestamps at and next to `marks`.
    """
    drawn: list[int] = []
    for _ in range(count):
        roll = random.random()
        if drawn and roll < 0.2:
            at = random.choice(drawn) + random.choice((0, 0, 1, 2, 1000))
        elif marks and roll < 0.4:
            at = random.choice(marks) + random.choice((-1, 0, 0, 1))
        else:
            at = random.randint(first, last)
            if roll > 0.93:
                at += MINUTE - at % MINUTE - random.choice((0, 1))
        drawn.append(at if first <= at <= last else random.randint(first, last))
    return sorted(drawn)
