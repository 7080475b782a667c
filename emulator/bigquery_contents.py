"""What a table of the BigQuery double holds: rows that were appended, and rows that changes make by primary key.

Of the changes to a key the one with the highest sequence number holds, whatever the order they come in. A delete leaves
its number behind, so that an older upsert does not bring the row back. An equal number changes nothing, which makes a
replay harmless; BigQuery promises nothing for two different changes of one number, and these are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from emulator.bigquery_schema import Column

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


class Contents:
    """The rows of a table whose primary key is `key`; `conflicts` counts different changes of one number to one key."""

    def __init__(self, key: Sequence[str]) -> None:
        self.conflicts = 0
        self._key = key
        self._appended: list[Row] = []
        self._kept: dict[tuple[Any, ...], _Kept] = {}

    def append(self, rows: Iterable[Row]) -> None:
        """Adds rows, whatever their keys."""
        self._appended += rows

    def apply(self, changes: Iterable[Change]) -> None:
        """Applies the rows of one request."""
        unnumbered = set()
        for change in changes:
            if not change.type:
                self._appended.append(change.row)
                continue
            key = tuple(change.row.get(name) for name in self._key)
            before = self._kept.get(key)
            after = _Kept(change.row if change.type == "UPSERT" else None, change.sequence)
            if change.sequence is None:
                # Without numbers a later request wins; in one request the first row has been seen to.
                if key in unnumbered:
                    continue
                unnumbered.add(key)
            elif before is not None and before.sequence is not None and before.sequence >= change.sequence:
                # As text, for NaN is not equal to itself.
                self.conflicts += before.sequence == change.sequence and repr(before) != repr(after)
                continue
            self._kept[key] = after

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
