"""A random history of DDL and of rows, in a database of either dialect.

What a change stream cannot show is left out of it: a column that is added again has a type that it never had, and a
table that is created again has a key that it never had.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from google.cloud.spanner_v1.batch import Batch
from google.cloud.spanner_v1.keyset import KeySet

from emulator import SampleDatabase

Key = tuple[object, ...]

TYPES: dict[str, tuple[str, str, Callable[[Random], object]]] = {
    "INT64": ("INT64", "bigint", lambda random: random.randrange(1000)),
    "STRING": ("STRING(MAX)", "varchar", lambda random: f"text {random.randrange(1000)}"),
    "BOOL": ("BOOL", "boolean", lambda random: random.random() < 0.5),
    "FLOAT64": ("FLOAT64", "double precision", lambda random: random.randrange(1000) / 8),
    "DATE": ("DATE", "date", lambda random: dt.date(2020, 1, 1 + random.randrange(28))),
    "BYTES": ("BYTES(MAX)", "bytea", lambda random: random.choice([b"YWJj", b"YQ==", b"MTIz"])),
}
"""By the code: how each dialect spells it, and values."""

KEYS = (
    (("Id", "INT64"),),
    (("Code", "STRING"),),
    (("Id", "INT64"), ("Part", "INT64")),
    (("Id", "STRING"),),
    (("Part", "INT64"), ("Code", "STRING")),
    (("Part", "INT64"),),
)
COLUMNS = ("A", "B", "C", "D")


@dataclass
class Table:
    """A table as it is.

    Attributes:
        key: names and types of its key.
        columns: the types of the others, by name.
        required: the column that must not be NULL, or an empty text.
        parent: what it is interleaved in, or an empty text.
        used: types that each column has ever had.
        rows: the keys of its rows.
    """

    key: tuple[tuple[str, str], ...]
    columns: dict[str, str]
    required: str = ""
    parent: str = ""
    used: dict[str, set[str]] = field(default_factory=dict)
    rows: set[Key] = field(default_factory=set)


class History:
    """Makes the history of a database, step by step.

    Args:
        sample: the database, with a change stream that watches all of it.
        random: decides everything.

    Attributes:
        tables: by name.
        renamed: tables that have rows from under a former name, since :attr:`renamed` was emptied last.
        statements: all DDL so far.
    """

    def __init__(self, sample: SampleDatabase, random: Random) -> None:
        self._sample = sample
        self._random = random
        self._is_postgresql = sample.dialect == "postgresql"
        self._names = 0
        self._former: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        self.tables: dict[str, Table] = {}
        self.renamed: set[str] = set()
        self.statements: list[str] = []
        self._create()

    def step(self) -> None:
        """Alters a table, or changes rows of some."""
        if self._random.random() < 0.4:
            self._random.choice(
                [self._add, self._add, self._drop, self._add_again, self._rename, self._create_again, self._interleave]
            )()
        else:
            self._transact()

    # DDL.

    def _add(self) -> None:
        name, table = self._any()
        column = self._random.choice(COLUMNS)
        types = [one for one in TYPES if one not in table.used.get(column, ())]
        if column in table.columns or not types:
            return
        kind = self._random.choice(types)
        self._alter(f"ALTER TABLE {self._quoted(name)} ADD COLUMN {self._quoted(column)} {self._spelled(kind)}")
        table.columns[column] = kind
        table.used.setdefault(column, set()).add(kind)

    def _drop(self) -> None:
        name, table = self._any()
        if table.columns:
            self._drop_column(name, table, self._random.choice(sorted(table.columns)))

    def _add_again(self) -> None:
        name, table = self._any()
        for column in sorted(table.columns)[:1]:
            types = [one for one in TYPES if one not in table.used[column]]
            if types:
                self._drop_column(name, table, column)
                if self._random.random() < 0.5:
                    self._transact()
                kind = self._random.choice(types)
                self._alter(f"ALTER TABLE {self._quoted(name)} ADD COLUMN {self._quoted(column)} {self._spelled(kind)}")
                table.columns[column] = kind
                table.used[column].add(kind)

    def _rename(self) -> None:
        name, table = self._any()
        if table.parent or self._children(name):
            return
        new = self._new_name()
        self._alter(f"ALTER TABLE {self._quoted(name)} RENAME TO {self._quoted(new)}")
        self.tables[new] = self.tables.pop(name)
        column = self._quoted("Watched")
        for what in (f"ADD COLUMN {column} {self._spelled('INT64')}", f"DROP COLUMN {column}"):
            self._alter(f"ALTER TABLE {self._quoted(new)} {what}")  # until then the emulator does not record changes
        self._former[new] = {table.key}
        self.renamed.discard(name)
        if table.rows:
            self.renamed.add(new)

    def _create_again(self) -> None:
        name, table = self._any()
        keys = [key for key in KEYS if key not in self._former[name]]
        if table.parent or not keys:
            return
        for child in self._children(name):
            self._alter(f"DROP TABLE {self._quoted(child)}")
            del self.tables[child]
        self._alter(f"DROP TABLE {self._quoted(name)}")
        del self.tables[name]
        self.renamed.discard(name)
        if self._random.random() < 0.3 and self.tables:
            self._transact()
        self._create(name, self._random.choice(keys))

    def _interleave(self) -> None:
        name, table = self._any()
        if table.parent or self._children(name):
            return
        self._create(None, (*table.key, ("Seq", "INT64")), name)

    def _create(self, name: str | None = None, key: tuple[tuple[str, str], ...] = KEYS[0], parent: str = "") -> None:
        name = name or self._new_name()
        columns = {column: self._random.choice(list(TYPES)) for column in self._random.sample(COLUMNS, 2)}
        required = self._random.choice([*columns, "", ""])
        parts = [
            f"{self._quoted(column)} {self._spelled(kind)}{' NOT NULL' if column in (required, *dict(key)) else ''}"
            for column, kind in (*key, *columns.items())
        ]
        names = ", ".join(self._quoted(column) for column, _ in key)
        on_delete = self._random.choice(["CASCADE", "NO ACTION"])
        within = f" INTERLEAVE IN PARENT {self._quoted(parent)} ON DELETE {on_delete}" if parent else ""
        if self._is_postgresql:
            self._alter(f"CREATE TABLE {self._quoted(name)} ({', '.join(parts)}, PRIMARY KEY ({names})){within}")
        else:
            within = f",{within}" if parent else ""
            self._alter(f"CREATE TABLE {self._quoted(name)} ({', '.join(parts)}) PRIMARY KEY ({names}){within}")
        used = {column: {kind} for column, kind in columns.items()}
        self.tables[name] = Table(key, columns, required, parent, used)
        self._former.setdefault(name, set()).add(key)

    def _drop_column(self, name: str, table: Table, column: str) -> None:
        self._alter(f"ALTER TABLE {self._quoted(name)} DROP COLUMN {self._quoted(column)}")
        del table.columns[column]
        if table.required == column:
            table.required = ""

    def _alter(self, statement: str) -> None:
        self.statements.append(statement)
        self._sample.run_ddl(statement)

    # Rows.

    def _transact(self) -> None:
        """Changes some rows of some tables in one transaction."""
        with self._sample.database.batch() as batch:
            touched: set[tuple[str, Key]] = set()
            for _ in range(self._random.randint(1, 6)):
                name, table = self._any()
                self._change(batch, name, table, touched)

    def _change(self, batch: Batch, name: str, table: Table, touched: set[tuple[str, Key]]) -> None:
        key = self._key(name, table)
        if key is None or (name, key) in touched:
            return
        if key not in table.rows:
            batch.insert(name, [*dict(table.key), *table.columns], [(*key, *self._values(table, table.columns))])
            table.rows.add(key)
        elif self._random.random() < 0.3:
            below = [(child, row) for child in self._children(name) for row in self._below(child, key)]
            if any(row in touched for row in below):
                return
            for child, row in below:
                batch.delete(child, KeySet(keys=[row]))
                self.tables[child].rows.discard(row)
            touched.update(below)
            batch.delete(name, KeySet(keys=[key]))
            table.rows.discard(key)
        elif table.columns:
            columns = self._random.sample(sorted(table.columns), self._random.randint(1, len(table.columns)))
            batch.update(name, [*dict(table.key), *columns], [(*key, *self._values(table, columns))])
        touched.add((name, key))

    def _key(self, name: str, table: Table) -> Key | None:
        """A key that is there, or one that may be: of a child one whose parent is there."""
        if table.rows and self._random.random() < 0.5:
            return self._random.choice(sorted(table.rows, key=repr))
        if table.parent:
            parents = sorted(self.tables[table.parent].rows, key=repr)
            return (*self._random.choice(parents), self._random.randrange(3)) if parents else None
        return tuple(
            self._random.randrange(6) if kind == "INT64" else f"k{self._random.randrange(6)}" for _, kind in table.key
        )

    def _below(self, child: str, key: Key) -> Iterator[Key]:
        return (row for row in sorted(self.tables[child].rows, key=repr) if row[: len(key)] == key)

    def _values(self, table: Table, columns: "dict[str, str] | list[str]") -> list[object]:
        return [
            None
            if column != table.required and self._random.random() < 0.2
            else TYPES[table.columns[column]][2](self._random)
            for column in columns
        ]

    def _children(self, name: str) -> list[str]:
        return sorted(child for child, table in self.tables.items() if table.parent == name)

    def _any(self) -> tuple[str, Table]:
        return self._random.choice(sorted(self.tables.items(), key=lambda item: item[0]))

    def _new_name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def _spelled(self, kind: str) -> str:
        googlesql, postgresql, _ = TYPES[kind]
        return postgresql if self._is_postgresql else googlesql

    def _quoted(self, name: str) -> str:
        return f'"{name}"' if self._is_postgresql else f"`{name}`"
