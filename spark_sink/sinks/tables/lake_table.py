"""A table of a destination: its columns, and the statements that keep it. Pure.

A merged row has beside the columns of Spanner the commit timestamp and the change sequence number of its last change,
and whether it is deleted. A change is merged only into a row with a smaller change sequence number, so that whatever is
merged twice, or late, as the rows of a backfill are, changes nothing.

In mode history a row is a version of a row (:mod:`spark_sink.sinks.tables.history`).

A row of which only updates are known, from a change stream that captures only changes, has in ``_captured`` the names
of the updated columns. The others may have values in Spanner. A backfill fills them. It is NULL in every row that is
whole.

While a backfill or a repair of a table is not done, a whole row notes there the columns that such updates name, too:
the others are older, and may be what the backfill mends. Before them is ``=``, and the change sequence number at which
the row was whole. A backfill as of a later timestamp fills the others. The notes are removed once it is done.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

TIMESTAMP, TYPE, SEQUENCE, DELETED = "_change_timestamp", "_mod_type", "_change_sequence_number", "_is_deleted"
CAPTURED = "_captured"

FORMER: Mapping[str, str] = {TIMESTAMP: "_commit_timestamp", TYPE: "_change_type"}
"""Columns that are added, with the names that typed rows have for them, and tables that an older version created.

Delta's change data feed keeps these names for itself.
"""

MERGED: Mapping[str, str] = {
    TIMESTAMP: "timestamp",
    SEQUENCE: "string",
    DELETED: "boolean",
    CAPTURED: "array<string>",
}
"""The columns that a merged row has beside those of Spanner."""

APPENDED: Mapping[str, str] = {
    TYPE: "string",
    TIMESTAMP: "timestamp",
    SEQUENCE: "string",
    "_uuid": "string",
    DELETED: "boolean",
    "_present": "array<string>",
    "_epoch": "bigint",
}
"""The columns that an appended row has beside those of Spanner: those that :func:`spark_sink.typed` adds."""

VALID_FROM, VALID_TO, IS_CURRENT, END = "_valid_from", "_valid_to", "_is_current", "_end_sequence_number"

VERSIONED: Mapping[str, str] = {
    VALID_FROM: "timestamp",
    VALID_TO: "timestamp",
    IS_CURRENT: "boolean",
    SEQUENCE: "string",
    END: "string",
    TYPE: "string",
    "_present": "array<string>",
    CAPTURED: "array<string>",
    DELETED: "boolean",
}
"""The columns that a version of a row has beside those of Spanner."""

ADDED: Mapping[str, Mapping[str, str]] = {"merge": MERGED, "append": APPENDED, "history": VERSIONED}
"""The columns that are added to those of Spanner, by mode."""

CUTS = "_cuts"
"""The name of the table of published cuts; no table of the source can have it."""

CREATED = "spanner-cdc.created"
"""The property of a table that says that a sink has created it."""

NOTHING = "CAST(NULL AS ARRAY<STRING>)"

_MARK = "="
"""No name of a column in Spanner begins with it."""

PRESENT, REPLACED = "_present", "_replaced"
"""Columns that merged changes of a key have: the captured columns, if not all are, and a flag that the others are NULL.
Where rows are whole, the second one says whether there are values, and not only a DELETE.
"""


def own_names(found: Iterable[str]) -> dict[str, str]:
    """The names that the columns of :data:`FORMER` have in a table with these columns."""
    there = {name.lower() for name in found}
    return {name: former if former in there else name for name, former in FORMER.items()}


def added_columns(mode: str, own: Mapping[str, str]) -> dict[str, str]:
    """The columns that are added in a mode, by the names that a table has for them, with their types."""
    return {own.get(name, name): kind for name, kind in ADDED[mode].items()}


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the destination.

    Attributes:
        source: the table in Spanner.
        name: the table in the destination.
        columns: those of Spanner by name, with their types in Spark SQL.
        types: Spanner's types of these columns; empty where the type has changed.
        primary_key: the columns of the key in Spanner, in its order.
        own: the names of the columns of :data:`FORMER`.
    """

    source: str
    name: str
    columns: Mapping[str, str]
    types: Mapping[str, str]
    primary_key: tuple[str, ...]
    own: Mapping[str, str] = field(default_factory=lambda: own_names([]))

    def named_as(self, found: Iterable[str]) -> Self:
        """The table with the names of an existing one, which has these columns."""
        return replace(self, own=own_names(found))

    def all_columns(self, mode: str) -> dict[str, str]:
        """All columns by name, with their types, in a mode of the sink."""
        return {**self.columns, **added_columns(mode, self.own)}


def table_name(table: str) -> str:
    """The name of a table of Spanner in the destination: ``schema_table`` in a named schema."""
    return table.replace(".", "_")


def colliding(tables: Sequence[str]) -> dict[str, str]:
    """The tables that cannot be kept side by side, each with the reason in a sentence."""
    by_name: dict[str, list[str]] = {}
    for table in sorted(tables):
        by_name.setdefault(table_name(table).lower(), []).append(table)
    return {
        table: f"tables {' and '.join(same)} would both be {name}"
        for name, same in by_name.items()
        if len(same) > 1
        for table in same
    }


def colliding_names(tables: Sequence[str]) -> list[str]:
    """The reasons why tables cannot be kept side by side, each in a sentence."""
    return list(dict.fromkeys(colliding(tables).values()))


def taken_names(table: str, columns: Iterable[str], mode: str) -> str:
    """The error of a table's columns that have the name of one that is added in a mode; empty if none has."""
    added = {*MERGED, *APPENDED, *ADDED[mode], *FORMER.values(), PRESENT, REPLACED}
    taken = sorted(column for column in columns if column.lower() in added)
    return f"table {table} has a column {', '.join(taken)}, which the sink adds itself" if taken else ""


def quoted(name: str) -> str:
    """An identifier of Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def declared(columns: Mapping[str, str]) -> str:
    """Columns with their types; what a mere ``timestamp`` is in a statement depends on the session."""
    kinds = {name: re.sub(r"\btimestamp\b", "timestamp_ltz", kind) for name, kind in columns.items()}
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())


def create_statement(target: str, provider: str, columns: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Creates a table if there is none."""
    texts = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
    return f"CREATE TABLE IF NOT EXISTS {target} ({declared(columns)}) USING {provider}" + (
        f" TBLPROPERTIES ({texts})" if texts else ""
    )


def add_statement(target: str, columns: Mapping[str, str]) -> str:
    """Adds columns to a table."""
    return f"ALTER TABLE {target} ADD COLUMNS ({declared(columns)})"


def merge_statement(
    table: LakeTable, target: str, rows: str, *, whole: bool, keeps_deleted: bool, notes: bool = False
) -> str:
    """Merges the changes of a micro-batch into a table.

    Args:
        table: the table.
        target: the table, as a statement names it.
        rows: the view of the changes: each key once, with the columns of the table.
        whole: whether each row that is not deleted has all columns; otherwise the view has also :data:`PRESENT`, and a
            column that was not captured is left as it is.
        keeps_deleted: whether a deleted row stays, with ``_is_deleted`` and its last values.
        notes: whether a row that is whole notes the columns that are captured, because a backfill may mend the others.
    """
    changed = {name: _changed(name, whole=whole, keeps_deleted=keeps_deleted) for name in _values_of(table)}
    captured, inserted = NOTHING, NOTHING
    if not whole:
        known_whole = f"s.{REPLACED} OR s.{DELETED}"
        inserted = f"CASE WHEN {known_whole} THEN {NOTHING} ELSE s.{PRESENT} END"
        of_whole = f"array('{_MARK}' || coalesce(t.{SEQUENCE}, ''))" if notes else NOTHING  # NULL with anything is NULL
        captured = (
            f"CASE WHEN {known_whole} THEN {NOTHING}"
            f" ELSE array_union(coalesce(t.{CAPTURED}, {of_whole}), s.{PRESENT}) END"
        )
    deletes = "" if keeps_deleted else f" WHEN MATCHED AND {_NEWER} AND s.{DELETED} THEN DELETE"
    return (
        f"MERGE INTO {target} AS t USING {rows} AS s ON {same_row(table)}{deletes}"
        f" WHEN MATCHED AND {_NEWER} THEN {_updated({**changed, **_last(table), CAPTURED: captured})}"
        f" WHEN NOT MATCHED{'' if keeps_deleted else f' AND NOT s.{DELETED}'} THEN {_inserted(table, inserted)}"
    )


def backfill_statement(table: LakeTable, target: str, rows: str, *, keeps_deleted: bool) -> str:
    """Merges rows of a backfill: a row that has changed since gets only the columns that its changes did not name.

    Args:
        table: the table.
        target: the table, as a statement names it.
        rows: the view of the rows; those of a repair may be deleted.
        keeps_deleted: whether a deleted row stays, with ``_is_deleted`` and its last values.
    """
    values = _values_of(table)
    known = {
        name: f"CASE WHEN array_contains(t.{CAPTURED}, {text(name)}) THEN t.{quoted(name)} ELSE s.{quoted(name)} END"
        for name in values
    }
    written = {
        name: f"CASE WHEN s.{DELETED} THEN t.{quoted(name)} ELSE s.{quoted(name)} END"
        if keeps_deleted
        else f"s.{quoted(name)}"
        for name in values
    }
    is_older = (
        f"NOT {is_noted('t')} OR get(t.{CAPTURED}, 0) < '{_MARK}' || s.{SEQUENCE}"  # than the row of the backfill
    )
    fills = f"t.{CAPTURED} IS NOT NULL AND ({is_older}) AND NOT t.{DELETED} AND NOT s.{DELETED}"
    deletes = "" if keeps_deleted else f" WHEN MATCHED AND {_NEWER} AND s.{DELETED} THEN DELETE"
    return (
        f"MERGE INTO {target} AS t USING {rows} AS s ON {same_row(table)}{deletes}"
        f" WHEN MATCHED AND {_NEWER} THEN {_updated({**written, **_last(table), CAPTURED: NOTHING})}"
        f" WHEN MATCHED AND {fills} THEN {_updated({**known, CAPTURED: NOTHING})}"
        f" WHEN NOT MATCHED AND NOT s.{DELETED} THEN {_inserted(table, NOTHING)}"
    )


def is_noted(row: str = "") -> str:
    """The condition of a row that is whole, though it has columns in ``_captured``."""
    captured = f"{row}.{CAPTURED}" if row else CAPTURED
    return f"coalesce(startswith(get({captured}, 0), '{_MARK}'), false)"


_NEWER = f"s.{SEQUENCE} > coalesce(t.{SEQUENCE}, '')"


def _last(table: LakeTable) -> dict[str, str]:
    return {name: f"s.{name}" for name in (table.own[TIMESTAMP], SEQUENCE, DELETED)}


def _values_of(table: LakeTable) -> list[str]:
    """The columns that are not in the key."""
    return [name for name in table.columns if name not in table.primary_key]


def same_row(table: LakeTable) -> str:
    """A table without a key has one row at most."""
    return " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in table.primary_key) or "true"


def _updated(values: Mapping[str, str]) -> str:
    return f"UPDATE SET {', '.join(f'{quoted(name)} = {value}' for name, value in values.items())}"


def _inserted(table: LakeTable, captured: str) -> str:
    values = {**{name: f"s.{quoted(name)}" for name in table.columns}, **_last(table), CAPTURED: captured}
    return f"INSERT ({', '.join(map(quoted, values))}) VALUES ({', '.join(values.values())})"


def _changed(name: str, *, whole: bool, keeps_deleted: bool) -> str:
    """The value of a column of a row that has changed."""
    column = quoted(name)
    if whole and not keeps_deleted:
        return f"s.{column}"
    captured = "" if whole else f" AND NOT array_contains(s.{PRESENT}, {text(name)})"
    return f"CASE WHEN NOT s.{REPLACED}{captured} THEN t.{column} ELSE s.{column} END"


def text(value: str) -> str:
    """A literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
