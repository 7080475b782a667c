"""What a seed has to go through beside the deaths of its lives: one thing at most, or none.

Which of them is drawn apart from all else, and in rounds in which each has its turn: a seed of before keeps its
scenario, unless it has to stand still, which takes one of some hours.
"""

import re
from enum import StrEnum
from random import Random

_WITHOUT = 3
"""Seeds of each round that go through nothing of this kind."""


class Ordeal(StrEnum):
    """What it is; the text stands in the summary."""

    STOPPED = "the daemon stopped for longer than a window"
    CLOCK_STILL = "the clock stood still for longer than a window"
    OUTAGE = "Spanner was out of reach for longer than a window"
    LATE_SERVER = "first messages came late, longer than the patience of a first query"
    OUT_OF_ORDER = "a record or an announcement came out of order"
    OLD_SPOOL = "an older copy of the spool was put back"
    OLD_CHECKPOINT = "an older copy of the sink's checkpoint was put back"
    DROPPED_TABLE = "a table that source.tables names was dropped"
    KEYLESS_TABLE = "a table with PRIMARY KEY()"


STANDSTILLS = frozenset((Ordeal.STOPPED, Ordeal.CLOCK_STILL, Ordeal.OUTAGE))
OLD_COPIES = frozenset((Ordeal.OLD_SPOOL, Ordeal.OLD_CHECKPOINT))

ROUND = len(Ordeal) + _WITHOUT

_LATE = re.compile(r"is late: Spanner had proved that everything up to")
_UNREAD = re.compile(r"were delivered without it, and it is not read again")
_OTHER_COPY = re.compile(r"is another copy|was put back from an older|The checkpoint is an older copy")


class SaidWhyError(Exception):
    """The run has ended where it had to, with a line that says why; what is missing was told."""


def ordeal_of(seed: int) -> Ordeal | None:
    """What a seed goes through."""
    turns: list[Ordeal | None] = [*Ordeal, *[None] * _WITHOUT]
    Random(f"soak ordeals {seed // ROUND}").shuffle(turns)
    return turns[seed % ROUND]


def is_told_of(ordeal: Ordeal | None, line: str) -> bool:
    """Whether a line of a log tells of the ordeal, so that an end with it is as it should be."""
    if ordeal is Ordeal.OUT_OF_ORDER:
        return _LATE.search(line) is not None
    return ordeal in OLD_COPIES and _OTHER_COPY.search(line) is not None


def is_lost_and_told(line: str) -> bool:
    """Whether a line tells that epochs were delivered without a record that came too late."""
    return _UNREAD.search(line) is not None
