"""The ten tables of the campaign, half of them interleaved in the others, and the load on them.

Each write has a number of its own, in the order of the commits, and a written row has it in the column `Count`: a key's
`Count` never decreases. Rows that are there from the beginning have smaller ones.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from google.cloud.spanner_v1.batch import Batch
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.keyset import KeySet
from google.protobuf.timestamp_pb2 import Timestamp
from proto.datetime_helpers import DatetimeWithNanoseconds

from tests.background_thread import BackgroundThread

PARENTS = 5
_CHUNK = 2000
_LINES = 7
_PAUSE, _LONG_PAUSE = 0.02, 1.0
_RUN = 20
"""Writes of a kind to a table that follow each other, to share a record, where a number of writes is wanted."""

Key = tuple[int, ...]
Rows = dict[tuple[str, Key], tuple[str, int]]
"""By table and key, a row's `Name` and `Count`."""


def tables(parents: int = PARENTS) -> list[str]:
    return [f"{kind}{number}" for number in range(parents) for kind in ("Parent", "Child")]


def columns_of(table: str) -> tuple[str, ...]:
    return ("Id", "Name", "Count") if table.startswith("Parent") else ("Id", "Line", "Name", "Count")


def key_columns(table: str) -> tuple[str, ...]:
    return columns_of(table)[:-2]


def ddl(dialect: str, parents: int = PARENTS) -> list[str]:
    text, number = ("STRING(MAX)", "INT64") if dialect == "googlesql" else ("varchar", "bigint")
    quote = "`" if dialect == "googlesql" else '"'

    def create(table: str, more: str) -> str:
        body = ", ".join(f"{quote}{name}{quote} {kind}" for name, kind in _types(table, text, number))
        keys = ", ".join(f"{quote}{name}{quote}" for name in key_columns(table))
        head = f"CREATE TABLE {quote}{table}{quote}"
        if dialect == "googlesql":
            return f"{head} ({body}) PRIMARY KEY ({keys}){', ' if more else ''}{more}"
        return f"{head} ({body}, PRIMARY KEY ({keys})) {more}"

    statements = []
    for each in range(parents):
        statements.append(create(f"Parent{each}", ""))
        parent = f"INTERLEAVE IN PARENT {quote}Parent{each}{quote} ON DELETE CASCADE"
        statements.append(create(f"Child{each}", parent))
    return statements


def _types(table: str, text: str, number: str) -> Iterator[tuple[str, str]]:
    for name in columns_of(table):
        kind = text if name == "Name" else number
        yield name, f"{kind} NOT NULL" if name in key_columns(table) else kind


def load(database: Database, rows: int, parents: int = PARENTS) -> None:
    """Fills the tables with about so many rows, equally many in each."""
    each = rows // len(tables(parents))
    for table in tables(parents):
        for first in range(0, each, _CHUNK):
            values = [
                (*_key(table, index), f"{table} row {index} " + "x" * 60, index)
                for index in range(first, min(first + _CHUNK, each))
            ]
            with database.batch() as batch:
                batch.insert(table, columns_of(table), values)


def _key(table: str, index: int) -> Key:
    return (index,) if table.startswith("Parent") else (index, index % _LINES)


class Load(BackgroundThread):
    """Inserts, updates and deletes rows in a thread, for as long as the context is open; its error is raised then.

    Args:
        database: has the tables.
        rows: how many were loaded.
        random: decides what is written.
        sizes: the writes of a transaction, one of them each time.
        parents: the number of tables with interleaved ones.
        writes: how many are wanted, if that matters: over some minutes, and few after that. An emulator that has many
            more changes than a reader has read becomes slower and slower.
    """

    def __init__(
        self,
        database: Database,
        rows: int,
        random: Random,
        sizes: Sequence[int] = (1, 1, 1, 4),
        parents: int = PARENTS,
        writes: int = 0,
    ) -> None:
        super().__init__()
        self._database = database
        self._wanted = writes
        self._parents = parents
        self._each = rows // len(tables(parents))
        self._random = random
        self._without_parent: set[tuple[str, int]] = set()
        self._number = self._loaded = rows
        self._parent = 0
        self._sizes = sizes
        self.transactions = 0
        self.writes = 0

    def _pause(self) -> float:
        if not self._wanted:
            return _PAUSE
        return 10 * _PAUSE if self.writes < self._wanted else _LONG_PAUSE

    def _run(self) -> None:
        while not self._stop.wait(self._pause()):
            with self._database.batch() as batch:
                self._transact(batch)
            self.transactions += 1
            self.writes = self._number - self._loaded

    def _transact(self, batch: Batch) -> None:
        run = _RUN if self._wanted else 1
        for index in range(self._random.choice(self._sizes)):
            if index % run == 0:
                self._parent = self._random.randrange(self._parents)
                write = self._random.choice(self._writes())
            self._number += 1
            write(batch)

    def _writes(self) -> list[Callable[[Batch], None]]:
        often, seldom = [self._upsert_child, self._upsert_parent], [self._delete_child, self._insert_parent]
        return [*often, *often, *often, *seldom, *seldom, self._delete_parent]

    def _upsert_child(self, batch: Batch) -> None:
        number, index = self._drawn()
        parent, table = f"Parent{number}", f"Child{number}"
        if (parent, index) in self._without_parent:
            self._put(batch, parent, (index,), "is back")
            self._without_parent.discard((parent, index))
            self._number += 1
        self._put(batch, table, _key(table, index), "written")

    def _upsert_parent(self, batch: Batch) -> None:
        number, index = self._drawn()
        self._without_parent.discard((f"Parent{number}", index))
        self._put(batch, f"Parent{number}", (index,), "updated")

    def _insert_parent(self, batch: Batch) -> None:
        number, _ = self._drawn()
        self._put(batch, f"Parent{number}", (self._number,), "new")

    def _delete_child(self, batch: Batch) -> None:
        number, index = self._drawn()
        table = f"Child{number}"
        batch.delete(table, KeySet(keys=[_key(table, index)]))

    def _delete_parent(self, batch: Batch) -> None:
        """Deletes a parent with its child."""
        number, index = self._drawn()
        self._without_parent.add((f"Parent{number}", index))
        batch.delete(f"Parent{number}", KeySet(keys=[(index,)]))

    def _drawn(self) -> tuple[int, int]:
        return self._parent, self._random.randrange(self._each)

    def _put(self, batch: Batch, table: str, key: Key, name: str) -> None:
        batch.insert_or_update(table, columns_of(table), [(*key, f"{name} {self._number}", self._number)])


def last_commit(database: Database) -> DatetimeWithNanoseconds:
    """Commits a last row; its timestamp is after all others, whatever this machine's clock is."""
    with database.batch() as batch:
        batch.insert("Parent0", columns_of("Parent0"), [(10**9, "last", 10**9)])
    return committed_at(batch)


def committed_at(batch: Batch) -> DatetimeWithNanoseconds:
    """The timestamp of a commit, which this machine's clock need not have passed."""
    committed: object = batch.committed
    if isinstance(committed, Timestamp):
        return DatetimeWithNanoseconds.from_timestamp_pb(committed)
    assert isinstance(committed, DatetimeWithNanoseconds)
    return committed


def rows_of_database(database: Database, at: DatetimeWithNanoseconds, names: Sequence[str] = ()) -> Rows:
    """All rows as of a timestamp, or those of some tables."""
    found: Rows = {}
    with database.snapshot(multi_use=True, read_timestamp=at) as snapshot:
        for table in names or tables():
            for row in snapshot.read(table, columns_of(table), KeySet(all_=True)):
                found[table, tuple(row[:-2])] = (row[-2], row[-1])
    return found
