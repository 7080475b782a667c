"""Random changes of a table, and what its rows are after them."""

import random
from dataclasses import dataclass, field, replace

import orjson

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

COLUMNS = (
    KEY,
    ColumnType("Name", '{"code":"STRING"}', False, 2),
    ColumnType("Balance", '{"code":"NUMERIC"}', False, 3),
    ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 4),
)
Row = dict[str, object]


@dataclass
class History:
    """A table's rows by their keys, as transactions change them, and the changes in a spool.

    Attributes:
        spool: gets the changes.
        chance: of which the changes are made.
        capture: the value capture type.
        rows: by key; each with all columns but the key.
        deleted: the last values of rows that were deleted and are not there again.
        changes: how many there were.
    """

    spool: SpoolMaker
    chance: random.Random
    capture: str = "NEW_ROW"
    columns: tuple[ColumnType, ...] = COLUMNS
    keys: int = 30
    rows: dict[int, Row] = field(default_factory=dict)
    deleted: dict[int, Row] = field(default_factory=dict)
    changes: int = 0

    def commit(self, transactions: int) -> int:
        """Seals an epoch of transactions, each of which changes several rows once; returns its number."""
        records: list[DataChangeRecord] = []
        at = self.spool.watermark
        for _ in range(transactions):
            at += SECOND
            chosen = self.chance.sample(range(self.keys), self.chance.randint(1, 4))
            records += [self._change(key, at, number) for number, key in enumerate(chosen)]
        return self.spool.seal(*records)

    def _change(self, key: int, at: int, number: int) -> DataChangeRecord:
        self.changes += 1
        names = [column.name for column in self.columns[1:]]
        if key not in self.rows:
            values = {name: self._value(name) for name in names}
            self.rows[key] = values
            self.deleted.pop(key, None)
            return self._record(at, key, number, "INSERT", values)
        if self.chance.random() < 0.3:
            self.deleted[key] = self.rows.pop(key)
            return self._record(at, key, number, "DELETE", {})
        changed = {name: self._value(name) for name in self.chance.sample(names, self.chance.randint(1, len(names)))}
        self.rows[key] |= changed
        whole = self.capture in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
        return self._record(at, key, number, "UPDATE", self.rows[key] if whole else changed)

    def _record(self, at: int, key: int, number: int, mod_type: str, values: Row) -> DataChangeRecord:
        made = record(at, [key], columns=self.columns, values=dict(values), mod_type=mod_type, sequence=number)
        return replace(made, value_capture_type=self.capture)

    def _value(self, name: str) -> object:
        if self.chance.random() < 0.2:
            return None
        if name == "Balance":
            return f"{self.chance.randint(-(10**6), 10**6)}.25"
        if name == "Tags":
            return [self.chance.choice(["a", "b", None]) for _ in range(self.chance.randint(0, 2))]
        return self.chance.choice(["x", "it's `quoted`", "ü\\n", ""])


def as_text(rows: dict[int, Row]) -> dict[int, bytes]:
    """Rows that can be compared: each column as JSON."""
    return {key: orjson.dumps(values, option=orjson.OPT_SORT_KEYS) for key, values in rows.items()}


def first_commit() -> int:
    return START
