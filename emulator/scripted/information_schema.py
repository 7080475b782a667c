"""Answers statements about a scripted database: INFORMATION_SCHEMA, CURRENT_TIMESTAMP, SELECT 1.

The schema's tables are SQLite tables, so that any query on them works; they have the columns that readers need. Values
and types are those of the official emulator: booleans are BOOL in GoogleSQL and YES or NO in the PostgreSQL dialect,
INT64 is text. A statement may read these tables and nothing else.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import grpc
from google.cloud.spanner_v1 import types

from connector.core.timestamps import SECOND, format_rfc3339
from emulator.scenario.placements import DEFAULT
from emulator.scenario.scenario import Scenario
from emulator.scripted.read_functions import read_functions
from emulator.scripted.row_types import described
from emulator.scripted.stream_query import ScriptedError, invalid
from emulator.scripted.wire import NULL, boolean, text
from emulator.workload.tables import SCALAR_TYPES, Column, Dialect, Table

_Type = types.Type.pb()
_CURRENT_TIMESTAMP = re.compile(
    r"\s*SELECT\s+CURRENT_TIMESTAMP\s*(?:\(\s*\))?\s*(?:AS\s+(\w+)\s*)?;?\s*", re.IGNORECASE
)
_NO_TABLE = re.compile(r"no such table: (.+)")
_BOOLEANS = ("all", "all_columns", "is_default")
_POSTGRES_NAMES = {"varchar": "character varying", "timestamptz": "timestamp with time zone"}
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_TABLES = {
    "database_options": "catalog_name schema_name option_name option_type option_value",
    "change_streams": "change_stream_catalog change_stream_schema change_stream_name all",
    "change_stream_options": "change_stream_catalog change_stream_schema change_stream_name option_name option_type"
    " option_value",
    "change_stream_tables": "change_stream_catalog change_stream_schema change_stream_name table_catalog table_schema"
    " table_name all_columns",
    "change_stream_columns": "change_stream_catalog change_stream_schema change_stream_name table_catalog table_schema"
    " table_name column_name",
    "tables": "table_catalog table_schema table_name parent_table_name on_delete_action table_type spanner_state",
    "columns": "table_catalog table_schema table_name column_name ordinal_position column_default data_type is_nullable"
    " spanner_type is_generated generation_expression is_stored spanner_state",
    "index_columns": "table_catalog table_schema table_name index_name index_type column_name ordinal_position"
    " column_ordering is_nullable spanner_type",
    "table_constraints": "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name"
    " constraint_type is_deferrable initially_deferred enforced",
    "constraint_table_usage": "table_catalog table_schema table_name constraint_catalog constraint_schema"
    " constraint_name",
    "routines": "specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name"
    " routine_type data_type routine_body",
    "placements": "placement_name is_default",
    "referential_constraints": "constraint_catalog constraint_schema constraint_name unique_constraint_catalog"
    " unique_constraint_schema unique_constraint_name match_option update_rule delete_rule spanner_state",
}
"""The constraints are empty: a scripted database has no foreign keys."""

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A statement's rows: the google.spanner.v1.ResultSetMetadata, and each row's Values, all as bytes."""

    metadata: bytes
    rows: list[list[bytes]]


class InformationSchema:
    """The INFORMATION_SCHEMA of a scenario's database, for one thread; `clock` returns nanoseconds since 1970.

    Functions and placements are those of `scenario` at the statement's timestamp, all else is as it was at first.
    """

    def __init__(self, scenario: Scenario, clock: Callable[[], int]) -> None:
        self.scenario = scenario
        self._google = scenario.dialect == "googlesql"
        self._clock = clock
        self._listed: dict[str, list[tuple[Cell, ...]]] = {}
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("ATTACH ':memory:' AS information_schema")
        for table, columns in _TABLES.items():
            names = ", ".join(f'"{self._name(column)}"' for column in columns.split())
            self._database.execute(f'CREATE TABLE information_schema."{self._name(table)}" ({names})')
        self._fill(_content(scenario))
        self._update(clock())

    def close(self) -> None:
        """Closes the database; no statement can be answered after that."""
        self._database.close()

    def answer(self, sql: str, parameters: Mapping[str, str | None], at: int | None = None) -> Answer:
        """Answers a statement as of now, or as of a timestamp.

        Raises:
            ScriptedError: it reads a table that does not exist, or does not only read these tables, or is not valid.
        """
        asks_time = _CURRENT_TIMESTAMP.fullmatch(sql)
        if asks_time:
            name = asks_time[1] or ("" if self._google else "current_timestamp")
            return Answer(_metadata([(name, "TIMESTAMP")]), [[text(format_rfc3339(self._clock()))]])
        self._update(self._clock() if at is None else at)
        # In the PostgreSQL dialect the statement's $1 is the request's p1.
        known = {**parameters, **{name.removeprefix("p"): value for name, value in parameters.items()}}
        try:
            cursor = self._database.execute(sql, known)
            rows: list[tuple[Cell, ...]] = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            unknown = _NO_TABLE.fullmatch(str(error))
            if unknown and not self._google:
                raise ScriptedError(grpc.StatusCode.NOT_FOUND, f'relation "{unknown[1]}" does not exist') from error
            message = f"Table not found: {unknown[1]}" if unknown else str(error)
            raise invalid(f"{message}: {sql}") from error
        if cursor.description is None:
            raise invalid(f"the statement returns no rows: {sql}")
        columns = [
            (self._shown(name), self._type(name, [row[index] for row in rows]))
            for index, (name, *_) in enumerate(cursor.description)
        ]
        return Answer(
            _metadata(columns),
            [[_value(cell, kind) for cell, (_, kind) in zip(row, columns, strict=True)] for row in rows],
        )

    def _update(self, at: int) -> None:
        """Lists the functions and placements of a time."""
        listed = _content_at(self.scenario, at)
        if listed != self._listed:
            self._listed = listed
            self._fill(listed)

    def _fill(self, content: Mapping[str, Sequence[tuple[Cell, ...]]]) -> None:
        """Replaces the rows of tables, which statements can only read."""
        self._database.set_authorizer(None)
        for table, rows in content.items():
            marks = ", ".join("?" for _ in _TABLES[table].split())
            self._database.execute(f"DELETE FROM information_schema.{table}")
            self._database.executemany(f"INSERT INTO information_schema.{table} VALUES ({marks})", rows)
        self._database.commit()
        self._database.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )

    def _name(self, name: str) -> str:
        return name.upper() if self._google else name

    def _shown(self, name: str) -> str:
        if name.isidentifier():
            return name
        return "" if self._google else "?column?"

    def _type(self, name: str, cells: Sequence[Cell]) -> str:
        if self._google and name.lower() in _BOOLEANS:
            return "BOOL"
        return "INT64" if any(isinstance(cell, int) for cell in cells) else "STRING"


def _metadata(columns: Sequence[tuple[str, str]]) -> bytes:
    return described((name, _Type(code=kind)) for name, kind in columns)


def _value(cell: Cell, kind: str) -> bytes:
    if cell is None:
        return NULL
    return boolean(bool(cell)) if kind == "BOOL" else text(str(cell))


def _content(scenario: Scenario) -> dict[str, list[tuple[Cell, ...]]]:
    google = scenario.dialect == "googlesql"
    schema, string = ("", "STRING") if google else ("public", "character varying")
    dialect = "GOOGLE_STANDARD_SQL" if google else "POSTGRESQL"
    stream = ("", schema, scenario.change_stream)
    content: dict[str, list[tuple[Cell, ...]]] = {
        "database_options": [("", schema, "database_dialect", string, dialect)],
        "change_streams": [(*stream, 1 if google else "YES")],
        "change_stream_options": [(*stream, name, string, value) for name, value in _options(scenario)],
        "tables": [],
        "columns": [],
        "index_columns": [],
    }
    for table in scenario.tables:
        _describe(table, scenario.dialect, content)
    return content


def _content_at(scenario: Scenario, at: int) -> dict[str, list[tuple[Cell, ...]]]:
    """Returns the rows of the tables that change as time passes."""
    google, places = scenario.dialect == "googlesql", scenario.placements
    schema, kind = "" if google else "spanner", places.routine_type if places else "FUNCTION"
    data_type = None if google else "USER-DEFINED"
    yes, no = (1, 0) if google else ("YES", "NO")
    names = [function.name for function in read_functions(scenario, at)]
    listed = [placement.name for placement in places.each if placement.is_listed(at)] if places else []
    return {
        "routines": [("", schema, name, "", schema, name, kind, data_type, "EXTERNAL") for name in names],
        "placements": [(name, yes if name == DEFAULT else no) for name in listed],
    }


def _options(scenario: Scenario) -> list[tuple[str, str]]:
    """Returns the options that are set, those that differ from their defaults."""
    options = [
        ("partition_mode", scenario.mode, "IMMUTABLE_KEY_RANGE"),
        ("retention_period", _period(scenario.retention), "7d"),
        ("value_capture_type", scenario.value_capture_type, "OLD_AND_NEW_VALUES"),
    ]
    if scenario.placements is not None:
        options.append(("per_placement_tvf", "true", "false"))
    return [(name, value) for name, value, default in options if value != default]


def _period(nanoseconds: int) -> str:
    seconds = nanoseconds // SECOND
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _describe(table: Table, dialect: Dialect, content: dict[str, list[tuple[Cell, ...]]]) -> None:
    """Adds a table's rows to the schema's tables."""
    schema, _, name = table.name.rpartition(".")
    where = ("", schema or ("" if dialect == "googlesql" else "public"), name)
    parent = (table.parent, "CASCADE") if table.parent else (None, None)
    content["tables"].append((*where, *parent, "BASE TABLE", "COMMITTED"))
    never = ("NEVER", None, None, "COMMITTED")
    columns: list[tuple[Column, tuple[Cell, ...]]] = [(column, never) for column in table.columns]
    if table.generated:
        generated = ("ALWAYS", " || ".join(table.generated[1:]), "YES", "COMMITTED")
        columns.append((Column(table.generated[0], "STRING"), generated))
    for position, (column, made) in enumerate(columns, 1):
        nullable, type_ = "YES" if column.nullable else "NO", _spanner_type(column, dialect)
        data_type = _data_type(column, type_, dialect)
        content["columns"].append((*where, column.name, position, None, data_type, nullable, type_, *made))
        if position <= table.key_length:
            index = ("PRIMARY_KEY", "PRIMARY_KEY", column.name, position, "ASC", nullable, type_)
            content["index_columns"].append((*where, *index))


def _spanner_type(column: Column, dialect: Dialect) -> str:
    google, postgres = SCALAR_TYPES[column.type]
    if dialect == "googlesql":
        return f"ARRAY<{google}>" if column.array else google
    if column.commit_timestamp:
        return "spanner.commit_timestamp"
    return _POSTGRES_NAMES.get(postgres, postgres) + ("[]" if column.array else "")


def _data_type(column: Column, spanner_type: str, dialect: Dialect) -> str | None:
    if dialect == "googlesql":
        return None
    return "ARRAY" if column.array else spanner_type
