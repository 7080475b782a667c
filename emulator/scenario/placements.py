"""The placements of a scripted change stream with the option per_placement_tvf, each read by a function of its own.

A placement has partitions of its own, which only its function returns. Keys move between the partitions of different
placements as they do within one. Before a placement is dropped, its keys move away and its partitions end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from emulator.scenario.instants import instants

DEFAULT = "default"
"""The name of the placement that every database has."""

LOCATION = "Location"
"""The placement key: the column that says in which placement a row is."""

PLACEMENT_TABLES = ("Singers", "AllTypes", "Readings")
"""The sample's tables that get a placement key; children are where their parents are."""

_NAMES = ("europe", "Asia_East", "us_east", "sydney", "brazil", "nordics", "africa", "alps")

MOST_PLACEMENTS = len(_NAMES)
"""The most placements that are drawn beside the default one."""

EarlyStart = Literal["accepted", "earliest named", "refused"]
"""The answer to a start before a placement's creation: as from then on, or an error with the earliest start or none."""

_EARLY: tuple[EarlyStart, ...] = ("accepted", "earliest named", "refused")


@dataclass(slots=True)
class Placement:
    """A placement; times are nanoseconds since 1970.

    It and its function exist from `created` on, and its records come after that. From `emptied` on no keys are in it.
    From `dropped` on it is not listed, and from `function_dropped` on its function does not exist.
    """

    name: str
    created: int
    emptied: int | None = None
    dropped: int | None = None
    function_dropped: int | None = None

    def is_listed(self, at: int) -> bool:
        """True if the database lists it at that time."""
        return self.created <= at and (self.dropped is None or at < self.dropped)

    def has_function(self, at: int) -> bool:
        """True if its function exists at that time."""
        return self.created <= at and (self.function_dropped is None or at < self.function_dropped)


@dataclass(frozen=True, slots=True)
class Placements:
    """The placements of a database, the default one first, and how a stream's functions are served.

    With `has_plain` the function without a placement exists too: it reads the partitions of all placements.
    `routine_type` is what INFORMATION_SCHEMA.ROUTINES says of each function.
    """

    each: tuple[Placement, ...]
    has_plain: bool = False
    early: EarlyStart = "accepted"
    routine_type: str = "FUNCTION"

    def named(self, name: str) -> Placement:
        """Returns the placement of that name."""
        return next(placement for placement in self.each if placement.name == name)

    def without(self, name: str, at: int) -> Placements:
        """Returns these placements with one that is dropped at a time, with its function."""
        each = (
            replace(placement, dropped=at, function_dropped=at) if placement.name == name else placement
            for placement in self.each
        )
        return replace(self, each=tuple(each))


def draw_placements(random: Random, origin: int, horizon: int, count: int) -> Placements:
    """Draws `count` placements beside the default one; some are created, and some emptied, while the stream is served.

    Raises:
        ValueError: there are not so many names.
    """
    each = [Placement(DEFAULT, origin - 1)]
    for name in random.sample(_NAMES, count):
        created, emptied = instants(random, origin + 1, horizon, 2)
        first = origin - 1 if random.random() < 0.5 else created
        each.append(Placement(name, first, emptied if emptied > first and random.random() < 0.4 else None))
    return Placements(
        tuple(each),
        has_plain=random.random() < 0.5,
        early=random.choice(_EARLY),
        routine_type=random.choice(("FUNCTION", "TABLE FUNCTION")),
    )
