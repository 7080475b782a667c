"""Random histories of a source's tables, as records of a change stream, and the rows that BigQuery has to hold.

Values on both sides are as Spanner writes them in JSON (an INT64 is a string). A NULL array is an empty one, because
BigQuery has no other.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from tests.spark_sink.spools import START

Row = dict[str, Any]
Key = tuple[Any, ...]

NEW_ROW, NEW_ROW_AND_OLD = "NEW_ROW", "NEW_ROW_AND_OLD_VALUES"
NEW_VALUES, OLD_AND_NEW = "NEW_VALUES", "OLD_AND_NEW_VALUES"
WHOLE = (NEW_ROW, NEW_ROW_AND_OLD)
CAPTURES = (NEW_ROW, NEW_ROW_AND_OLD, NEW_VALUES, OLD_AND_NEW)


def column(name: str, type_json: str, place: int, *, key: bool = False) -> ColumnType:
    code = type_json if type_json.startswith("{") else f'{{"code":"{type_json}"}}'
    return ColumnType(name, code, key, place)


@dataclass(frozen=True)
class Table:
    """A table of the source; ``name`` includes its schema."""

    name: str
    columns: tuple[ColumnType, ...]

    @property
    def keys(self) -> list[str]:
        return [one.name for one in self.columns if one.is_primary_key]

    @property
    def others(self) -> list[ColumnType]:
        return [one for one in self.columns if not one.is_primary_key]


SINGERS = Table(
    "Singers",
    (
        column("Id", "INT64", 1, key=True),
        column("Name", "STRING", 2),
        column("Born", "DATE", 3),
        column("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', 4),
        column("Doc", "JSON", 5),
    ),
)
ALBUMS = Table(
    "music.Albums",
    (
        column("Place", "STRING", 1, key=True),
        column("Number", "INT64", 2, key=True),
        column("Price", "NUMERIC", 3),
        column("At", "TIMESTAMP", 4),
        column("Cover", "BYTES", 5),
        column("Out", "BOOL", 6),
    ),
)
_TEXTS = ("", "a", "ü €\n", '"quoted" \\')
_DRAWN: Mapping[str, Callable[[Random], object]] = {
    "INT64": lambda random: str(random.choice([0, -1, random.randrange(-(2**63), 2**63)])),
    "STRING": lambda random: random.choice(_TEXTS),
    "DATE": lambda random: f"{random.randrange(1900, 2100):04}-0{random.randrange(1, 10)}-15",
    "JSON": lambda random: random.choice(['{"a":[1,null]}', '{"b":"\\"\\\\"}', "{}"]),
    "NUMERIC": lambda random: random.choice(["0", "-1.5", "12345678901234567890.123456789"]),
    "TIMESTAMP": lambda random: f"2026-03-01T10:00:0{random.randrange(10)}.{random.randrange(10**6):06}Z",
    "BYTES": lambda random: b64encode(random.randbytes(random.randrange(5))).decode(),
    "BOOL": lambda random: random.choice([True, False]),
    "ARRAY": lambda random: random.sample(_TEXTS, random.randrange(3)),
}


@dataclass
class Change:
    """A change of a row: what its record holds, and the row after it (None if it is deleted)."""

    table: str
    mod_type: str
    key: Key
    named: Row
    after: Row | None
    number: str


@dataclass
class History:
    """A source's tables and their changes; ``named`` are the columns that records have named."""

    random: Random
    capture: str = OLD_AND_NEW
    tables: dict[str, Table] = field(default_factory=lambda: {SINGERS.name: SINGERS, ALBUMS.name: ALBUMS})
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    named: dict[str, dict[str, None]] = field(default_factory=dict)
    at: int = START

    def transaction(self, mods: int = 6) -> list[DataChangeRecord]:
        """Some changes, committed together; each record has mods of one table and type."""
        self.at += self.random.choice([1, 1000, SECOND])
        made: list[DataChangeRecord] = []
        while mods > 0:
            table = self.random.choice(list(self.tables.values()))
            wanted = self.random.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
            mod_type, keys = self._keys(table, wanted, self.random.randrange(1, 4))
            made.append(self.record(table.name, mod_type, keys, sequence=len(made)))
            mods -= len(keys)
        return [replace(one, number_of_records_in_transaction=len(made)) for one in made]

    def record(self, name: str, mod_type: str, keys: Sequence[Key], *, sequence: int = 0) -> DataChangeRecord:
        """A record of changes of these rows, whose new values are drawn."""
        table = self.tables[name]
        changed = table.others
        if mod_type == "UPDATE":
            changed = self.random.sample(changed, self.random.randrange(1, len(changed) + 1))
        mods = []
        for index, key in enumerate(keys):
            new = {one.name: self._value(one) for one in changed} if mod_type != "DELETE" else {}
            number = f"{self.at:016X}/{sequence:016X}/{index:016X}"
            mods.append(self._change(table, mod_type, key, new, number))
        whole = mod_type != "UPDATE" or self.capture in WHOLE
        listed = table.columns if whole else [one for one in table.columns if one.is_primary_key or one in changed]
        self.named.setdefault(name, {}).update((one.name, None) for one in listed if not one.is_primary_key)
        return DataChangeRecord(
            commit_timestamp=self.at,
            record_sequence=f"{sequence:08d}",
            server_transaction_id=f"t{self.at}",
            is_last_record_in_transaction_in_partition=False,
            table_name=name,
            column_types=tuple(listed),
            mods=tuple(mods),
            mod_type=mod_type,
            value_capture_type=self.capture,
            number_of_records_in_transaction=1,
            number_of_partitions_in_transaction=1,
            transaction_tag="",
            is_system_transaction=False,
            read_timestamp=self.at + SECOND // 10,
            size=300 * len(mods),
        )

    def add(self, name: str, added: ColumnType) -> None:
        """ALTER TABLE ... ADD COLUMN."""
        self.tables[name] = replace(self.tables[name], columns=(*self.tables[name].columns, added))

    def drop(self, name: str, column_name: str) -> None:
        """ALTER TABLE ... DROP COLUMN; the expected rows keep its values."""
        kept = tuple(one for one in self.tables[name].columns if one.name != column_name)
        self.tables[name] = replace(self.tables[name], columns=kept)

    def _keys(self, table: Table, mod_type: str, most: int) -> tuple[str, list[Key]]:
        """A few rows that can be changed in this way; rows to insert where there are none."""
        known = self.rows.setdefault(table.name, {})
        if mod_type != "INSERT" and known:
            return mod_type, self.random.sample(sorted(known), min(most, len(known)))
        free = [key for number in range(8) if (key := _key(table, number)) not in known]
        if not free:
            return "DELETE", self.random.sample(sorted(known), most)
        return "INSERT", self.random.sample(free, min(most, len(free)))

    def _value(self, one: ColumnType) -> object:
        return None if self.random.random() < 0.2 else _DRAWN[json.loads(one.type)["code"]](self.random)

    def _change(self, table: Table, mod_type: str, key: Key, new: Row, number: str) -> Mod:
        """Applies a change; returns what a change stream with the capture type records."""
        rows = self.rows.setdefault(table.name, {})
        before = rows.get(key, {})
        names = [one.name for one in table.others]
        old = {name: before.get(name) for name in names} if mod_type != "INSERT" else {}
        if mod_type == "DELETE":
            rows.pop(key, None)
        else:
            # A row that is inserted begins with NULLs; of one that is updated, a dropped column stays as it was.
            rows[key] = {**(before if mod_type == "UPDATE" else {}), **new}
        whole = self.capture in WHOLE
        if mod_type == "UPDATE" and whole:
            new = {name: rows[key].get(name) for name in names}
        keeps_old = self.capture in (NEW_ROW_AND_OLD, OLD_AND_NEW)
        named = old if mod_type == "DELETE" and keeps_old else new
        self.changes.append(Change(table.name, mod_type, key, named, dict(rows[key]) if key in rows else None, number))
        keys = dict(zip(table.keys, key, strict=True))
        return Mod(json.dumps(keys), json.dumps(new), json.dumps(old if keeps_old else {}))


def _key(table: Table, number: int) -> Key:
    return (str(number),) if len(table.keys) == 1 else (("", "eu")[number % 2], str(number // 2))


# What BigQuery's tables are held against


def merged(history: History, table: str) -> dict[Key, Row]:
    """The rows of a table that is merged into, by their keys."""
    names = history.named.get(table, {})
    return {key: {name: row.get(name) for name in names} for key, row in history.rows.get(table, {}).items()}


def appended(history: History, table: str) -> list[tuple[str, str, Key, Row]]:
    """The rows of a table that is appended to, in the order of their numbers: number, mod type, key, what is named."""
    names = history.named.get(table, {})
    return [
        (change.number, change.mod_type, change.key, {name: change.named.get(name) for name in names})
        for change in history.changes
        if change.table == table
    ]


def replayed(found: Iterable[tuple[str, str, Key, Row]]) -> dict[Key, Row]:
    """The rows that a history leaves whose rows are whole."""
    rows: dict[Key, Row] = {}
    for _, mod_type, key, row in found:
        if mod_type == "DELETE":
            rows.pop(key, None)
        else:
            rows[key] = row
    return rows


def as_spanner(value: Any) -> Any:
    """A value of BigQuery as Spanner writes it."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, list):
        return [as_spanner(one) for one in value] or None
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    return value.isoformat() if isinstance(value, date) else value


def expected(value: Any) -> Any:
    """A value of Spanner, as :func:`as_spanner` returns it."""
    return None if value == [] else value
