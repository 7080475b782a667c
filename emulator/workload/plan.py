"""Plans random transactions against the model of the tables' rows; pure except for the random generator passed in.

A plan never changes a row twice, because what a change stream reports of that depends on more than the rows. It
consists of mutations, or of one DML statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from google.cloud.spanner_v1.batch import Batch
from google.cloud.spanner_v1.keyset import KeyRange, KeySet

from emulator.workload.contents import Contents, Key
from emulator.workload.journal import PlannedMod, Row
from emulator.workload.tables import Column, Dialect, Table, quoted
from emulator.workload.values import Value, draw, draw_key

LARGEST = 60
_WEIGHTS = {"Singers": 2, "Albums": 3, "AllTypes": 3}
_INVOICES = "sales.Invoices"


@dataclass(slots=True)
class Plan:
    """A planned transaction: the rows it changes, and how it is written.

    `writes` add the mutations to a batch, in order; `statement` is a DML statement instead of them.
    """

    mods: list[PlannedMod] = field(default_factory=list)
    writes: list[Callable[[Batch], None]] = field(default_factory=list)
    statement: str | None = None
    touched: set[tuple[str, Key]] = field(default_factory=set)
    deleted: set[tuple[str, Key]] = field(default_factory=set)


class Planner:
    """Draws transactions of `average_size` mods (1 to 60, cascading deletes not counted).

    Tables are kept near `rows_per_table` rows, with twice as many keys to draw from. `run_length` is how many writes of
    one kind to one table follow each other on average: a change stream puts such a run into one record.
    """

    def __init__(
        self,
        contents: Contents,
        random: Random,
        dialect: Dialect,
        *,
        average_size: float,
        rows_per_table: int,
        run_length: float,
    ) -> None:
        self._contents = contents
        self._random = random
        self._dialect = dialect
        self._average_size = average_size
        self._rows_per_table = rows_per_table
        self._run_length = run_length
        self._weights = [_WEIGHTS.get(name, 1) for name in contents.tables]

    def transaction(self, most: int = LARGEST) -> Plan:
        """Draws the next transaction, of at most `most` mods (cascading deletes and deleted ranges not counted)."""
        roll = self._random.random()
        if roll < 0.03 and (plan := self._statement()).mods:
            return plan
        size = 1 + int(self._random.expovariate(1 / max(self._average_size - 0.5, 0.1)))
        size = max(1, min(size, most, LARGEST))
        plan = Plan()
        tables = list(self._contents.tables.values())
        while len(plan.mods) < size:
            table = self._random.choices(tables, self._weights)[0]
            run = 1 if self._run_length <= 1 else 1 + int(self._random.expovariate(1 / (self._run_length - 0.5)))
            roll = self._random.random()
            for _ in range(min(run, size - len(plan.mods))):
                self._step(plan, table, roll)
        return plan

    def _step(self, plan: Plan, table: Table, roll: float) -> None:
        """Adds one write to this table, if the row drawn allows it; `roll`, from 0 to 1, decides which."""
        count = len(self._contents.rows[table.name])
        full = count / self._rows_per_table
        if roll < 0.45 - 0.25 * min(full, 1.0) or not count:
            self._insert(plan, table)
        elif roll < 0.8 - 0.1 * min(full, 2.0):
            self._update(plan, table)
        elif roll < 0.985:
            self._delete(plan, table)
        else:
            self._delete_range(plan, table)

    def _insert(self, plan: Plan, table: Table) -> None:
        own = table.key
        prefix: Key = ()
        if table.parent:
            parent = self._contents.sample(self._random, table.parent)
            if parent is None or (table.parent, parent) in plan.deleted:
                return
            prefix, own = parent, table.key[len(parent) :]
        key = prefix + draw_key(self._random, own, 2 * self._rows_per_table)
        if key in self._contents.rows[table.name] or (table.name, key) in plan.touched:
            return
        written = [column for column in table.values if not column.nullable or self._random.random() < 0.85]
        values = self._draw(written)
        row = {column.name: values.get(column.name) for column in table.values}
        plan.mods.append(PlannedMod(table.name, "INSERT", _keys(table, key), row, row, {}))
        plan.touched.add((table.name, key))
        verb = self._random.choice(("insert", "insert", "insert_or_update"))
        _write(plan, verb, table, key, values)

    def _update(self, plan: Plan, table: Table) -> None:
        key = self._contents.sample(self._random, table.name)
        if key is None or (table.name, key) in plan.touched:
            return
        old = self._contents.rows[table.name][key]
        verb = self._random.choice(("update", "update", "insert_or_update"))
        count = self._random.choice((1, 1, 2, len(table.values)))
        chosen = set(self._random.sample(range(len(table.values)), min(count, len(table.values))))
        written = [
            column
            for place, column in enumerate(table.values)
            if place in chosen or (verb == "insert_or_update" and not column.nullable)
        ]
        values = self._draw(written)
        values |= {name: old[name] for name in values if self._random.random() < 0.15}
        plan.mods.append(PlannedMod(table.name, "UPDATE", _keys(table, key), values, {**old, **values}, old))
        plan.touched.add((table.name, key))
        _write(plan, verb, table, key, values)

    def _delete(self, plan: Plan, table: Table) -> None:
        key = self._contents.sample(self._random, table.name)
        if key is not None and self._mark_deleted(plan, table, [key]):
            plan.writes.append(lambda batch: batch.delete(table.name, KeySet(keys=[list(key)])))

    def _delete_range(self, plan: Plan, table: Table) -> None:
        """Deletes a range of invoices, or all rows that share the first part of a composite key."""
        chosen = self._contents.sample(self._random, table.name)
        if chosen is None or (len(table.key) == 1 and table.name != _INVOICES):
            return
        touched = [
            key for name, key in plan.touched if name == table.name
        ]  # those that are inserted are in no contents
        if table.name == _INVOICES:
            low, high, keys = self._invoices(chosen)
            span = KeyRange(start_closed=[str(low)], end_open=[str(high)])
            is_changed = any(low <= int(str(key[0])) < high for key in touched)
        else:
            first = chosen[0]
            keys = [key for key in self._contents.rows[table.name] if key[0] == first]
            span = KeyRange(start_closed=[first], end_closed=[first])
            is_changed = any(key[0] == first for key in touched)
        if not is_changed and self._mark_deleted(plan, table, keys):
            plan.writes.append(lambda batch: batch.delete(table.name, KeySet(ranges=[span])))

    def _invoices(self, chosen: Key) -> tuple[int, int, list[Key]]:
        """Returns a range of invoices from the chosen one on: low (inclusive), high (exclusive), and its keys."""
        low = min(int(str(chosen[0])), 2**63 - 10)
        high = low + self._random.choice((1, 3, 8))
        return low, high, [key for key in self._contents.rows[_INVOICES] if low <= int(str(key[0])) < high]

    def _mark_deleted(self, plan: Plan, table: Table, keys: Sequence[Key]) -> bool:
        """Plans to delete these rows and their children; returns False and plans nothing if one is changed already."""
        doomed = [(table.name, key) for key in keys]
        for key in keys:
            doomed += self._contents.children(table.name, key)
        if not plan.touched.isdisjoint(doomed) or any(self._new_child(plan, table, key) for key in keys):
            return False
        for name, key in doomed:
            old = self._contents.rows[name][key]
            plan.mods.append(PlannedMod(name, "DELETE", _keys(self._contents.tables[name], key), {}, {}, old))
        plan.touched.update(doomed)
        plan.deleted.update(doomed)
        return True

    def _new_child(self, plan: Plan, table: Table, key: Key) -> bool:
        return any(
            self._contents.tables[name].parent == table.name and child[: len(key)] == key
            for name, child in plan.touched
        )

    def _statement(self) -> Plan:
        """Plans one DML statement on a range of invoices; the plan has no mods if there are no invoices."""
        plan = Plan()
        chosen = self._contents.sample(self._random, _INVOICES)
        if chosen is None:
            return plan
        table = self._contents.tables[_INVOICES]
        low, high, keys = self._invoices(chosen)
        name, key_name, amount = (quoted(part, self._dialect) for part in (_INVOICES, "InvoiceId", "Amount"))
        where = f"{key_name} >= {low} AND {key_name} < {high}"
        if self._random.random() < 0.5:
            plan.statement = f"DELETE FROM {name} WHERE {where}"
            self._mark_deleted(plan, table, keys)
            return plan
        cents = self._random.randrange(1, 1000, 2)
        literal = f"NUMERIC '{cents}'" if self._dialect == "googlesql" else f"{cents}"
        plan.statement = f"UPDATE {name} SET {amount} = {literal} WHERE {where}"
        for key in keys:
            old = self._contents.rows[_INVOICES][key]
            row = {**old, "Amount": str(cents)}
            # The emulator reports all columns of a row that DML updates, not just those that were set.
            plan.mods.append(PlannedMod(_INVOICES, "UPDATE", _keys(table, key), row, row, old))
        return plan

    def _draw(self, columns: Sequence[Column]) -> dict[str, Value]:
        return {column.name: draw(self._random, column, self._dialect) for column in columns}


def _keys(table: Table, key: Key) -> Row:
    return {column.name: value for column, value in zip(table.key, key, strict=True)}


def _write(plan: Plan, verb: str, table: Table, key: Key, values: Row) -> None:
    columns = [column.name for column in table.key] + list(values)
    row = [*key, *values.values()]
    plan.writes.append(lambda batch: getattr(batch, verb)(table.name, columns, [row]))
