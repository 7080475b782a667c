"""A table counts as missing only if the catalog says so, and not while the catalog does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from connector.core.timestamps import SECOND
from spark_sink.errors import TableError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.formats import iceberg
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.catalogs.hive import SILENT
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import START, SpoolMaker, record


def refuse(*_: object) -> NoReturn:
    raise AnalysisException(SILENT)


@contextmanager
def silent_metastore(lake: SparkSession) -> Iterator[None]:
    """As a session meets it: Spark raises for it what it raises for a missing table."""
    with pytest.MonkeyPatch.context() as patched:
        for method in ("sql", "table"):
            patched.setattr(type(lake), method, refuse)
        with pytest.raises(AnalysisException, match="SessionHiveMetaStoreClient"):
            yield


def deleted(lake: SparkSession, table: str) -> list[int]:
    lake.sql(f"REFRESH TABLE {table}")
    return [row["Id"] for row in lake.table(table).where("_is_deleted").collect()]


@pytest.mark.long
def test_deleted_rows_that_cannot_be_seen_are_not_taken_for_removed(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    writer = TablesWriter(Feed.at(spool.path), TableOptions(merging_format, str(path), None, "merge", "apply"), "c")
    writer.remove_deleted(lake, "Singers")  # there is no table yet
    spool.seal(change(1, [1, 2], table="Singers"), record(START + 5 * SECOND, [1], mod_type="DELETE"))
    writer.write(epochs(lake, spool, 1, 1), tombstones=frozenset({"Singers"}))
    assert deleted(lake, target(path, merging_format)) == [1]
    with silent_metastore(lake):
        writer.remove_deleted(lake, "Singers")
    writer.remove_deleted(lake, "Singers")
    assert deleted(lake, target(path, merging_format)) == []


def test_a_table_whose_deleted_rows_cannot_be_found_is_refused_alone(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    writer = TablesWriter(Feed.at(spool.path), TableOptions(merging_format, str(path), None, "merge", "apply"), "c")
    writer.store(lake)
    lake.sql(f"CREATE TABLE {target(path, merging_format)} (Id BIGINT) USING {merging_format}")
    with pytest.raises(TableError, match=r"table Singers cannot be written to .*_is_deleted"):
        writer.remove_deleted(lake, "Singers")


def test_cuts_that_cannot_be_read_are_not_taken_for_none(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    options = TableOptions(merging_format, str(tmp_path / "lake"), None, "merge", "apply")
    cuts = CutRecords(lake, options, "spool", "c", 1)
    assert cuts.newest() is None
    with silent_metastore(lake):
        cuts.newest()


def test_a_table_of_iceberg_that_cannot_be_loaded_is_not_taken_for_missing(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = IcebergStore(lake, TableOptions("iceberg", str(tmp_path), None, "merge", "apply"), "c")
    with silent_metastore(lake):
        store._newest("Singers")
    loader = SimpleNamespace(loadIcebergTable=refuse)
    found = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(iceberg=SimpleNamespace(spark=SimpleNamespace(Spark3Util=loader))))
    )
    monkeypatch.setattr(iceberg, "java_classes", lambda _: found)
    with pytest.raises(AnalysisException, match="SessionHiveMetaStoreClient"):
        store.loaded("Singers")


@pytest.mark.parametrize("has_database", [True, False])
def test_a_table_that_a_database_does_not_have_has_no_version_and_no_deleted_rows(
    lake: SparkSession, merging_format: Format, tmp_path: Path, has_database: bool
) -> None:
    database = f"missing_{merging_format}"
    if merging_format == "iceberg":
        lake.conf.set(f"spark.sql.catalog.{database}", "org.apache.iceberg.spark.SparkCatalog")
        lake.conf.set(f"spark.sql.catalog.{database}.type", "hadoop")
        lake.conf.set(f"spark.sql.catalog.{database}.warehouse", str(tmp_path / "lake"))
        database += ".music"
    if has_database:
        lake.sql(f"CREATE NAMESPACE {database}")
    options, spool = TableOptions(merging_format, None, database, "merge", "apply"), SpoolMaker(tmp_path / "spool")
    try:
        assert CutRecords(lake, options, "spool", "c", 1).versions(["Singers"]) == {}
        assert CutRecords(lake, options, "spool", "c", 1).cuts() == []
        TablesWriter(Feed.at(spool.path), options, "c").remove_deleted(lake, "Singers")
    finally:
        if has_database:
            lake.sql(f"DROP NAMESPACE {database}")
