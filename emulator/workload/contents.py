"""Models the rows of the sample's tables in memory, with the child rows that a delete deletes too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from emulator.workload.journal import PlannedMod, Row
from emulator.workload.tables import Table
from emulator.workload.values import Value

Key = tuple[Value, ...]


class Contents:
    """Rows by table and key, in Spanner's JSON encoding; `rows[table][key]` has the columns outside the key."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = {table.name: table for table in tables}
        self.rows: dict[str, dict[Key, Row]] = {name: {} for name in self.tables}
        self._keys: dict[str, list[Key]] = {name: [] for name in self.tables}
        self._places: dict[str, dict[Key, int]] = {name: {} for name in self.tables}

    def sample(self, random: Random, table: str) -> Key | None:
        """Draws a row's key, in constant time; None from an empty table."""
        return random.choice(self._keys[table]) if self._keys[table] else None

    def children(self, table: str, key: Key) -> Iterator[tuple[str, Key]]:
        """Yields the rows that are deleted with this row, by table and key, children's children included."""
        for child in self.tables.values():
            if child.parent == table:
                for child_key in self.rows[child.name]:
                    if child_key[: len(key)] == key:
                        yield child.name, child_key
                        yield from self.children(child.name, child_key)

    def apply(self, mods: Iterable[PlannedMod]) -> None:
        """Applies committed mods."""
        for mod in mods:
            key = tuple(mod.keys.values())
            if mod.mod_type == "DELETE":
                self._remove(mod.table, key)
            else:
                if key not in self.rows[mod.table]:
                    self._places[mod.table][key] = len(self._keys[mod.table])
                    self._keys[mod.table].append(key)
                self.rows[mod.table][key] = mod.row

    def _remove(self, table: str, key: Key) -> None:
        """Removes a row; the last key takes its place in the list that is sampled."""
        del self.rows[table][key]
        keys, places = self._keys[table], self._places[table]
        place, last = places.pop(key), keys.pop()
        if last != key:
            keys[place] = last
            places[last] = place
