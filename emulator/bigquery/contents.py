"""The rows of a table of the BigQuery double: appended rows, and rows that result from changes by primary key.

As https://cloud.google.com/bigquery/docs/change-data-capture says: of the changes to a key the one with the highest
sequence number wins, in whatever order they arrive; of those with the same number the last one. A delete's number is
kept for two days, so that an older upsert does not restore the row in that time. The order of changes with and without
numbers is not defined. What a sink must not rely on is counted as a conflict: different changes with the same number,
and changes without a number to a key that has changes with one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from emulator.bigquery.schema import ColumnDefinition

DELETES_KEPT = timedelta(days=2)
"""The time for which a delete is kept (see "Deleted data considerations" on the same page)."""

Row = dict[str, Any]
"""A row as it was written: a missing column is NULL."""


class WrittenRow(NamedTuple):
    """A row that was written.

    Attributes:
        row: its columns.
        type: UPSERT or DELETE; empty for an appended row.
        sequence: the sections of its change sequence number; None without one.
    """

    row: Row
    type: str = ""
    sequence: tuple[int, ...] | None = None


class _KeptRow(NamedTuple):
    row: Row | None
    sequence: tuple[int, ...] | None
    written: datetime

    def is_forgotten(self, now: datetime) -> bool:
        return self.row is None and now - self.written > DELETES_KEPT


class TableContents:
    """The rows of a table whose primary key is `key`.

    `conflicts` counts what a sink must not rely on, `streamed` is when rows were last written, and `is_changed` says
    whether any of them was a change by key.
    """

    def __init__(self, key: Sequence[str]) -> None:
        self.conflicts = 0
        self.streamed: datetime | None = None
        self.is_changed = False
        self._key = key
        self._appended: list[Row] = []
        self._kept: dict[tuple[Any, ...], _KeptRow] = {}

    def append(self, rows: Iterable[Row], now: datetime) -> None:
        """Appends rows, whatever their keys."""
        self.streamed = now
        self._appended += rows

    def apply(self, changes: Iterable[WrittenRow], now: datetime) -> None:
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
                # Without numbers a later request wins; within a request BigQuery keeps the first row.
                if key in unnumbered:
                    continue
                unnumbered.add(key)
            before = self._kept.get(key)
            after = _KeptRow(change.row if change.type == "UPSERT" else None, change.sequence, now)
            if before is None or before.is_forgotten(now) or self._is_newer(after, before):
                self._kept[key] = after

    def _is_newer(self, after: _KeptRow, before: _KeptRow) -> bool:
        if after.sequence is None or before.sequence is None:
            self.conflicts += after.sequence != before.sequence
            return True
        # Compared as text, because NaN is not equal to itself.
        self.conflicts += before.sequence == after.sequence and repr(before.row) != repr(after.row)
        return after.sequence >= before.sequence

    def rename(self, column: str, to: str | None) -> None:
        """Renames a column outside the key, or drops it if `to` is None."""
        for row in (*self._appended, *(kept.row for kept in self._kept.values() if kept.row is not None)):
            value = row.pop(column, None)
            if to is not None:
                row[to] = value

    def rows(self, columns: Sequence[ColumnDefinition]) -> list[Row]:
        """Returns the rows with all of the columns, as new dicts and lists."""
        kept = (kept.row for kept in self._kept.values() if kept.row is not None)
        return [_shown(row, columns) for row in (*self._appended, *kept)]


def _shown(row: Mapping[str, Any], columns: Sequence[ColumnDefinition]) -> Row:
    return {column.name: _value(row.get(column.name), column) for column in columns}


def _value(value: Any, column: ColumnDefinition) -> Any:
    if column.mode == "REPEATED":
        return [_shown(item, column.fields) if column.fields else item for item in value or ()]
    if column.fields and value is not None:
        return _shown(value, column.fields)
    return value
