"""Merges changes into one for each row: what they amount to when all of them are committed at once. Pure.

An INSERT or an UPDATE that has the whole row is written whether the row is there or not. An UPDATE of a change stream
that captures only changes has some columns: it is written to a row that must be there. A row that is deleted and
inserted again is deleted first, so that columns which the INSERT does not have are not kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from spark_sink.sinks.spanner.writing.omissions import Omissions

Value = object
"""A value in Spanner's JSON encoding, as Python's JSON has it."""

Key = tuple[Value, ...]


class KeyedChange(NamedTuple):
    """An event, as far as it decides what is written.

    Attributes:
        table: the source's name.
        mod_type: INSERT, UPDATE or DELETE.
        is_whole: whether an UPDATE has every column.
        payload: the text of a JSON object, in Spanner's encoding.
        commit_timestamp: RFC 3339.
        sequence: the change sequence number.
        transaction: what distinguishes its transaction from its neighbours.
        at: the event's place, by which its row is found again.
        schema_key: of the table's schema as of the change; empty if nothing of it is ever left out.
    """

    table: str
    mod_type: str
    is_whole: bool
    payload: str
    commit_timestamp: str
    sequence: str
    transaction: str
    at: tuple[int, int]
    schema_key: str = ""


@dataclass(slots=True)
class MergedRow:
    """The result of merging the changes of a row.

    Attributes:
        table: the source's name.
        key: the values of its key.
        key_columns: the names of these.
        values: of its columns, by name; of a deleted row those of its key.
        is_deleted: whether it is gone in the end.
        is_replaced: whether it was deleted before it was written again.
        is_whole: whether it is to be written even if it is not there.
        changes: in order.
        conflicts: columns that the destination has with a former type.
        differing: columns that the destination has with another type, which may accept their values.
    """

    table: str
    key: Key
    key_columns: tuple[str, ...]
    values: dict[str, Value]
    is_deleted: bool = False
    is_replaced: bool = False
    is_whole: bool = False
    changes: list[KeyedChange] = field(default_factory=list)
    conflicts: set[str] = field(default_factory=set)
    differing: set[str] = field(default_factory=set)

    @property
    def is_inserted(self) -> bool:
        """True if an INSERT is among its changes."""
        return any(change.mod_type == "INSERT" for change in self.changes)

    @property
    def is_new(self) -> bool:
        """True if the row was not there before its first change."""
        return bool(self.changes) and self.changes[0].mod_type == "INSERT"

    def apply(self, change: KeyedChange, values: dict[str, Value]) -> None:
        """Applies the next change of the row."""
        self.changes.append(change)
        if change.mod_type == "DELETE":
            self.is_deleted, self.is_replaced, self.is_whole = True, False, False
            self.values = values
            return
        if self.is_deleted:
            self.is_deleted, self.is_replaced = False, True
            self.values = values
        else:
            self.values.update(values)
        self.is_whole = self.is_whole or change.is_whole or change.mod_type == "INSERT"


@dataclass(frozen=True, slots=True)
class MergedUnit:
    """The result of merging changes.

    Attributes:
        rows: in the order of their first changes.
        omitted: how many changes lack a column that the source no longer has, by the names of table and column; with
            an empty column, how many are left out as a whole.
    """

    rows: list[MergedRow]
    omitted: Counter[tuple[str, str]]


def merged(
    changes: Iterable[KeyedChange], keys: Mapping[str, Sequence[str]], omissions: Omissions | None = None
) -> MergedUnit:
    """The rows that changes have written.

    Args:
        changes: in commit order.
        keys: the columns of each table's key, for changes without a schema.
        omissions: decides what of the others is left out.
    """
    rows: dict[tuple[str, tuple[str, ...], Key], MergedRow] = {}
    omitted: Counter[tuple[str, str]] = Counter()
    for change in changes:
        values: dict[str, Value] = orjson.loads(change.payload)
        conflicts: frozenset[str] = frozenset()
        differing: frozenset[str] = frozenset()
        if omissions is not None and change.schema_key:
            omission = omissions.of(change.schema_key, values)
            if omission.is_whole:
                omitted[change.table, ""] += 1
                continue
            for column in omission.columns & values.keys():
                del values[column]
                omitted[change.table, column] += 1
            names, conflicts, differing = omission.key, omission.conflicts, omission.differing
        else:
            names = tuple(keys[change.table])
        key = tuple(values.get(name) for name in names)
        if change.mod_type == "DELETE":
            values = {name: values.get(name) for name in names}
        row = rows.get((change.table, names, key))
        if row is None:
            row = rows[change.table, names, key] = MergedRow(change.table, key, names, {})
        row.apply(change, values)
        row.conflicts |= conflicts & values.keys()
        row.differing |= differing & values.keys()
    return MergedUnit(list(rows.values()), omitted)
