"""Tables that are compacted and whose old versions are removed: rows, cuts and last epochs stay."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.core.timestamps import format_rfc3339
from connector.spool.sink_report import NOTHING, report_of, write_report
from spark_sink.sinks.shared.published_cut import PublishedCut
from spark_sink.sinks.tables.config import Format, Mode, TableOptions, TablesConfig
from spark_sink.sinks.tables.cuts import cut_records
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.cuts.vacuumed import DeltaCommit
from spark_sink.sinks.tables.formats import iceberg
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.formats.remembered import Remembered
from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.maintenance import iceberg_upkeep, table_files
from spark_sink.sinks.tables.maintenance.iceberg_upkeep import IcebergUpkeep
from spark_sink.sinks.tables.maintenance.maintenance import Maintenance
from spark_sink.sinks.tables.maintenance.record import MaintenanceRecord, TableRecord
from spark_sink.sinks.tables.maintenance.upkeeps import upkeep_of
from tests.spark_sink.cuts.bank import SUM, TABLES
from tests.spark_sink.cuts.campaign import Campaign
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.prepared.commits import Commits
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import SpoolMaker

DAY = 24 * 3600 * 1000

COMMITS = {"delta": 3, "iceberg": 6}
"""Iceberg compacts no fewer than five files."""

_WITH_DELTA = pytest.mark.skipif(
    spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse"
)
_WITH_ICEBERG = pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse"
)


def check() -> None:
    """No other sink has taken over."""


@pytest.mark.slow
def test_the_sink_compacts_its_tables_and_every_published_cut_is_read_as_before(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "SPARE", 2)
    campaign = Campaign(lake, merging_format, tmp_path, seed=5)
    delivery, publication = campaign.process()
    campaign.deliver(delivery, publication)
    for _ in range(COMMITS[merging_format] - 1):
        campaign.bank.seal(3)
        campaign.deliver(delivery, publication)
    assert isinstance(campaign.config.sink, TablesConfig)
    upkeep = upkeep_of(lake, campaign.config.sink.options)
    before = {name: upkeep.files(name) for name in TABLES}
    monkeypatch.setattr("spark_sink.sinks.tables.maintenance.maintenance._PAUSE", 0.0)
    monkeypatch.setattr("spark_sink.sinks.tables.maintenance.maintenance._PAUSES", 0)
    for _ in before:
        delivery.maintain(lake, check)
    for name, files in before.items():
        after = upkeep.files(name)
        assert after.data + after.deletes < files.data + files.deletes
        assert not after.are_many
    campaign.bank.seal(3)
    campaign.deliver(delivery, publication)
    for cut in delivery.cut_store(lake).cuts():  # type: ignore[union-attr]
        campaign.reader.read(format_rfc3339(cut.timestamp))
    assert all(found == {SUM} for found in campaign.reader.sums.values())


@pytest.mark.long
def test_versions_go_and_the_last_epoch_stays(lake: SparkSession, merging_format: Format, tmp_path: Path) -> None:
    """Ten days later, where only what a compaction has left is young enough."""
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    table = target(path, merging_format)
    last = COMMITS[merging_format]
    for epoch in range(1, last + 1):
        spool.seal(change(epoch, [epoch, epoch + 1], Name=f"{epoch}"))
        for consumer in ("two", "one") if epoch == 1 else ("one",):
            events = epochs(lake, spool, epoch, epoch)
            spark_sink.merge_into(events, path=path, format=merging_format, consumer=consumer)
    rows = _rows(lake, table)
    upkeep = upkeep_of(lake, TableOptions(merging_format, str(path), None, "merge", "apply"))
    upkeep.compact("Singers")
    upkeep.expire("Singers", DAY, _now(lake) + 10 * DAY)
    if isinstance(upkeep, IcebergUpkeep):
        lake.sql(f"REFRESH TABLE {table}")
        assert lake.table(f"{table}.snapshots").count() == 1
    for consumer in ("one", "two"):
        spark_sink.merge_into(epochs(lake, spool, 1, last), path=path, format=merging_format, consumer=consumer)
    assert _rows(lake, table) == rows
    spool.seal(change(last + 1, [9], Name="n"))
    spark_sink.merge_into(epochs(lake, spool, last, last + 1), path=path, format=merging_format, consumer="one")
    assert _rows(lake, table) == {**rows, 9: "n"}


@_WITH_ICEBERG
def test_a_compaction_that_another_commit_overtook_takes_no_epoch_from_its_table(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    commits = Commits(lake, tmp_path / "lake")
    for epochs_ in ({"one": 4}, {"two": 10}, {"two": 11}, {"one": 4, "two": 10}):  # the last is the compaction
        commits.commit(**epochs_)
    upkeep, written = IcebergUpkeep(lake, commits.stores[0]), dict[str, str]()
    monkeypatch.setattr(IcebergStore, "rewrite_files", lambda _, name, options, numbers: written.update(numbers))
    monkeypatch.setattr(IcebergStore, "remove_dangling_deletes", lambda _, name, numbers: written.update(numbers))
    upkeep.compact("T")
    wanted = {"one": "4", "one:at": "at-4", "two": "11", "two:at": "at-11"}
    assert written == {f"spanner-cdc.spool.{name}": value for name, value in wanted.items()}
    upkeep.expire("T", DAY, _now(lake) + 10 * DAY)
    assert commits.applied() == [4, 11]


@pytest.mark.long
@_WITH_ICEBERG
def test_each_snapshot_of_a_compaction_has_the_last_epochs(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of deletes are dangling where a data file is older than they are, and is not written again."""
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    commits = Commits(lake, tmp_path / "lake")
    lake.sql(f"ALTER TABLE {commits.name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    lake.sql(f"ALTER TABLE {commits.name} ADD PARTITION FIELD truncate(10, Id)")
    for first in (10, 0, 2, 4, 6, 8):
        lake.sql(f"INSERT INTO {commits.name} VALUES ({first}), ({first + 1})")
    lake.sql(f"DELETE FROM {commits.name} WHERE Id IN (1, 3, 5)")
    commits.commit(one=7, two=8)
    upkeep = IcebergUpkeep(lake, commits.stores[0])
    assert upkeep.files("T").deletes
    upkeep.compact("T")
    assert (upkeep.files("T").data, upkeep.files("T").deletes) == (2, 0)
    commits.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1")
    assert commits.applied() == [7, 8]


@pytest.mark.long
@_WITH_ICEBERG
@pytest.mark.parametrize("mode", ["merge", "append", "history"])
def test_a_table_of_iceberg_keeps_the_metadata_of_its_last_commits_only(
    lake: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    spool.seal(change(1, [1], Name="a"))
    spark_sink.merge_into(epochs(lake, spool, 1, 1), path=path, format="iceberg", mode=mode)
    table = IcebergStore(lake, TableOptions("iceberg", str(path), None, mode, "apply"), "x").loaded("Singers")
    assert table is not None
    for _ in range(30):
        table.newFastAppend().commit()
    assert len(list(path.glob("Singers/metadata/*.metadata.json"))) == 21


@_WITH_ICEBERG
@pytest.mark.parametrize(
    ("own", "of_catalog", "is_removed"),
    [
        ({}, {}, True),
        ({"write.metadata.delete-after-commit.enabled": "false"}, {}, False),
        ({"gc.enabled": "false"}, {}, False),
        ({}, {"table-default.gc.enabled": "false"}, False),
        ({"gc.enabled": "true"}, {"table-default.gc.enabled": "false"}, True),
    ],
)
def test_metadata_stays_where_the_table_or_its_catalog_says_so(
    lake: SparkSession, tmp_path: Path, own: dict[str, str], of_catalog: dict[str, str], *, is_removed: bool
) -> None:
    catalog = f"c{abs(hash(tmp_path))}"
    settings = {"type": "hadoop", "warehouse": str(tmp_path), **of_catalog}
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        **{f".{k}": settings[k] for k in settings},
    }.items():
        lake.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    lake.sql(f"CREATE NAMESPACE {catalog}.music")
    store = IcebergStore(lake, TableOptions("iceberg", None, f"{catalog}.music", "append", "apply", own), "x")
    store.prepare(LakeTable("T", "T", {"Id": "bigint"}, {}, ("Id",)))
    table = store.loaded("T")
    assert table is not None
    found = table.properties().getOrDefault("write.metadata.delete-after-commit.enabled", "false")
    assert found == str(is_removed).lower()


@_WITH_ICEBERG
def test_of_many_snapshots_those_of_the_last_hour_and_of_cuts_stay(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_upkeep, "_MANY", 2)
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    commits = Commits(lake, tmp_path / "lake")
    snapshots = [commits.commit(one=epoch, two=epoch) for epoch in (1, 2, 3, 4, 5)]
    upkeep = IcebergUpkeep(lake, commits.stores[0])
    later = _now(lake) + 3_700_000
    assert not upkeep.has_many_versions("T", _now(lake)), "they are younger than an hour"
    assert upkeep.has_many_versions("T", later)
    lake.sql(f"ALTER TABLE {commits.name} CREATE TAG cut AS OF VERSION {snapshots[1]} RETAIN 2 DAYS")
    upkeep.expire("T", DAY, later)
    assert commits.snapshots() == {snapshots[1], commits.current()}
    assert commits.applied() == [5, 5]
    assert not upkeep.has_many_versions("T", later)


@pytest.mark.long
@_WITH_ICEBERG
def test_a_consumer_that_has_ended_keeps_no_snapshot_and_its_last_epoch_is_known(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_APPLIED", Remembered())
    commits = Commits(lake, tmp_path / "lake")
    commits.commit(one=5)
    for epoch in (1, 2, 3):
        commits.commit(two=epoch)
    upkeep = IcebergUpkeep(lake, commits.stores[0])
    upkeep.expire("T", DAY, _now(lake) + 10 * DAY)
    assert len(commits.snapshots()) == 1
    assert commits.applied() == [5, 3]
    commits.commit(two=4)
    assert commits.applied() == [5, 4]
    upkeep.expire("T", DAY, _now(lake))
    assert len(commits.snapshots()) == 2, "what is young stays, and gets no company"


@_WITH_ICEBERG
def test_snapshots_stay_where_no_file_of_a_table_is_to_be_removed(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Nessie, where another branch may need them; Iceberg itself refuses to expire any."""
    monkeypatch.setattr(iceberg_upkeep, "_MANY", 1)
    commits = Commits(lake, tmp_path / "lake")
    lake.sql(f"ALTER TABLE {commits.name} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    snapshots = {commits.commit(one=epoch) for epoch in (1, 2, 3, 4)}
    upkeep, later = IcebergUpkeep(lake, commits.stores[0]), _now(lake) + 10 * DAY
    assert not upkeep.has_many_versions("T", later)
    upkeep.expire("T", DAY, later)
    assert commits.snapshots() == snapshots


@_WITH_ICEBERG
def test_many_snapshots_stay_where_the_table_says_for_how_long(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_upkeep, "_MANY", 2)
    commits = Commits(lake, tmp_path / "lake")
    lake.sql(f"ALTER TABLE {commits.name} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '{2 * DAY}')")
    for epoch in (1, 2, 3, 4):
        commits.commit(one=epoch)
    upkeep = IcebergUpkeep(lake, commits.stores[0])
    assert not upkeep.has_many_versions("T", _now(lake) + DAY)


@pytest.mark.long
@_WITH_DELTA
def test_a_compacted_table_of_delta_has_fewer_files_and_every_version_as_before(
    lake: SparkSession, tmp_path: Path
) -> None:
    """The part of the test of every published cut that is Delta's own."""
    spool, path, table = SpoolMaker(tmp_path / "spool"), tmp_path / "lake", target(tmp_path / "lake", "delta")
    for epoch in (1, 2):
        spool.seal(change(epoch, [epoch], Name=f"{epoch}"))
        spark_sink.merge_into(epochs(lake, spool, epoch, epoch), path=path, format="delta")
    upkeep = upkeep_of(lake, TableOptions("delta", str(path), None, "merge", "apply"))
    versions = range(lake.sql(f"DESCRIBE HISTORY {table}").count())
    before = [lake.sql(f"SELECT Id, Name FROM {table} VERSION AS OF {one} ORDER BY Id").collect() for one in versions]
    assert [len(rows) for rows in before][-2:] == [1, 2]
    assert upkeep.files("Singers").data == 2
    upkeep.compact("Singers")
    assert upkeep.files("Singers").data == 1
    after = [lake.sql(f"SELECT Id, Name FROM {table} VERSION AS OF {one} ORDER BY Id").collect() for one in versions]
    assert after == before
    assert _rows(lake, table) == {1: "1", 2: "2"}
    spool.seal(change(3, [2], Name="3"))
    spark_sink.merge_into(epochs(lake, spool, 1, 3), path=path, format="delta")
    assert _rows(lake, table) == {1: "1", 2: "3"}
    assert upkeep.is_created("Singers")


def test_a_table_says_who_has_created_it(lake: SparkSession, merging_format: Format, tmp_path: Path) -> None:
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    spool.seal(change(1, [1], Name="a"))
    spark_sink.merge_into(epochs(lake, spool, 1, 1), path=path, format=merging_format)
    upkeep = upkeep_of(lake, TableOptions(merging_format, str(path), None, "merge", "apply"))
    assert upkeep.is_created("Singers")
    lake.sql(f"ALTER TABLE {target(path, merging_format)} UNSET TBLPROPERTIES ('spanner-cdc.created')")
    assert not upkeep.is_created("Singers")


@pytest.mark.slow
@_WITH_DELTA
def test_the_sink_removes_the_former_files_of_its_cuts_once_a_day(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a cut a second these are 86,400 a day."""
    monkeypatch.setattr(cut_records, "_PUBLICATIONS", 2)
    campaign = Campaign(lake, "delta", tmp_path, seed=5)
    delivery, publication = campaign.process()
    for _ in range(2):
        campaign.bank.seal(1)
        campaign.deliver(delivery, publication)
    cuts, folder = target(tmp_path / "lake", "delta", "_cuts"), tmp_path / "lake/_cuts"
    assert len(list(folder.glob("*.parquet"))) > len(lake.table(cuts).inputFiles())
    lake.sql(f"ALTER TABLE {cuts} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    MaintenanceRecord(campaign.bank.maker.spool, "tables").put("_cuts", TableRecord(since=1))
    monkeypatch.setattr("spark_sink.sinks.tables.maintenance.maintenance._PAUSE", 0.0)
    monkeypatch.setattr("spark_sink.sinks.tables.maintenance.maintenance._PAUSES", 0)
    for _ in (*TABLES, "_cuts"):
        delivery.maintain(lake, check)
    assert len(list(folder.glob("*.parquet"))) == len(lake.table(cuts).inputFiles())
    assert len(delivery.cut_store(lake).cuts()) == 2  # type: ignore[union-attr]


@pytest.mark.long
@_WITH_DELTA
def test_former_files_stay_for_as_long_as_cuts_are_kept_and_those_of_the_cuts_for_a_day(
    lake: SparkSession, tmp_path: Path
) -> None:
    options = TableOptions("delta", str(tmp_path), None, "merge", "apply")
    cut = PublishedCut(timestamp=1, epoch=1, spool_id="spool", published_at=1, tables={})
    CutRecords(lake, options, "spool", "tables", 30 * DAY * 1_000_000).publish(cut)
    lake.sql(f"CREATE TABLE {target(tmp_path, 'delta', 'T')} (Id BIGINT) USING delta")
    upkeep = upkeep_of(lake, options)
    for table, retention in (("T", 30 * DAY), ("_cuts", DAY)):
        upkeep.expire(table, 30 * DAY, _now(lake))
        history = lake.sql(f"DESCRIBE HISTORY {target(tmp_path, 'delta', table)}")
        commits = history.where("operation = 'VACUUM START'").collect()
        assert [DeltaCommit(0, 0, "", row["operationParameters"]).retention for row in commits] == [retention]
    assert not upkeep.is_created("T")
    assert upkeep.is_created("_cuts")


@pytest.mark.parametrize("all_tables", [False, True])
def test_a_table_that_was_dropped_is_neither_due_nor_reported(
    lake: SparkSession, merging_format: Format, tmp_path: Path, *, all_tables: bool
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.fill(1)
    write_report(spool.spool, "tables", NOTHING.model_copy(update={"unmaintained": {"Singers": "why"}}))
    upkeep = upkeep_of(lake, TableOptions(merging_format, str(tmp_path / "lake"), None, "merge", "apply"))
    clock = [0.0]
    maintenance = Maintenance(spool.spool, "tables", DAY, all_tables=all_tables, clock=lambda: clock[0])
    for why in ({"Singers": "why"}, {}):
        assert report_of(spool.spool, "tables").unmaintained == why
        maintenance.written(["Singers"])
        assert maintenance.next_table() == "Singers"
        maintenance.look("Singers", upkeep)
        clock[0] += 1000
    assert report_of(spool.spool, "tables").unmaintained == {}
    assert maintenance.next_table() is None


def _now(lake: SparkSession) -> int:
    found = lake.sql("SELECT unix_millis(current_timestamp())").first()
    assert found is not None
    return int(found[0])


def _rows(lake: SparkSession, table: str) -> dict[int, str]:
    lake.sql(f"REFRESH TABLE {table}")
    found = lake.table(table).collect()
    rows = {row["Id"]: row["Name"] for row in found}
    assert len(rows) == len(found)
    return rows
