"""Draws the transactions of a scripted database against a model of its contents.

They have what the official emulator cannot report. Rows hold NaN and infinities, arrays with NULL elements, timestamps
with nanoseconds, and commit timestamps. Transactions share commit timestamps, and a column may be added to a table.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from connector.core.timestamps import format_rfc3339
from emulator.scenario.placements import LOCATION, PLACEMENT_TABLES
from emulator.workload.contents import Contents, Key
from emulator.workload.journal import PlannedMod
from emulator.workload.plan import Planner
from emulator.workload.tables import TABLES, Column, Dialect, Table
from emulator.workload.values import Value

ADDED = Column("Added1", "STRING")
"""The column that a schema change adds."""

_EXTREMES = ("NaN", "Infinity", "-Infinity")
_TAGS = ("app=checkout,action=pay", "naïve tag", 'say "hi"', "t" * 50)
_RUN_LENGTH = 2.0
_ATTEMPTS = 10

Row = tuple[str, Key]
"""The table and the key of a row."""


@dataclass(frozen=True, slots=True)
class DrawnTransaction:
    """A committed transaction: its mods in the order of writing, each with its table at that time."""

    commit_timestamp: int
    id: str
    mods: tuple[tuple[Table, PlannedMod], ...]
    tag: str = ""
    is_system: bool = False


class Transactions:
    """Draws committed transactions on the sample's tables, which are kept near `rows_per_table` rows.

    With `locations` some tables have a placement key; they return the placements in which rows may be put at a time.
    """

    def __init__(
        self,
        random: Random,
        dialect: Dialect,
        *,
        average_size: float,
        rows_per_table: int,
        locations: Callable[[int], Sequence[str]] | None = None,
    ) -> None:
        self._random = random
        self._locations = locations
        self._contents = Contents(TABLES if locations is None else tuple(map(_with_placement_key, TABLES)))
        self._planner = Planner(
            self._contents,
            random,
            dialect,
            average_size=average_size,
            rows_per_table=rows_per_table,
            run_length=_RUN_LENGTH,
        )
        self._earliest = 0
        self._now = 0
        self._written: set[Row] = set()
        self._needed: set[Row] = set()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables with their current columns."""
        return tuple(self._contents.tables.values())

    def commit(self, at: int) -> DrawnTransaction:
        """Commits at `at` or a little later: in the order of the calls, and never two changes of a row at once.

        Transactions with the same commit timestamp write neither the same rows nor each other's parents, so that they
        can be applied in any order.
        """
        plan = self._planner.transaction().mods
        at = self._at(max(at, self._now, self._earliest), plan)
        return self._transaction(at, self._apply(at, plan))

    def commit_and_add_column(self, at: int) -> DrawnTransaction:
        """Adds a column to a table at the timestamp of a commit; no other transaction has that timestamp.

        If rows allow it, some of the transaction's mods have the old schema and some, of the same table, the new one;
        otherwise all of them have the old one.
        """
        at = max(at, self._now + 1, self._earliest)
        plan = self._planner.transaction().mods
        self._at(at, plan)
        mods = self._apply(at, plan)
        table = self._random.choice([table for table, _ in mods])
        self._add_column(table)
        for _ in range(_ATTEMPTS):
            plan = self._planner.transaction().mods
            if any(mod.table == table.name for mod in plan) and not self._conflicts(plan):
                mods += self._apply(at, plan)
                break
        self._earliest = at + 1
        return self._transaction(at, mods)

    def _at(self, at: int, plan: Sequence[PlannedMod]) -> int:
        """Advance to the first timestamp from `at` on without a conflict with another transaction, and return it."""
        if at == self._now and self._conflicts(plan):
            at += 1
        if at != self._now:
            self._now = at
            self._written, self._needed = set(), set()
        return at

    def _conflicts(self, plan: Sequence[PlannedMod]) -> bool:
        written, needed = self._footprint(plan)
        return not (
            written.isdisjoint(self._written) and written.isdisjoint(self._needed) and needed.isdisjoint(self._written)
        )

    def _footprint(self, plan: Iterable[PlannedMod]) -> tuple[set[Row], set[Row]]:
        """Returns the rows that are written, and the rows that must exist for it: their parents."""
        written: set[Row] = set()
        needed: set[Row] = set()
        for mod in plan:
            key = tuple(mod.keys.values())
            written.add((mod.table, key))
            table = self._contents.tables[mod.table]
            while table.parent:
                table = self._contents.tables[table.parent]
                needed.add((table.name, key[: table.key_length]))
        return written, needed

    def _apply(self, at: int, plan: Sequence[PlannedMod]) -> list[tuple[Table, PlannedMod]]:
        written, needed = self._footprint(plan)
        self._written |= written
        self._needed |= needed
        mods = [self._with_extremes(mod, at) for mod in plan]
        self._contents.apply(mods)
        return [(self._contents.tables[mod.table], mod) for mod in mods]

    def _transaction(self, at: int, mods: list[tuple[Table, PlannedMod]]) -> DrawnTransaction:
        random = self._random
        identity = base64.b64encode(random.randbytes(12)).decode()
        if random.random() < 0.5 and all(mod.mod_type == "DELETE" for _, mod in mods):
            return DrawnTransaction(at, identity, tuple(mods), "RowDeletionPolicy", is_system=True)
        tag = random.choice(_TAGS) if random.random() < 0.2 else ""
        return DrawnTransaction(at, identity, tuple(mods), tag)

    def _add_column(self, table: Table) -> None:
        """Adds the column; existing rows hold NULL in it."""
        self._contents.tables[table.name] = replace(table, columns=(*table.columns, ADDED))
        rows = self._contents.rows[table.name]
        for key, row in rows.items():
            rows[key] = {**row, ADDED.name: None}

    def _with_extremes(self, mod: PlannedMod, at: int) -> PlannedMod:
        """Replaces some values by ones that the official emulator cannot report."""
        if mod.mod_type == "DELETE":
            return mod
        table = self._contents.tables[mod.table]
        columns = {column.name: column for column in table.values}
        replaced = {
            name: _extreme(self._random, columns[name], value, at)
            for name, value in mod.new_values.items()
            if self._random.random() < 0.2
        }
        if self._locations is not None and LOCATION in mod.new_values:
            replaced[LOCATION] = self._random.choice(self._locations(at))
        return replace(mod, new_values={**mod.new_values, **replaced}, row={**mod.row, **replaced})


def _with_placement_key(table: Table) -> Table:
    if table.name not in PLACEMENT_TABLES:
        return table
    return replace(table, columns=(*table.columns, Column(LOCATION, "STRING", nullable=False)))


def rfc3339(timestamp: int) -> str:
    """Formats a timestamp as Spanner writes a TIMESTAMP, without trailing zeros."""
    return format_rfc3339(timestamp).removesuffix("Z").rstrip("0").removesuffix(".") + "Z"


def _extreme(random: Random, column: Column, value: Value, at: int) -> Value:
    """Returns a harder value of the column's type; the same value if there is none."""
    if column.commit_timestamp:
        return rfc3339(at)
    if isinstance(value, list):
        elements: list[Value] = [_extreme_scalar(random, column.type, element) for element in value]
        elements.insert(random.randint(0, len(elements)), None)
        return elements
    return _extreme_scalar(random, column.type, value)


def _extreme_scalar(random: Random, kind: str, value: Value) -> Value:
    if value is not None and kind in ("FLOAT32", "FLOAT64"):
        return random.choice(_EXTREMES)
    if isinstance(value, str) and kind == "TIMESTAMP":
        return value.partition(".")[0].removesuffix("Z") + random.choice((".000000001Z", ".123456789Z", ".999999999Z"))
    return value
