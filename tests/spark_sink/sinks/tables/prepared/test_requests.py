"""The requests of a micro-batch to a spool's storage and to a catalog, before it writes tables."""

from collections import Counter
from threading import Barrier
from types import SimpleNamespace

import pytest
from pyspark.sql import Row

from connector.core.timestamps import SECOND
from connector.spool.storage.local import LocalStore
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.formats.store import PreparedTable
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.merge_into import Merged, TablesWriter, _Merging
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.spools import SpoolMaker, record

TABLES = [f"T{number:02d}" for number in range(20)]


class Done:
    """A store of tables that have every epoch already."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, ...]] = []

    def target(self, name: str) -> str:
        return name

    def prepare(self, table: LakeTable) -> PreparedTable:
        self.keys.append(table.primary_key)
        return PreparedTable(table, is_keyed=True)

    def applied(self, name: str) -> Offset:
        return Offset(1)

    def identity(self, name: str) -> str:
        return name

    def is_new(self, _: str) -> bool:
        return False


class Together(Done):
    """A store that prepares no table until it is asked for several ones."""

    def __init__(self) -> None:
        super().__init__()
        self.others = Barrier(4)

    def prepare(self, table: LakeTable) -> PreparedTable:
        self.others.wait(timeout=60)
        return super().prepare(table)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests that have been made, by kind."""
    found: Counter[str] = Counter()

    def counted(kind: str) -> None:
        request = getattr(LocalStore, kind)

        def one(self: LocalStore, *arguments: str, **named: str) -> object:
            found[kind] += 1
            return request(self, *arguments, **named)

        monkeypatch.setattr(LocalStore, kind, one)

    for kind in ("read", "exists", "list"):
        counted(kind)
    return found


def test_the_requests_of_a_micro_batch_do_not_grow_with_the_number_of_its_tables(
    spool: SpoolMaker, requests: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.seal(*(record(spool.watermark + SECOND + n, [n], table=name) for n, name in enumerate(TABLES)))
    writer = TablesWriter(Feed.at(spool.path), TableOptions("delta", "/lake", None, "append", "apply"), "merge_into")
    store = Done()
    monkeypatch.setattr(writer, "store", lambda _: store)

    def made(names: list[str]) -> int:
        requests.clear()
        rows = [Row(object=name, last=1, first=1, events=1) for name in names]
        batch = Merged(1, 1, dict.fromkeys(names, 1))
        stopped, _ = writer._write(SimpleNamespace(sparkSession=None), rows, batch, _Merging(frozenset(), False))  # type: ignore[arg-type]
        assert not stopped
        return requests.total()

    made(TABLES)  # a schema's file never changes, and each is read once
    assert made(TABLES) == made(TABLES[:1])
    assert store.keys == [("Id",)] * 41


def test_tables_are_prepared_beside_each_other(spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.seal(*(record(spool.watermark + SECOND + n, [n], table=name) for n, name in enumerate(TABLES)))
    writer = TablesWriter(Feed.at(spool.path), TableOptions("delta", "/lake", None, "append", "apply"), "merge_into")
    monkeypatch.setattr(writer, "store", lambda _: Together())
    rows = [Row(object=name, last=1, first=1, events=1) for name in TABLES]
    batch = Merged(1, 1, dict.fromkeys(TABLES, 1))
    stopped, _ = writer._write(SimpleNamespace(sparkSession=None), rows, batch, _Merging(frozenset(), False))  # type: ignore[arg-type]
    assert not stopped
