"""A small random workload, and the exact record of what it has committed.

It has every column type, NULLs, a large transaction, one over several tables with a transaction tag, updates of some
columns, deletes with those of child rows, and keys that are inserted again. One thread commits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.keyset import KeySet
from google.protobuf.timestamp_pb2 import Timestamp

from connector.core.timestamps import SECOND
from spark_sink.self_test.tables import WorkloadTable
from spark_sink.self_test.values import Limits, Value, draw, scalar, written

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"
TAG = "spanner-cdc-self-test"
"""The transaction tag of some transactions."""

LARGE = 500
"""Rows of the large transaction."""

RANDOM_TRANSACTIONS = 20

Row = dict[str, Value]
Key = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class WorkloadMod:
    """A change of one row.

    Attributes:
        row: all columns after the change; of a delete those before it.
        changed: the columns that differ from before, without the key's; of an insert all.
        is_cascade: whether the server makes it, because the row's parent is deleted.
    """

    table: str
    mod_type: str
    key: Key
    row: Mapping[str, Value]
    changed: frozenset[str]
    is_cascade: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A transaction before it is committed."""

    mods: tuple[WorkloadMod, ...]
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that is committed; ``timestamp`` is in nanoseconds since 1970."""

    timestamp: int
    mods: tuple[WorkloadMod, ...]
    tag: str = ""


@dataclass(slots=True)
class WorkloadPlanner:
    """Plans transactions on a model of the tables, which are empty at first. Pure but for its random numbers."""

    tables: Mapping[str, WorkloadTable]
    random: Random
    limits: Limits
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)

    def transactions(self) -> Iterator[Planned]:
        """Every transaction; each must be committed before the next is requested."""
        by_end = {name.rpartition("_")[2]: table for name, table in self.tables.items()}
        types, parents, children, keyed = (by_end[name] for name in ("types", "parents", "children", "keyed"))
        nulls = self._inserted(types, ("1",), {column.name: None for column in types.values})
        yield self._done([nulls, *(self._insert(types, (str(n),)) for n in range(2, 9))])
        family = [self._insert(parents, (str(n),)) for n in range(1, 5)]
        family += [self._insert(children, (str(n), str(line))) for n in range(1, 5) for line in range(3)]
        yield self._done([*family, *self._insert_some(keyed, 4)], TAG)
        yield self._done([self._insert(children, ("1", str(line))) for line in range(100, 100 + LARGE)])
        yield self._done([self._update(types, key) for key in list(self._of(types))])
        yield self._done([self._update(types, ("2",), to_null=True), *self._delete(types, ("3",))], TAG)
        yield self._done(self._delete(parents, ("2",)))
        yield self._done([self._insert(types, ("3",)), self._insert(parents, ("2",))])
        if uuids := by_end.get("uuids"):
            yield self._done(self._insert_some(uuids, 3))
            yield self._done([self._update(uuids, key) for key in list(self._of(uuids))[:2]])
        for _ in range(RANDOM_TRANSACTIONS):
            yield self._done(self._random_mods())

    def _of(self, table: WorkloadTable) -> dict[Key, Row]:
        return self.rows.setdefault(table.name, {})

    def _done(self, mods: list[WorkloadMod], tag: str = "") -> Planned:
        """Applies a transaction to the model."""
        for mod in mods:
            rows = self.rows.setdefault(mod.table, {})
            if mod.mod_type == DELETE:
                del rows[mod.key]
            else:
                rows[mod.key] = dict(mod.row)
        return Planned(tuple(mods), tag)

    def _random_mods(self) -> list[WorkloadMod]:
        mods: list[WorkloadMod] = []
        taken: set[tuple[str, Key]] = set()
        for _ in range(self.random.randrange(1, 7)):
            table = self.random.choice(list(self.tables.values()))
            keys = list(self._of(table))
            roll = self.random.random()
            if not keys or roll < 0.4:
                made = [self._insert_new(table)]
            elif roll < 0.8:
                made = [self._update(table, self.random.choice(keys))]
            else:
                made = self._delete(table, self.random.choice(keys))
            named = {(mod.table, mod.key) for mod in made} | {
                (mod.table.replace("children", "parents"), mod.key[:1]) for mod in made if "children" in mod.table
            }
            if not named & taken and len(made) < LARGE:
                taken |= named
                mods += made
        return mods

    def _insert(self, table: WorkloadTable, key: Key) -> WorkloadMod:
        return self._inserted(
            table, key, {column.name: draw(self.random, column, self.limits) for column in table.values}
        )

    def _insert_some(self, table: WorkloadTable, count: int) -> list[WorkloadMod]:
        """Inserts rows with different new keys."""
        mods: dict[Key, WorkloadMod] = {}
        while len(mods) < count:
            mod = self._insert_new(table)
            mods.setdefault(mod.key, mod)
        return list(mods.values())

    def _insert_new(self, table: WorkloadTable) -> WorkloadMod:
        """Inserts a row whose key is new; a child gets a parent that exists in the model."""
        while True:
            parts: list[Value] = [scalar(self.random, column.kind, self.limits) for column in table.columns]
            key = tuple(parts[: table.key_length])
            if table.parent:
                key = (self.random.choice(list(self.rows[table.parent]))[0], *key[1:])
            if key not in self._of(table):
                return self._insert(table, key)

    def _inserted(self, table: WorkloadTable, key: Key, values: Row) -> WorkloadMod:
        row = dict(zip(table.key, key, strict=True)) | values
        return WorkloadMod(table.name, INSERT, key, row, frozenset(values))

    def _update(self, table: WorkloadTable, key: Key, *, to_null: bool = False) -> WorkloadMod:
        """Changes at least one column; a column that is written always gets another value."""
        before = self._of(table)[key]
        columns = self.random.sample(table.values, self.random.randrange(1, len(table.values) + 1))
        news: Row = {}
        while not news:
            for column in columns:
                value = None if to_null else draw(self.random, column, self.limits)
                if written(column, value) != written(column, before[column.name]):
                    news[column.name] = value
            columns, to_null = list(table.values), False
        return WorkloadMod(table.name, UPDATE, key, before | news, frozenset(news))

    def _delete(self, table: WorkloadTable, key: Key) -> list[WorkloadMod]:
        """Deletes a row, and with it those of its child tables."""
        mods = [WorkloadMod(table.name, DELETE, key, self._of(table)[key], frozenset())]
        for child in self.tables.values():
            if child.parent == table.name:
                rows = self._of(child).items()
                mods += [
                    WorkloadMod(child.name, DELETE, one, row, frozenset(), is_cascade=True)
                    for one, row in rows
                    if one[: len(key)] == key
                ]
        return mods


def commit(database: Database, planned: Planned, tables: Mapping[str, WorkloadTable]) -> Committed:
    """Commits a transaction.

    Raises:
        google.api_core.exceptions.GoogleAPIError: Spanner refuses it, or it is unknown whether it is committed.
    """
    options = {"transaction_tag": planned.tag} if planned.tag else None
    with database.batch(request_options=options) as batch:
        for mod in planned.mods:
            if mod.mod_type == DELETE:
                if not mod.is_cascade:
                    batch.delete(mod.table, KeySet(keys=[list(mod.key)]))
                continue
            columns = [*tables[mod.table].key, *sorted(mod.changed)]
            write = batch.insert if mod.mod_type == INSERT else batch.update
            write(mod.table, columns, [[mod.row[name] for name in columns]])
    return Committed(nanoseconds(batch.committed), planned.mods, planned.tag)


def nanoseconds(timestamp: object) -> int:
    """A commit timestamp of the library in nanoseconds since 1970, without rounding."""
    stamp: Timestamp = timestamp if isinstance(timestamp, Timestamp) else timestamp.timestamp_pb()  # type: ignore[attr-defined]
    return int(stamp.seconds) * SECOND + int(stamp.nanos)
