"""Defines the sample database's tables, and writes them as DDL of either dialect.

The tables cover what is hard for a change stream's reader: parent and child rows that are deleted together, every
column type, a key of several columns, names that must be quoted, a named schema, a generated column (which is not
reported). Names are quoted in both dialects, and are the same in both. UUID is missing, because the emulator does not
support it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["googlesql", "postgresql"]

SCALAR_TYPES = {
    "BOOL": ("BOOL", "boolean"),
    "INT64": ("INT64", "bigint"),
    "FLOAT32": ("FLOAT32", "real"),
    "FLOAT64": ("FLOAT64", "double precision"),
    "NUMERIC": ("NUMERIC", "numeric"),
    "STRING": ("STRING(MAX)", "varchar"),
    "BYTES": ("BYTES(MAX)", "bytea"),
    "DATE": ("DATE", "date"),
    "TIMESTAMP": ("TIMESTAMP", "timestamptz"),
    "JSON": ("JSON", "jsonb"),
}
"""Every scalar type by its GoogleSQL name, with its DDL in GoogleSQL and in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` is one of SCALAR_TYPES, and with `array` the column is an array of it."""

    name: str
    type: str
    array: bool = False
    nullable: bool = True
    commit_timestamp: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its key is its first `key_length` columns, and a child's key starts with its parent's.

    `generated` holds a stored column and the text columns that it joins. It is not in `columns`, because it is never
    written and never reported.
    """

    name: str
    columns: tuple[Column, ...]
    key_length: int = 1
    parent: str | None = None
    generated: tuple[str, str, str] | None = None

    @property
    def key(self) -> tuple[Column, ...]:
        """The key's columns in key order."""
        return self.columns[: self.key_length]

    @property
    def values(self) -> tuple[Column, ...]:
        """The columns outside the key."""
        return self.columns[self.key_length :]


def _key(name: str, type_: str) -> Column:
    return Column(name, type_, nullable=False)


TABLES = (
    Table(
        "Singers",
        (
            _key("SingerId", "INT64"),
            Column("FirstName", "STRING"),
            Column("LastName", "STRING"),
            Column("BirthDate", "DATE"),
            Column("UpdatedAt", "TIMESTAMP", commit_timestamp=True),
        ),
        generated=("FullName", "FirstName", "LastName"),
    ),
    Table(
        "Albums",
        (
            _key("SingerId", "INT64"),
            _key("AlbumId", "INT64"),
            Column("Title", "STRING"),
            Column("Budget", "NUMERIC"),
            Column("Tracks", "STRING", array=True),
        ),
        key_length=2,
        parent="Singers",
    ),
    Table(
        "AllTypes",
        (
            _key("Id", "STRING"),
            *(Column(f"{name.title()}Value", name) for name in SCALAR_TYPES),
            *(Column(f"{name.title()}Array", name, array=True) for name in SCALAR_TYPES),
            Column("Required", "INT64", nullable=False),
        ),
    ),
    Table(
        "Readings",
        (
            _key("Device", "STRING"),
            _key("Channel", "INT64"),
            _key("MeasuredAt", "TIMESTAMP"),
            _key("Day", "DATE"),
            _key("Valid", "BOOL"),
            _key("Raw", "BYTES"),
            Column("Value", "FLOAT64"),
        ),
        key_length=6,
    ),
    Table("Order", (_key("Group", "STRING"), _key("Line", "INT64"), Column("Select", "STRING")), key_length=2),
    Table("sales.Invoices", (_key("InvoiceId", "INT64"), Column("Amount", "NUMERIC"), Column("Details", "JSON"))),
)
"""The sample database's tables, parents before their children."""


def quoted(name: str, dialect: Dialect) -> str:
    """Quote the name of a table or a column for the dialect; each part of a table in a named schema is quoted."""
    mark = "`" if dialect == "googlesql" else '"'
    return ".".join(f"{mark}{part}{mark}" for part in name.split("."))


def ddl(dialect: Dialect, change_stream: str, value_capture_type: str) -> list[str]:
    """Returns the statements that create the tables and a change stream FOR ALL of them, in order."""
    schemas = sorted({table.name.rpartition(".")[0] for table in TABLES} - {""})
    statements = [f"CREATE SCHEMA {quoted(schema, dialect)}" for schema in schemas]
    statements += [_create_table(table, dialect) for table in TABLES]
    options = "OPTIONS" if dialect == "googlesql" else "WITH"
    statements.append(
        f"CREATE CHANGE STREAM {quoted(change_stream, dialect)} FOR ALL"
        f" {options} (value_capture_type = '{value_capture_type}')"
    )
    return statements


def _create_table(table: Table, dialect: Dialect) -> str:
    lines = [_column(column, dialect) for column in table.columns]
    if table.generated:
        lines.append(_generated(*table.generated, dialect))
    key = f"PRIMARY KEY ({', '.join(quoted(column.name, dialect) for column in table.key)})"
    parent = f"INTERLEAVE IN PARENT {quoted(table.parent, dialect)} ON DELETE CASCADE" if table.parent else ""
    name = quoted(table.name, dialect)
    if dialect == "googlesql":
        return f"CREATE TABLE {name} ({', '.join(lines)}) {key}" + (f", {parent}" if parent else "")
    return f"CREATE TABLE {name} ({', '.join([*lines, key])}) {parent}".strip()


def _column(column: Column, dialect: Dialect) -> str:
    google, postgres = SCALAR_TYPES[column.type]
    required = "" if column.nullable else " NOT NULL"
    if dialect == "postgresql":
        kind = "spanner.commit_timestamp" if column.commit_timestamp else postgres + ("[]" if column.array else "")
        return f"{quoted(column.name, dialect)} {kind}{required}"
    kind = f"ARRAY<{google}>" if column.array else google
    option = " OPTIONS (allow_commit_timestamp = true)" if column.commit_timestamp else ""
    return f"{quoted(column.name, dialect)} {kind}{required}{option}"


def _generated(name: str, first: str, second: str, dialect: Dialect) -> str:
    name, first, second = (quoted(part, dialect) for part in (name, first, second))
    joined = f"COALESCE({first}, '') || ' ' || COALESCE({second}, '')"
    if dialect == "googlesql":
        return f"{name} STRING(MAX) AS ({joined}) STORED"
    return f"{name} varchar GENERATED ALWAYS AS ({joined}) STORED"
