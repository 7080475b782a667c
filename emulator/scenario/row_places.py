"""Follows the rows of a scripted stream to their places: by their keys, and by their placements if there are any.

A row with a placement key is at a place that a partition of its placement owns when it is inserted, with its children.
An UPDATE of the placement key moves it: the UPDATE is one ordinary change, on the source or on the destination, and
both report the move by a partition event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from emulator.scenario.history import PartitionEvent
from emulator.scenario.placements import LOCATION
from emulator.scenario.timelines import WHOLE, Timelines
from emulator.scenario.transactions import DrawnTransaction
from emulator.workload.journal import PlannedMod, Row
from emulator.workload.tables import Table
from emulator.workload.values import Value

_Root = tuple[Value, ...]


@dataclass(slots=True)
class RowMoves:
    """The moves of rows in one transaction: pairs of a source's and a destination's token."""

    out: dict[str, list[str]] = field(default_factory=dict)
    into: dict[str, list[str]] = field(default_factory=dict)

    def add(self, source: str, destination: str) -> None:
        """Adds a move, once for each pair."""
        if destination not in self.out.setdefault(source, []):
            self.out[source].append(destination)
            self.into.setdefault(destination, []).append(source)

    def before(self, at: int) -> Iterator[tuple[str, PartitionEvent]]:
        """Yields the events that come before the transaction's changes: keys that move in."""
        for token, sources in self.into.items():
            if token not in self.out:
                yield token, PartitionEvent(at, "", token, sources=tuple(sources))

    def after(self, at: int) -> Iterator[tuple[str, PartitionEvent]]:
        """Yields the events that come after the transaction's changes: keys that move out, or out and in."""
        for token, destinations in self.out.items():
            sources = tuple(self.into.get(token, ()))
            yield token, PartitionEvent(at, "", token, sources, tuple(destinations))


class RowPlaces:
    """The places of all rows.

    A row without a place of its own is where its key is hashed to; with placements, where its topmost parent's is.
    """

    def __init__(self, random: Random, lines: Timelines) -> None:
        self._random = random
        self._lines = lines
        self._places: dict[_Root, int] = {}
        self._moved: dict[_Root, int] = {}
        self._carried: dict[_Root, str] = {}

    def owner(self, table: Table, keys: Row, at: int) -> str:
        """Returns the token of the partition that holds the change of a row at `at`."""
        root = self._root(table, keys)
        if root in self._carried:
            return self._carried[root]
        if root not in self._places:
            self._places[root] = place(*root)
        return self._lines.owner(self._places[root], at)

    def moves(self, transaction: DrawnTransaction) -> RowMoves:
        """Finds places for the rows that a transaction inserts or moves, and returns the moves."""
        moves = RowMoves()
        moved: list[tuple[_Root, str, str]] = []
        for table, mod in transaction.mods:
            location = mod.new_values.get(LOCATION)
            if isinstance(location, str):
                moved += self._place(table, mod, location, transaction.commit_timestamp)
        for _, source, destination in moved:
            moves.add(source, destination)
        for root, source, destination in moved:
            into = destination not in moves.out and self._random.random() < 0.5
            self._carried[root] = destination if into else source
        return moves

    def settle(self) -> None:
        """Lets the rows that were moved at the current timestamp be at their destinations from now on."""
        self._places |= self._moved
        self._moved = {}
        self._carried = {}

    def _place(self, table: Table, mod: PlannedMod, location: str, at: int) -> list[tuple[_Root, str, str]]:
        """Finds a place for a row, and returns its source and its destination if it moves between partitions."""
        spans = self._lines.settled(location, at)
        if not spans or (mod.mod_type == "UPDATE" and mod.old_row[LOCATION] == location):
            return []
        root, span = self._root(table, mod.keys), self._random.choice(spans)
        to = self._random.randrange(span.low, span.high)
        if mod.mod_type == "INSERT":
            self._places[root] = to
            return []
        source = self.owner(table, mod.keys, at)
        self._moved[root] = to
        return [(root, source, span.token)] if source != span.token else []

    def _root(self, table: Table, keys: Row) -> _Root:
        """Returns the table and the key of a row, with placements those of its parent, whose key is one column."""
        values = tuple(keys.values())
        return (table.parent, *values[:1]) if table.parent and self._lines.placements else (table.name, *values)


def place(*key: Value) -> int:
    """Hashes a row's table and key to its place, from 0 to WHOLE - 1."""
    text = json.dumps(key)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") % WHOLE
