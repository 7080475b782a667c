"""Checks a table's definition as BigQuery does: columns, primary key, clustering, and how they may change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from google.cloud.bigquery_storage_v1.types import TableFieldSchema, TableSchema

from emulator.bigquery.refusals import invalid

_GOOGLE_SQL = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}
_LEGACY = {new: old for old, new in _GOOGLE_SQL.items()}
_STORAGE = {"FLOAT64": "DOUBLE"}
_TYPES = {"BIGNUMERIC", "BOOL", "BYTES", "DATE", "DATETIME", "FLOAT64", "GEOGRAPHY", "INT64", "INTERVAL", "JSON",
          "NUMERIC", "STRING", "STRUCT", "TIME", "TIMESTAMP"}  # fmt: skip
# https://cloud.google.com/bigquery/docs/primary-foreign-keys (limitations), .../docs/clustered-tables
_KEY_TYPES = {"BIGNUMERIC", "BOOL", "BYTES", "DATE", "DATETIME", "INT64", "NUMERIC", "STRING", "TIMESTAMP"}
_CLUSTER_TYPES = {"BIGNUMERIC", "BOOL", "DATE", "DATETIME", "GEOGRAPHY", "INT64", "NUMERIC", "STRING", "TIMESTAMP"}
_MODES = ("NULLABLE", "REQUIRED", "REPEATED")
_MOST_KEY_COLUMNS = 16
_MOST_CLUSTER_COLUMNS = 4
_MOST_COLUMNS = 10_000  # https://cloud.google.com/bigquery/quotas#all_tables
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,299}")
_RESERVED = ("_TABLE_", "_FILE_", "_PARTITION", "_ROW_TIMESTAMP", "__ROOT__", "_COLIDENTIFIER", "_CHANGE_TYPE",
             "_CHANGE_SEQUENCE_NUMBER", "_CHANGE_TIMESTAMP")  # fmt: skip
_FIELD_KEYS = {"name", "type", "mode", "fields", "description", "collation"}

Json = dict[str, Any]
"""An object of the REST interface."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column, or a field of one; the type is GoogleSQL's name."""

    name: str
    type: str
    mode: str = "NULLABLE"
    fields: tuple[ColumnDefinition, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's definition; `others` are properties that are kept unchanged, such as the description and labels."""

    schema: tuple[ColumnDefinition, ...]
    key: tuple[str, ...] = ()
    clustering: tuple[str, ...] = ()
    max_staleness: timedelta | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


def read_columns(schema: Json) -> tuple[ColumnDefinition, ...]:
    """Reads the columns of a REST schema; raises RefusedError for what BigQuery rejects."""
    given = schema.get("fields") or []
    columns = tuple(_read_column(column) for column in given)
    if not columns:
        raise invalid("Schema has no fields")
    if len(columns) > _MOST_COLUMNS:
        raise invalid(f"Too many columns: {len(columns)}, and {_MOST_COLUMNS} is the most")
    for name, count in Counter(column.name.lower() for column in columns).items():
        if count > 1:
            raise invalid(f"Duplicate field name: {name}. Field names are unique, ignoring their case.")
    return columns


def _read_column(given: Json) -> ColumnDefinition:
    if unknown := given.keys() - _FIELD_KEYS:
        raise invalid(f"The double does not support the property {min(unknown)!r} of a field")
    name = str(given.get("name", ""))
    if not _NAME.fullmatch(name):
        raise invalid(
            f'Invalid field name "{name}". Fields must contain only letters, numbers, and underscores, start with a'
            " letter or underscore, and be at most 300 characters long."
        )
    if name.upper().startswith(_RESERVED):
        raise invalid(f"Invalid field name {name}. Its prefix is reserved.")
    kind = str(given.get("type", "")).upper()
    kind = _GOOGLE_SQL.get(kind, kind)
    if kind not in _TYPES:
        raise invalid(f"Invalid value for type: {kind} is not a valid value. (field: {name})")
    mode = str(given.get("mode") or "NULLABLE").upper()
    if mode not in _MODES:
        raise invalid(f"Invalid value for mode: {mode} is not a valid value. (field: {name})")
    if (kind == "STRUCT") != bool(given.get("fields")):
        raise invalid(f"Field {name} is type RECORD but has no schema, or the other way round")
    if given.get("collation"):
        raise invalid(f"The double does not support the collation {given['collation']!r} of a field")
    if "collation" in given and kind != "STRING":
        raise invalid(f"Field collation can be set only for STRING. (field: {name})")
    fields = read_columns(given) if kind == "STRUCT" else ()
    return ColumnDefinition(name, kind, mode, fields, str(given.get("description") or ""))


def check(definition: Definition) -> None:
    """Raises RefusedError for a primary key or a clustering that BigQuery rejects."""
    known = {column.name.lower(): column for column in definition.schema}
    _check_columns("primary key", definition.key, known, _KEY_TYPES, _MOST_KEY_COLUMNS)
    _check_columns("clustering", definition.clustering, known, _CLUSTER_TYPES, _MOST_CLUSTER_COLUMNS)


def _check_columns(
    what: str, names: Sequence[str], known: Mapping[str, ColumnDefinition], types: Iterable[str], most: int
) -> None:
    if len(names) > most:
        raise invalid(f"Too many {what} columns: {len(names)}, and {most} is the most")
    if len({name.lower() for name in names}) < len(names):
        raise invalid(f"A {what} column is named twice")
    for name in names:
        column = known.get(name.lower())
        if column is None:
            raise invalid(f"The {what} column {name} cannot be found in the schema: it must be a top-level column")
        if column.mode == "REPEATED" or column.type not in types:
            kind = f"ARRAY<{column.type}>" if column.mode == "REPEATED" else column.type
            raise invalid(f"The {what} column {name} has type {kind}, which is not supported there")


def patched(
    table: str, old: Sequence[ColumnDefinition], new: Sequence[ColumnDefinition], *, inside: str = ""
) -> tuple[ColumnDefinition, ...]:
    """Returns the columns after a patch, which may add nullable columns (at the end) and relax REQUIRED to NULLABLE.

    Raises:
        RefusedError: it changes anything else.
    """
    mismatch = f"Provided Schema does not match Table {table}."
    given = {column.name.lower(): column for column in new}
    result = []
    for column in old:
        after = given.pop(column.name.lower(), None)
        name = inside + column.name
        if after is None:
            raise invalid(f"{mismatch} Field {name} is missing in new schema")
        if after.type != column.type:
            raise invalid(f"{mismatch} Field {name} has changed type from {column.type} to {after.type}")
        if after.mode != column.mode and (column.mode, after.mode) != ("REQUIRED", "NULLABLE"):
            raise invalid(f"{mismatch} Field {name} has changed mode from {column.mode} to {after.mode}")
        fields = patched(table, column.fields, after.fields, inside=f"{name}.")
        result.append(replace(column, mode=after.mode, description=after.description, fields=fields))
    for column in given.values():
        if column.mode == "REQUIRED":
            raise invalid(
                f"{mismatch} Cannot add required fields to an existing schema. (field: {inside}{column.name})"
            )
        result.append(column)
    return tuple(result)


def to_rest(columns: Iterable[ColumnDefinition]) -> list[Json]:
    """The columns as REST shows them: with the names of legacy SQL."""
    return [_column_to_rest(column) for column in columns]


def _column_to_rest(column: ColumnDefinition) -> Json:
    shown: Json = {"name": column.name, "type": _LEGACY.get(column.type, column.type), "mode": column.mode}
    if column.fields:
        shown["fields"] = to_rest(column.fields)
    if column.description:
        shown["description"] = column.description
    return shown


def to_storage(columns: Iterable[ColumnDefinition]) -> TableSchema:
    """Returns the columns as the Write API shows them."""
    return TableSchema(fields=[_column_to_storage(column) for column in columns])


def _column_to_storage(column: ColumnDefinition) -> TableFieldSchema:
    return TableFieldSchema(
        name=column.name,
        type_=_STORAGE.get(column.type, column.type),
        mode=column.mode,
        fields=[_column_to_storage(inner) for inner in column.fields],
        description=column.description,
    )
