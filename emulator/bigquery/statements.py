"""The statements that the BigQuery double supports: they alter, copy and drop tables, or fail.

It rejects what Google's documentation says BigQuery rejects:

- a column of the primary key or of the clustering can be neither dropped nor renamed (DROP COLUMN and RENAME COLUMN in
  https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language);
- its type cannot change, and a table with a primary key cannot be renamed
  (https://cloud.google.com/bigquery/docs/primary-foreign-keys, limitations); the type of other columns can only be
  widened (ALTER COLUMN SET DATA TYPE in the first page);
- a table can be renamed only some five hours after rows were last streamed into it
  (https://cloud.google.com/bigquery/docs/managing-tables, limitations on renaming tables);
- a table with streamed changes accepts no UPDATE, DELETE or MERGE
  (https://cloud.google.com/bigquery/docs/change-data-capture, limitations), and its key cannot be removed (not
  documented; the error is quoted in github.com/pulumi/pulumi-gcp/issues/1175);
- a statement has at most 1 MB (https://cloud.google.com/bigquery/quotas#query_jobs).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from emulator.bigquery.catalog import Catalog, StoredTable
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import ColumnDefinition, Definition, check

LONGEST = 1_000_000
"""The most characters of a statement."""

_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}
_AFTER_STREAMING = timedelta(hours=5)
_LONGEST_STALENESS = timedelta(hours=24)
_WIDER: Mapping[str, frozenset[str]] = {
    "INT64": frozenset({"NUMERIC", "BIGNUMERIC", "FLOAT64"}),
    "NUMERIC": frozenset({"BIGNUMERIC", "FLOAT64"}),
}
_PATH = r"`([^`.]+)\.([^`.]+)\.([^`.]+)`"
_NAME = r"`?(\w+)`?"
_MUTATING = re.compile(rf"\s*(UPDATE|DELETE(?:\s+FROM)?|MERGE(?:\s+INTO)?)\s+{_PATH}.*", re.IGNORECASE | re.DOTALL)

_FAILING = re.compile(r"\s*SELECT\s+ERROR\('([^']*)'\)\s*;?\s*", re.IGNORECASE)

Act = Callable[..., None]
"""Runs a statement: takes the catalog, the dataset and the table, and what else the statement says."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement: its project and dataset (empty for one that only fails), and the function that runs it."""

    project: str
    dataset: str
    act: Act
    arguments: tuple[str, ...]

    def run(self, catalog: Catalog) -> None:
        """Runs it; raises RefusedError where BigQuery rejects it."""
        self.act(catalog, *self.arguments)


def read(text: str) -> Statement:
    """Parses a statement.

    Raises:
        RefusedError: it is too long or not supported.
    """
    if len(text) > LONGEST:
        raise RefusedError(Reason.INVALID_QUERY, "The query is too large. The maximum length is 1 MB.")
    for pattern, act in _SUPPORTED:
        match = re.fullmatch(rf"\s*{pattern}\s*;?\s*", text, re.IGNORECASE)
        if match is not None:
            project, *arguments = match.groups()
            return Statement(project, arguments[0], act, tuple(arguments))
    failing = _FAILING.fullmatch(text)
    if failing is not None:
        return Statement("", "", _fail, (failing[1],))
    match = _MUTATING.fullmatch(text)
    if match is not None:
        verb, project, dataset, table = match.groups()
        return Statement(project, dataset, _mutate, (dataset, table, verb))
    raise RefusedError(
        Reason.INVALID_QUERY,
        "The double supports only ALTER TABLE, CREATE TABLE AS SELECT * FROM and DROP TABLE, with names"
        " of the form `project.dataset.table`",
    )


def _set_staleness(catalog: Catalog, dataset: str, name: str, number: str, unit: str) -> None:
    staleness = timedelta(seconds=int(number) * _SECONDS[unit.upper()])
    if staleness > _LONGEST_STALENESS:
        raise invalid("max_staleness of a table is between 0 and 24 hours")
    _altering(lambda table: replace(table.definition, max_staleness=staleness))(catalog, dataset, name)


def _fail(_catalog: Catalog, message: str) -> None:
    raise invalid(message)


def _altering(alter: Callable[..., Definition]) -> Act:
    def act(catalog: Catalog, dataset: str, name: str, *others: str) -> None:
        with catalog.lock:
            table = catalog.table(dataset, name)
            table.redefine(alter(table, *others))

    return act


def _rename_column(table: StoredTable, name: str, to: str) -> Definition:
    column = _free_column(table, name, "rename")
    if any(other.name.lower() == to.lower() for other in table.schema):
        raise invalid(f"Column {to} already exists")
    schema = tuple(replace(one, name=to) if one is column else one for one in table.schema)
    table.contents.rename(column.name, to)
    return replace(table.definition, schema=schema)


def _drop_column(table: StoredTable, name: str) -> Definition:
    column = _free_column(table, name, "drop")
    table.contents.rename(column.name, None)
    return replace(table.definition, schema=tuple(one for one in table.schema if one is not column))


def _retype_column(table: StoredTable, name: str, kind: str) -> Definition:
    column = _free_column(table, name, "change the type of")
    if kind.upper() not in _WIDER.get(column.type, ()) or column.mode == "REPEATED":
        raise invalid(f"ALTER TABLE ALTER COLUMN SET DATA TYPE requires that {column.type} can be coerced to {kind}")
    schema = tuple(replace(one, type=kind.upper()) if one is column else one for one in table.schema)
    return replace(table.definition, schema=schema)


def retype(catalog: Catalog, dataset: str, name: str, column: str, kind: str) -> None:
    """Drops a column and adds it again with another type, whoever may access the table; KeyError without the table.

    Raises:
        RefusedError: the column is missing, or part of the key or of the clustering.
    """
    with catalog.lock:
        table = catalog.known(dataset, name)
        found = _free_column(table, column, "drop")
        table.contents.rename(found.name, None)
        schema = tuple(replace(one, type=kind) if one is found else one for one in table.schema)
        table.redefine(replace(table.definition, schema=schema))


def _add_column(table: StoredTable, name: str, kind: str) -> Definition:
    repeated = re.fullmatch(r"ARRAY<(\w+)>", kind, re.IGNORECASE)
    added = ColumnDefinition(name, (repeated[1] if repeated else kind).upper(), "REPEATED" if repeated else "NULLABLE")
    if any(other.name.lower() == name.lower() for other in table.schema):
        raise invalid(f"Column {name} already exists")
    return replace(table.definition, schema=(*table.schema, added))


def _add_key(table: StoredTable, columns: str) -> Definition:
    if table.definition.key:
        raise invalid("The table already has a primary key")
    definition = replace(table.definition, key=tuple(name.strip(" `") for name in columns.split(",")))
    check(definition)
    table.make_contents(definition)
    return definition


def _drop_key(table: StoredTable) -> Definition:
    if table.contents.is_changed:
        raise invalid(
            "Removing existing primary key columns from composite primary key is not allowed for table with upsert data"
        )
    definition = replace(table.definition, key=())
    table.make_contents(definition)
    return definition


def _free_column(table: StoredTable, name: str, verb: str) -> ColumnDefinition:
    """Returns a column; raises RefusedError if it is missing, or part of the key or of the clustering."""
    fixed = {column.lower() for column in (*table.definition.key, *table.definition.clustering)}
    if name.lower() in fixed:
        raise invalid(f"Cannot {verb} column {name}: it is part of the primary key or of the clustering")
    for column in table.schema:
        if column.name.lower() == name.lower():
            return column
    raise invalid(f"Column not found: {name}")


def _rename_table(catalog: Catalog, dataset: str, name: str, to: str) -> None:
    with catalog.lock:
        table = catalog.table(dataset, name)
        if table.definition.key:
            raise invalid("Tables with primary key constraints can't be renamed")
        streamed = table.contents.streamed
        if streamed is not None and catalog.now() - streamed < _AFTER_STREAMING:
            raise invalid("The table has been streamed into recently and cannot be renamed yet")
        catalog.rename(dataset, name, to)


def _copy_table(catalog: Catalog, dataset: str, name: str, project: str, of_dataset: str, of_name: str) -> None:
    assert project == catalog.project
    with catalog.lock:
        copied = catalog.table(of_dataset, of_name)
        rows = copied.contents.rows(copied.schema)
        schema = tuple(replace(one, mode=one.mode.replace("REQUIRED", "NULLABLE")) for one in copied.schema)
        catalog.add(dataset, name, Definition(schema)).contents.append(rows, catalog.now())


def _mutate(catalog: Catalog, dataset: str, name: str, verb: str) -> None:
    if catalog.table(dataset, name).contents.is_changed:
        raise RefusedError(
            Reason.INVALID_QUERY, f"{verb} is not supported over a table with active CDC: {dataset}.{name}"
        )
    raise RefusedError(Reason.NOT_IMPLEMENTED, f"The double does not support {verb}")


_ALTER = rf"ALTER\s+TABLE\s+{_PATH}\s+"
_SUPPORTED: tuple[tuple[str, Act], ...] = (
    (
        rf"{_ALTER}SET\s+OPTIONS\s*\(\s*max_staleness\s*=\s*INTERVAL\s+(\d{{1,9}})\s+({'|'.join(_SECONDS)})\s*\)",
        _set_staleness,
    ),
    (rf"{_ALTER}RENAME\s+COLUMN\s+{_NAME}\s+TO\s+{_NAME}", _altering(_rename_column)),
    (rf"{_ALTER}DROP\s+COLUMN\s+{_NAME}", _altering(_drop_column)),
    (rf"{_ALTER}ADD\s+COLUMN\s+{_NAME}\s+([\w<>]+)", _altering(_add_column)),
    (rf"{_ALTER}ALTER\s+COLUMN\s+{_NAME}\s+SET\s+DATA\s+TYPE\s+(\w+)", _altering(_retype_column)),
    (rf"{_ALTER}ADD\s+PRIMARY\s+KEY\s*\(([^)]+)\)\s*NOT\s+ENFORCED", _altering(_add_key)),
    (rf"{_ALTER}DROP\s+PRIMARY\s+KEY", _altering(_drop_key)),
    (rf"{_ALTER}RENAME\s+TO\s+{_NAME}", _rename_table),
    (rf"CREATE\s+TABLE\s+{_PATH}\s+AS\s+SELECT\s+\*\s+FROM\s+{_PATH}", _copy_table),
    (rf"DROP\s+TABLE\s+{_PATH}", Catalog.remove),
)
