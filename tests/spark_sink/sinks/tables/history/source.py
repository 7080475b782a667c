"""A source whose transactions change a key several times and are nanoseconds apart, and all of its events."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from tests.spark_sink.sinks.tables.campaign.changing_source import TABLES, ChangingSource
from tests.spark_sink.sinks.tables.histories import COLUMNS
from tests.spark_sink.sinks.tables.history.versions import Event, Row
from tests.spark_sink.spools import record

NAMES = tuple(column.name for column in COLUMNS[1:])

_KEYS, _TRANSACTIONS = 120, 60
_STEPS = (1, 300, 1_000, 1_001, SECOND)
"""Nanoseconds between two transactions."""


class VersionedSource(ChangingSource):
    """A database whose rows have several versions, also within a microsecond.

    Args:
        folder: of the spool.
        random: decides what changes, and whether the stream captures whole rows.

    Attributes:
        events: those of each table, the backfill's among them.
    """

    columns: ClassVar[tuple[ColumnType, ...]] = COLUMNS

    def __init__(self, folder: Path, random: Random) -> None:
        self._chance = random
        super().__init__(folder, random)
        self.is_whole = random.random() < 0.4
        self.events: dict[str, list[Event]] = {table: [] for table in TABLES}

    def first_row(self, key: int) -> Row:
        """A row with all columns."""
        del key
        return {name: self._value(name) for name in NAMES}

    def values(self, row: Any) -> dict[str, object]:
        """The row itself."""
        return dict(row)

    def commit(self) -> None:
        """Seals an epoch of transactions, each of which changes some rows of a table, and often one of them again."""
        records: list[DataChangeRecord] = []
        at = self.maker.watermark
        for _ in range(_TRANSACTIONS):
            at += self._chance.choice(_STEPS)
            table = self._chance.choice(TABLES)
            keys = self._chance.choices(range(_KEYS), k=self._chance.randint(1, 3))
            if self._chance.random() < 0.5:
                keys.append(keys[0])
            records += [self._changed(table, key, at, number) for number, key in enumerate(keys)]
        self.maker.seal(*records)

    def record_backfill(self) -> None:
        """Also notes the rows as events."""
        super().record_backfill()
        for table, rows in deepcopy(self.rows).items():
            self.events[table] += [
                Event(key, self.maker.watermark, "INSERT", row, was_read=True) for key, row in rows.items()
            ]

    def _changed(self, table: str, key: int, at: int, number: int) -> DataChangeRecord:
        rows = self.rows[table]
        kind = "INSERT"
        values: Row = {}
        if key not in rows:
            values = rows[key] = self.first_row(key)
        elif self._chance.random() < 0.3:
            kind = "DELETE"
            del rows[key]
        else:
            kind = "UPDATE"
            named = self._chance.sample(NAMES, self._chance.randint(1, len(NAMES)))
            values = {name: self._value(name) for name in named}
            rows[key] = {**rows[key], **values}
            values = rows[key] if self.is_whole else values
        self.mods += 1
        self.events[table].append(Event(key, at, kind, dict(values), number))
        made = record(at, [key], table=table, columns=COLUMNS, values=values, mod_type=kind, sequence=number)
        return replace(made, value_capture_type="NEW_ROW" if self.is_whole else "NEW_VALUES")

    def _value(self, name: str) -> object:
        if self._chance.random() < 0.2:
            return None
        if name == "Balance":
            return f"{self._chance.randint(0, 2)}.25"
        if name == "Tags":
            return [self._chance.choice(["a", None]) for _ in range(self._chance.randint(0, 2))]
        return self._chance.choice(["x", "it's `quoted`"])
