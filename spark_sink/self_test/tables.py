"""The tables and change streams of a self-test, in both dialects. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from spark_sink.self_test.options import Names

_TYPES = {
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
    "UUID": ("UUID", "uuid"),
}
SCALARS = tuple(kind for kind in _TYPES if kind != "UUID")
"""The types of the table that has a column of each, and an array of each."""

WHOLE, CHANGED, MUTABLE, KEYS, PLACED = "whole", "changed", "mutable", "keys_only", "placed"
"""The change streams: whole rows, changed columns, whole rows in the mode MUTABLE_KEY_RANGE, a table's keys, and a
stream with a read function for each placement."""


@dataclass(frozen=True, slots=True)
class WorkloadColumn:
    """A column; ``kind`` is one of Spanner's types, and with ``is_array`` the column is an array of it."""

    name: str
    kind: str
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    """A table, whose key is its first columns; a child's key begins with its parent's."""

    name: str
    columns: tuple[WorkloadColumn, ...]
    key_length: int = 1
    parent: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(column.name for column in self.columns[: self.key_length])

    @property
    def values(self) -> tuple[WorkloadColumn, ...]:
        """The columns outside the key."""
        return self.columns[self.key_length :]

    def ddl(self, dialect: str) -> str:
        """The statement that creates it."""
        keys = ", ".join(self.key)
        parent = f"INTERLEAVE IN PARENT {self.parent} ON DELETE CASCADE" if self.parent else ""
        lines = [self._column(column, dialect) for column in self.columns]
        if dialect == "googlesql":
            return f"CREATE TABLE {self.name} ({', '.join(lines)}) PRIMARY KEY ({keys})" + (parent and f", {parent}")
        return f"CREATE TABLE {self.name} ({', '.join([*lines, f'PRIMARY KEY ({keys})'])}) {parent}".strip()

    def _column(self, column: WorkloadColumn, dialect: str) -> str:
        google, postgresql = _TYPES[column.kind]
        required = " NOT NULL" if column.name in self.key else ""
        if dialect == "googlesql":
            return f"{column.name} {f'ARRAY<{google}>' if column.is_array else google}{required}"
        return f"{column.name} {postgresql}{'[]' if column.is_array else ''}{required}"


def tables(names: Names, arrays: Collection[str] = SCALARS) -> tuple[WorkloadTable, ...]:
    """The tables that every server must accept, parents before their children.

    Args:
        names: of the self-test.
        arrays: the types of which there is an array.
    """
    parents = names.of("parents")
    return (
        WorkloadTable(
            names.of("types"),
            (
                WorkloadColumn("id", "INT64"),
                *(WorkloadColumn(f"a_{kind.lower()}", kind) for kind in SCALARS),
                *(WorkloadColumn(f"all_{kind.lower()}", kind, is_array=True) for kind in SCALARS if kind in arrays),
            ),
        ),
        WorkloadTable(
            parents, (WorkloadColumn("id", "INT64"), WorkloadColumn("name", "STRING"), WorkloadColumn("day", "DATE"))
        ),
        WorkloadTable(
            names.of("children"),
            (
                WorkloadColumn("id", "INT64"),
                WorkloadColumn("line", "INT64"),
                WorkloadColumn("note", "STRING"),
                WorkloadColumn("amount", "NUMERIC"),
            ),
            key_length=2,
            parent=parents,
        ),
        WorkloadTable(
            names.of("keyed"),
            (
                WorkloadColumn("code", "STRING"),
                WorkloadColumn("number", "INT64"),
                WorkloadColumn("day", "DATE"),
                WorkloadColumn("valid", "BOOL"),
                WorkloadColumn("note", "STRING"),
            ),
            key_length=4,
        ),
    )


def uuid_table(names: Names) -> WorkloadTable:
    """A table with a type that not every server has."""
    return WorkloadTable(
        names.of("uuids"),
        (WorkloadColumn("id", "UUID"), WorkloadColumn("other", "UUID"), WorkloadColumn("note", "STRING")),
    )


def unwatched_table(names: Names) -> WorkloadTable:
    """The table of which a change stream watches the key alone."""
    return WorkloadTable(names.of("unwatched"), (WorkloadColumn("id", "INT64"), WorkloadColumn("note", "STRING")))


def stream_ddl(names: Names, kind: str, watched: tuple[WorkloadTable, ...], dialect: str) -> str:
    """The statement that creates a change stream.

    Args:
        names: of the self-test.
        kind: :data:`WHOLE`, :data:`CHANGED`, :data:`MUTABLE`, :data:`KEYS` or :data:`PLACED`.
        watched: the tables.
        dialect: the database's.
    """
    options = {"value_capture_type": "'OLD_AND_NEW_VALUES'" if kind == CHANGED else "'NEW_ROW'"}
    if kind in (MUTABLE, PLACED):
        options["partition_mode"] = "'MUTABLE_KEY_RANGE'"
    if kind == PLACED:
        options["per_placement_tvf"] = "true"
    columns = "()" if kind == KEYS else ""
    listed = ", ".join(f"{table.name}{columns}" for table in watched)
    texts = ", ".join(f"{name} = {value}" for name, value in options.items())
    keyword = "OPTIONS" if dialect == "googlesql" else "WITH"
    return f"CREATE CHANGE STREAM {names.of(kind)} FOR {listed} {keyword} ({texts})"
