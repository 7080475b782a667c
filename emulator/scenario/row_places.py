"""Follows the rows of a scripted stream to their places: by their keys, and by their placements if there are any.

A row with a placement key is at a place that a partition of its placement owns when it is inserted, with its children.
An UPDATE of the placement key moves it: the UPDATE is one ordinary change, on the source or on the destination, and
both report the move by a partition event.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from random import Random

from emulator.scenario.history import Moves
from emulator.scenario.placements import LOCATION
from emulator.scenario.timelines import WHOLE, Timelines
from emulator.scenario.transactions import DrawnTransaction
from emulator.workload.journal import PlannedMod, Row
from emulator.workload.tables import Table
from emulator.workload.values import Value

_Root = tuple[Value, ...]


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

    def moves(self, transaction: DrawnTransaction) -> Moves:
        """Finds places for the rows that a transaction inserts or moves, and returns the moves."""
        moves = Moves()
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
