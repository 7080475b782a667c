"""A table is prepared again only if it is another one or another one is wanted, and its last epoch is never guessed."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_sink
from connector.core.records import ColumnType
from spark_sink.errors import TableError
from spark_sink.sinks.tables.config import Format, Mode, TableOptions
from spark_sink.sinks.tables.formats import iceberg
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.formats.remembered import Remembered
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.tables.changes import NAME, change
from tests.spark_sink.sinks.tables.prepared.commits import Commits
from tests.spark_sink.sinks.tables.reading import sealed, target
from tests.spark_sink.spools import KEY, SpoolMaker

_TABLE = LakeTable(
    "Singers", "Singers", {"Id": "bigint", "Name": "string"}, {"Id": KEY.type, "Name": NAME.type}, ("Id",)
)
_MORE = (KEY, NAME, ColumnType("More", '{"code":"STRING"}', False, 3))
_WITH_ICEBERG = pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse"
)


class Appending:
    """Appends epochs to a table, where a row shows that is there twice, and counts how often the table is prepared."""

    def __init__(self, lake: SparkSession, of_format: Format, folder: Path) -> None:
        self.lake = lake
        self.spool = SpoolMaker(folder / "spool")
        self.path = folder / "lake"
        self.format = of_format
        self.table = target(self.path, of_format)
        self.statements = 0

    def prepared(self, table: LakeTable = _TABLE, mode: Mode = "merge", lake: SparkSession | None = None) -> bool:
        """Asks for a table; true if it was prepared."""
        before = self.statements
        options = TableOptions(self.format, str(self.path), None, mode, "apply")
        found = STORES[self.format](lake or self.lake, options, "spanner-cdc.x.y").prepare(table)
        assert (found.table.source, found.table.columns, found.is_keyed) == (table.source, table.columns, True)
        return self.statements > before

    def seal(self, key: int, columns: tuple[ColumnType, ...] = (KEY, NAME)) -> None:
        self.spool.seal(change(key, [key], columns, **{column.name: "v" for column in columns[1:]}))

    def append(self, first: int, last: int) -> bool:
        """Appends epochs; true if the table was prepared for it."""
        before = self.statements
        events = sealed(self.lake, self.spool.spool, first, last)
        spark_sink.merge_into(events, path=self.path, format=self.format, mode="append", spool=self.spool.path)
        return self.statements > before

    def ids(self) -> list[int]:
        self.lake.sql(f"REFRESH TABLE {self.table}")
        return sorted(row["Id"] for row in self.lake.table(self.table).select("Id").collect())


@pytest.fixture
def appending(lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Appending:
    made = Appending(lake, merging_format, tmp_path)
    run = SparkSession.sql

    def counted(session: SparkSession, statement: str, *args: Any, **options: Any) -> DataFrame:
        made.statements += statement.startswith("CREATE TABLE IF NOT EXISTS")
        return run(session, statement, *args, **options)

    monkeypatch.setattr(SparkSession, "sql", counted)
    return made


def test_a_table_is_prepared_until_nothing_changes_and_again_when_it_has_changed(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, table = appending.lake, appending.table
    assert [appending.prepared() for _ in range(3)] == [True, True, False]
    lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('owner.of' = 'somebody')")
    assert [appending.prepared() for _ in range(2)] == [True, False]
    lake.sql(f"ALTER TABLE {table} ADD COLUMNS (Other STRING)")
    assert [appending.prepared() for _ in range(2)] == [True, False]
    wider = replace(_TABLE, columns={**_TABLE.columns, "More": "string"})
    assert [appending.prepared(wider) for _ in range(3)] == [True, True, False]
    assert {"Name", "Other", "More"} <= {*lake.table(table).columns}
    assert appending.prepared()
    assert [appending.prepared(lake=lake.newSession()) for _ in range(2)] == [True, True]
    assert not appending.prepared()
    with pytest.raises(TableError, match=r"the key of table Singers is \(Name\), but in .* by \(Id\)"):
        appending.prepared(replace(_TABLE, primary_key=("Name",)))
    with pytest.raises(TableError, match="has no versions of rows"):
        appending.prepared(mode="history")
    monkeypatch.setattr(STORES[appending.format], "state", lambda store, name: None)
    assert [appending.prepared() for _ in range(2)] == [True, True]


@pytest.mark.long
def test_a_table_that_was_dropped_is_created_again_with_what_comes_then(appending: Appending) -> None:
    for key in (1, 2, 3):
        appending.seal(key)
    assert [appending.append(epoch, epoch) for epoch in (1, 2, 3)] == [True, True, False]
    if appending.format == "delta":
        shutil.rmtree(appending.path / "Singers")
    else:
        appending.lake.sql(f"DROP TABLE {appending.table}")
    assert [appending.append(1, 2), appending.append(2, 3), appending.append(2, 3)] == [True, True, False]
    assert appending.ids() == [1, 2, 3]


@pytest.mark.slow
def test_another_table_in_the_place_of_one_is_noticed_though_it_has_as_many_versions(appending: Appending) -> None:
    """As another process does it: behind the caches of this one."""
    other = Appending(appending.lake, appending.format, appending.path.parent / "other")
    for epoch in (1, 2):
        appending.seal(epoch)
        appending.append(epoch, epoch)
        other.seal(epoch + 100)
        other.append(epoch, epoch)
    folder = appending.path / "Singers"
    shutil.rmtree(folder)
    shutil.copytree(other.path / "Singers", folder)
    if appending.format == "iceberg":
        for file in folder.rglob("*.metadata.json"):  # its manifests are where they were
            file.write_text(file.read_text().replace(f'"location":"{other.path}/', f'"location":"{appending.path}/'))
        for file in folder.rglob(".*.crc"):
            file.unlink()
    assert appending.append(1, 2)  # the other table has the epochs of another spool
    assert appending.ids() == [1, 2, 101, 102]


@pytest.mark.long
def test_a_table_that_was_rolled_back_gets_what_it_lacks(appending: Appending) -> None:
    lake, table = appending.lake, appending.table
    for key, columns in ((1, (KEY, NAME)), (2, _MORE)):
        appending.seal(key, columns)
        appending.append(key, key)
    appending.append(2, 2)
    if appending.format == "delta":
        lake.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
        assert "More" not in lake.table(table).columns
        appending.seal(3, _MORE)
        assert appending.append(3, 3)
        assert "More" in lake.table(table).columns
        return
    snapshots = lake.table(f"{table}.history").orderBy("made_current_at").collect()
    lake.sql(
        f"CALL {table.partition('.')[0]}.system.rollback_to_snapshot('Singers', {snapshots[0]['snapshot_id']})"
    ).collect()
    assert appending.ids() == [1]
    appending.append(1, 2)
    assert appending.ids() == [1, 2]


@pytest.mark.long
@_WITH_ICEBERG
@pytest.mark.parametrize("walked", [pytest.param(50, marks=pytest.mark.slow), 2])
def test_the_last_epoch_is_that_of_the_history_whatever_is_between(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked: int
) -> None:
    """The history is also longer than what is read snapshot by snapshot."""
    monkeypatch.setattr(iceberg, "_WALKED", walked)
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    commits = Commits(lake, tmp_path / "lake")
    assert commits.applied() == [0, 0]
    commits.commit()
    assert commits.applied() == [0, 0]
    first = commits.commit(one=1)
    assert commits.applied() == [1, 0]
    commits.commit(two=7)
    assert commits.applied() == [1, 7]
    for _ in range(3):
        commits.commit()
    assert commits.applied() == [1, 7]
    commits.commit(two=9)
    commits.commit(one=4)
    commits.commit(one=3, two=9)  # a compaction that began before
    assert commits.applied() == [4, 9]
    commits.call("rollback_to_snapshot", f"snapshot_id => {first}")
    assert commits.applied() == [1, 0]
    commits.commit(one=2)
    assert commits.applied() == [2, 0]
    commits.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    assert commits.applied() == [2, 0]
    commits.commit()
    commits.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    commits.commit(two=10)
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    assert commits.applied() == [0, 10]


@pytest.mark.long
@_WITH_ICEBERG
def test_the_last_epoch_of_a_snapshot_that_has_expired_is_still_known(lake: SparkSession, tmp_path: Path) -> None:
    commits = Commits(lake, tmp_path / "lake")
    commits.commit(one=5)
    assert commits.applied() == [5, 0]
    commits.commit()
    commits.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    assert commits.stores[0].applied("T") == Offset(5, at="at-5")


@_WITH_ICEBERG
def test_a_table_whose_older_metadata_was_restored_is_prepared_again_though_its_schema_has_the_id_of_another(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TableOptions("iceberg", str(tmp_path / "lake"), None, "append", "apply")
    store = IcebergStore(lake, options, "spanner-cdc.x.y")
    wider, folder = replace(_TABLE, columns={**_TABLE.columns, "More": "string"}), tmp_path / "lake/Singers/metadata"
    store.prepare(_TABLE)
    shutil.copytree(folder, tmp_path / "older")
    for _ in range(2):
        store.prepare(wider)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "older", folder)
    lake.sql(f"REFRESH TABLE {store.target('Singers')}")
    lake.sql(f"ALTER TABLE {store.target('Singers')} ADD COLUMNS (Other STRING)")
    store.prepare(wider)
    assert {"Name", "Other", "More"} <= {*store.rows("Singers").columns}


def test_only_so_many_values_are_kept() -> None:
    kept: Remembered[str, int] = Remembered(most=2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        kept.put(key, value)
    assert [kept.get(key) for key in "abc"] == [3, None, 4]
