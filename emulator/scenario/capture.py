"""Computes what a change stream reports of a mod, and which columns it lists, by its value capture type."""

from __future__ import annotations

from collections.abc import Collection

from emulator.scenario.history import ReportedColumn, ReportedMod
from emulator.workload.journal import PlannedMod
from emulator.workload.tables import Dialect, Table

CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
"""Every value capture type."""

_WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
_OLD_VALUES = ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
_POSTGRESQL_ANNOTATIONS = {"NUMERIC": "PG_NUMERIC", "JSON": "PG_JSONB"}


def reported_columns(table: Table, dialect: Dialect, names: Collection[str]) -> tuple[ReportedColumn, ...]:
    """Returns the key's columns and the columns in `names` as a record lists them, in the table's order."""
    annotations = _POSTGRESQL_ANNOTATIONS if dialect == "postgresql" else {}
    return tuple(
        ReportedColumn(
            column.name, column.type, column.array, number <= table.key_length, number, annotations.get(column.type, "")
        )
        for number, column in enumerate(table.columns, start=1)
        if number <= table.key_length or column.name in names
    )


def reported_mod(mod: PlannedMod, value_capture_type: str) -> tuple[ReportedMod, tuple[str, ...]]:
    """Returns what is reported of a mod, and the names of the columns outside the key that its record lists.

    A written column counts as modified, even if its value stays the same. A DELETE modifies all columns.
    """
    old_values = mod.old_row if value_capture_type in _OLD_VALUES else {}
    if mod.mod_type == "DELETE":
        listed = () if value_capture_type == "NEW_VALUES" else tuple(mod.old_row)
        return ReportedMod(mod.keys, {}, old_values), listed
    names = tuple(mod.row if value_capture_type in _WHOLE_ROWS else mod.new_values)
    old = {name: old_values[name] for name in mod.new_values} if mod.mod_type == "UPDATE" and old_values else {}
    return ReportedMod(mod.keys, {name: mod.row[name] for name in names}, old), names
