"""Tables as of a published cut: which one, and what is refused."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

import spark_sink
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError
from spark_sink.errors import CutError
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.cuts import as_of, cut_records, iceberg_versions
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.lake_table import DELETED
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.maintenance.upkeeps import upkeep_of
from tests.spark_sink.cuts.bank import SUM, TABLES
from tests.spark_sink.cuts.campaign import Campaign
from tests.spark_sink.sinks.tables.reading import target
from tests.spark_sink.spools import START

HOUR = 3600 * 10**9
DELTA = pytest.mark.skipif(
    spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse"
)


def records(lake: SparkSession, of_format: Format, folder: Path, now: int = START, sink: str = "tables") -> CutRecords:
    options = TableOptions(of_format, str(folder), None, "merge", "apply")
    return CutRecords(lake, options, "spool", sink, 24 * HOUR, now=lambda: now)


def cut(epoch: int, at: int, published_at: int = START, **tables: TableAtCut) -> PublishedCut:
    return PublishedCut(timestamp=at, epoch=epoch, spool_id="spool", published_at=published_at, tables=tables)


def removed_versions(lake: SparkSession, of_format: Format, table: str) -> None:
    """Removes all versions of a table that nothing keeps."""
    if of_format == "delta":
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        lake.conf.set(check, "false")
        try:
            lake.sql(f"VACUUM {table} RETAIN 0 HOURS")
        finally:
            lake.conf.unset(check)
        return
    catalog, _, name = table.partition(".")
    old = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.sql(f"CALL {catalog}.system.expire_snapshots(table => '{name}', {old})")


def test_a_cut_whose_version_was_removed_is_refused_in_a_line_and_the_newest_is_read(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first cut Iceberg has tags; of the second, which comes within the time of one tag, it has none."""
    monkeypatch.setattr(iceberg_versions, "_MINUTE", 3_600_000)
    campaign = Campaign(lake, merging_format, tmp_path, seed=3)
    process = campaign.process()
    campaign.deliver(*process)
    for _ in range(2):
        campaign.bank.seal(5)
        campaign.deliver(*process)
    path = tmp_path / "lake"
    store = process[0].cut_store(lake)
    assert store is not None
    first, second, newest = (format_rfc3339(one.timestamp) for one in store.cuts())
    for table in TABLES:
        removed_versions(lake, merging_format, target(path, merging_format, table))
    with pytest.raises(CutError, match=r"table \w+ of the cut at \S+ cannot be read: version \d+ of .* is vacuumed or"):
        spark_sink.as_of(lake, path=path, format=merging_format, timestamp=second)
    if merging_format == "iceberg":
        campaign.reader.read(first)
    found = spark_sink.as_of(lake, path=path, format=merging_format, timestamp=newest, views="cut_")
    assert dict(found.incomplete) == {}
    both = lake.sql(" UNION ALL ".join(f"SELECT Balance FROM cut_{table}" for table in TABLES))
    assert both.agg({"Balance": "sum"}).collect()[0][0] == SUM


@DELTA
def test_a_cut_of_delta_whose_files_are_vacuumed_is_refused_in_a_line_and_the_newest_is_read(
    lake: SparkSession, tmp_path: Path
) -> None:
    table, store = target(tmp_path, "delta", "Lines"), records(lake, "delta", tmp_path)
    lake.sql(f"CREATE TABLE {table} (Balance INT, {DELETED} BOOLEAN) USING delta")
    for version in (1, 2):
        lake.sql(f"INSERT OVERWRITE {table} VALUES ({version}, false)")
        store.publish(cut(version, START + version, time.time_ns(), Lines=TableAtCut(version=str(version))))
    removed_versions(lake, "delta", table)
    with pytest.raises(CutError, match=r"table Lines of the cut at \S+ cannot be read: version 1 of .* is vacuumed or"):
        spark_sink.as_of(lake, path=tmp_path, timestamp=format_rfc3339(START + 1))
    assert spark_sink.as_of(lake, path=tmp_path)["Lines"].first()["Balance"] == 2  # type: ignore[index]


@pytest.mark.long
def test_the_newest_cut_at_or_before_a_timestamp_is_read_to_the_nanosecond(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    store = records(lake, merging_format, tmp_path)
    for epoch in (1, 2, 3):
        store.publish(cut(epoch, START + epoch, Lines=TableAtCut(incomplete="its backfill is not done")))

    def epoch_as_of(timestamp: str | datetime | None) -> int:
        found = spark_sink.as_of(lake, path=tmp_path, format=merging_format, timestamp=timestamp)
        assert (len(found), found.incomplete) == (0, {"Lines": "its backfill is not done"})
        return found.epoch

    assert [epoch_as_of(format_rfc3339(START + nanos)) for nanos in (1, 2, 999)] == [1, 2, 3]
    assert epoch_as_of(None) == 3
    assert epoch_as_of(datetime(2100, 1, 1, tzinfo=UTC)) == 3
    with pytest.raises(CutError, match=r"_cuts`? has no cut at or before 2026-03-01T10:00:00.000000000Z"):
        epoch_as_of(format_rfc3339(START))


@pytest.mark.long
def test_a_record_that_counts_instead_of_another_is_the_one_that_is_read(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    store = records(lake, merging_format, tmp_path)
    assert store.newest() is None
    store.publish(cut(1, START, START, Lines=TableAtCut(incomplete="its backfill is not done")))
    second = cut(1, START, START + HOUR, Lines=TableAtCut())
    store.publish(second)
    assert store.newest() == second
    assert store.cuts() == [second]
    assert not spark_sink.as_of(lake, path=tmp_path, format=merging_format).incomplete


def test_cuts_of_several_sinks_are_not_mixed(lake: SparkSession, merging_format: Format, tmp_path: Path) -> None:
    for epoch, sink in ((4, "one"), (7, "two")):
        records(lake, merging_format, tmp_path, sink=sink).publish(cut(epoch, START))
    with pytest.raises(CutError, match=r"several sinks publish cuts in .*: one of spool spool, two of spool spool"):
        spark_sink.as_of(lake, path=tmp_path, format=merging_format)
    assert spark_sink.as_of(lake, path=tmp_path, format=merging_format, sink="one").epoch == 4


@pytest.mark.long
def test_cuts_that_are_older_than_they_are_kept_are_removed(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_records, "_PUBLICATIONS", 3)
    store = records(lake, merging_format, tmp_path, now=START + 30 * HOUR)
    others = records(lake, merging_format, tmp_path, sink="other")
    others.publish(cut(1, START))
    for epoch, published_at in ((1, START), (2, START + 7 * HOUR), (3, START + 30 * HOUR)):
        store.publish(cut(epoch, START + epoch, published_at))
    assert [one.epoch for one in store.cuts()] == [2, 3]
    assert [one.epoch for one in others.cuts()] == [1], "another sink's are its own"


def test_small_files_are_made_one_though_each_process_publishes_but_once(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_records, "_PUBLICATIONS", 6)
    files = []
    for epoch in range(1, 8):
        records(lake, merging_format, tmp_path).publish(cut(epoch, START + epoch))
        options = TableOptions(merging_format, str(tmp_path), None, "merge", "apply")
        files.append(upkeep_of(lake, options).files("_cuts").data)
    assert files == [1, 2, 3, 4, 5, 1, 2]


def test_what_is_not_there_is_refused_in_a_line(lake: SparkSession, merging_format: Format, tmp_path: Path) -> None:
    with pytest.raises(CutError, match=r"there is no table .*_cuts.*: no cut is published here"):
        spark_sink.as_of(lake, path=tmp_path, format=merging_format)
    with pytest.raises(ConfigurationError, match="timestamp: 'yesterday' is not an RFC 3339 timestamp"):
        spark_sink.as_of(lake, path=tmp_path, format=merging_format, timestamp="yesterday")
    with pytest.raises(ConfigurationError, match="Parquet files have no versions"):
        spark_sink.as_of(lake, path=tmp_path, format="parquet")


@DELTA
@pytest.mark.slow
def test_a_cut_of_a_table_that_was_created_again_is_refused_and_of_one_that_was_replaced_is_read(
    lake: SparkSession, tmp_path: Path
) -> None:
    tables = {name: target(tmp_path, "delta", name) for name in ("Again", "Replaced")}

    def written(table: str, *, made_by: str, balance: int) -> None:
        lake.sql(f"{made_by} TABLE {table} (Balance INT, {DELETED} BOOLEAN) USING delta")
        lake.sql(f"INSERT INTO {table} VALUES ({balance}, false)")

    for table in tables.values():
        written(table, made_by="CREATE", balance=1)
    versions = {name: TableAtCut(version="1") for name in tables}
    records(lake, "delta", tmp_path).publish(cut(1, START, time.time_ns(), **versions))
    found = spark_sink.as_of(lake, path=tmp_path)
    assert [found[name].first()["Balance"] for name in tables] == [1, 1]  # type: ignore[index]

    written(tables["Replaced"], made_by="CREATE OR REPLACE", balance=2)
    assert spark_sink.as_of(lake, path=tmp_path)["Replaced"].first()["Balance"] == 1  # type: ignore[index]
    shutil.rmtree(tmp_path / "Again")
    written(tables["Again"], made_by="CREATE", balance=2)
    with pytest.raises(CutError, match=r"table Again of the cut at .* was created again after the cut"):
        spark_sink.as_of(lake, path=tmp_path)


class Failing:
    """A session whose statements fail."""

    def __init__(self, error: PySparkException) -> None:
        self.error = error

    def sql(self, _: str) -> None:
        raise self.error


UNREACHABLE = PySparkException("java.net.ConnectException: Connection refused")
FORBIDDEN = AnalysisException("[INSUFFICIENT_PERMISSIONS] Insufficient privileges")


@pytest.mark.parametrize("error", [UNREACHABLE, FORBIDDEN])
def test_an_error_that_is_about_no_missing_table_is_given_as_it_is(error: PySparkException, tmp_path: Path) -> None:
    session = Failing(error)
    with pytest.raises(CutError, match=r"the cuts in .* cannot be read: (java.net.Connect|\[INSUFF)"):
        spark_sink.as_of(session, path=tmp_path)  # type: ignore[arg-type]
    store = as_of._store(session, tmp_path, None, "delta")  # type: ignore[arg-type]
    with pytest.raises(CutError, match=r"table Lines of the cut at now cannot be read: (java.net.Connect|\[INSUFF)"):
        as_of._at(session, store, "delta", "Lines", 1, Row(timestamp="now", published_at=1))  # type: ignore[arg-type]
