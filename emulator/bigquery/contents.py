"""What a table of the BigQuery double holds: rows that were appended, and rows that changes make by primary key.

As https://cloud.google.com/bigquery/docs/change-data-capture has it: of the changes to a key the one with the highest
sequence number holds, whatever the order they come in; of those with one number the one that came last. A delete leaves
its number behind for two days, so that an older upsert does not bring the row back until then. Rows with and without
numbers come out in an order that nobody can tell. What a sink should not rely on is counted: different changes of one
number, and changes without a number where there are some with one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from emulator.bigquery.schema import Column

DELETES_KEPT = timedelta(days=2)
"""For how long a delete is remembered (deleted data considerations, ibidem)."""

Row = dict[str, Any]
"""A row as it was written: a column that is not there is NULL."""


class Change(NamedTuple):
    """A row that was written.

    Attributes:
        row: the columns it has.
        type: UPSERT, DELETE, or nothing where a row is appended.
        sequence: the sections of its change sequence number; None without one.
    """

    row: Row
    type: str = ""
    sequence: tuple[int, ...] | None = None


class _Kept(NamedTuple):
    row: Row | None
    sequence: tuple[int, ...] | None
    came: datetime

    def is_forgotten(self, now: datetime) -> bool:
        return self.row is None and now - self.came > DELETES_KEPT


class Contents:
    """The rows of a table whose primary key is `key`.

    `conflicts` counts what a sink should not rely on, `streamed` is when rows came last, and `is_changed` whether any
    of them was a change by key.
    """

    def __init__(self, key: Sequence[str]) -> None:
        self.conflicts = 0
        self.streamed: datetime | None = None
        self.is_changed = False
        self._key = key
        self._appended: list[Row] = []
        self._kept: dict[tuple[Any, ...], _Kept] = {}

    def append(self, rows: Iterable[Row], now: datetime) -> None:
        """Adds rows, whatever their keys."""
        self.streamed = now
        self._appended += rows

    def apply(self, changes: Iterable[Change], now: datetime) -> None:
        """Applies the rows of one request, in their order."""
        self.streamed = now
        unnumbered = set()
        for change in changes:
            if not change.type:
                self._appended.append(change.row)
                continue
            self.is_changed = True
            key = tuple(change.row.get(name) for name in self._key)
            if change.sequence is None:
                # Without numbers a later request wins; in one request the first row has been seen to.
                if key in unnumbered:
                    continue
                unnumbered.add(key)
            before = self._kept.get(key)
            after = _Kept(change.row if change.type == "UPSERT" else None, change.sequence, now)
            if before is None or before.is_forgotten(now) or self._is_newer(after, before):
                self._kept[key] = after

    def _is_newer(self, after: _Kept, before: _Kept) -> bool:
        if after.sequence is None or before.sequence is None:
            self.conflicts += after.sequence != before.sequence
            return True
        # As text, for NaN is not equal to itself.
        self.conflicts += before.sequence == after.sequence and repr(before.row) != repr(after.row)
        return after.sequence >= before.sequence

    def rename(self, column: str, to: str | None) -> None:
        """Gives a column that is not of the key another name, or drops it."""
        for row in (*self._appended, *(kept.row for kept in self._kept.values() if kept.row is not None)):
            value = row.pop(column, None)
            if to is not None:
                row[to] = value

    def rows(self, columns: Sequence[Column]) -> list[Row]:
        """The rows there are, with all of the columns: new dicts and lists."""
        kept = (kept.row for kept in self._kept.values() if kept.row is not None)
        return [_shown(row, columns) for row in (*self._appended, *kept)]


def _shown(row: Mapping[str, Any], columns: Sequence[Column]) -> Row:
    return {column.name: _value(row.get(column.name), column) for column in columns}


def _value(value: Any, column: Column) -> Any:
    if column.mode == "REPEATED":
        return [_shown(item, column.fields) if column.fields else item for item in value or ()]
    if column.fields and value is not None:
        return _shown(value, column.fields)
    return value
