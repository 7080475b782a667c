"""Tables that somebody else has made or damaged: one stops alone, with its reason, and is left as it is."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.errors import SpannerCdcError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, Mode, TableOptions
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import SpoolMaker

ICEBERG = pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions, reason="needs Iceberg: make test-lakehouse"
)
DELTA = pytest.mark.skipif(
    spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse"
)


class Writing:
    """Merges a row each of Singers and Albums."""

    def __init__(self, lake: SparkSession, folder: Path, options: TableOptions) -> None:
        self.lake = lake
        self.maker = SpoolMaker(folder / "spool")
        self.writer = TablesWriter(Feed.at(self.maker.path), options, "tables")
        self.epoch = 0

    def write(self, *tables: str) -> dict[str, SpannerCdcError]:
        """The tables that were stopped."""
        self.epoch += 1
        self.maker.seal(*(change(self.epoch, [self.epoch], table=table, Name="n") for table in tables))
        return dict(self.writer.write(epochs(self.lake, self.maker, self.epoch, self.epoch)).stopped)

    def count(self, table: str) -> int:
        self.lake.sql(f"REFRESH TABLE {table}")
        return self.lake.table(table).count()


@pytest.mark.long
@DELTA
@pytest.mark.parametrize("mode", ["merge", "append", "history"])
def test_a_table_of_another_format_gets_no_columns(lake: SparkSession, tmp_path: Path, mode: Mode) -> None:
    database = f"others_{mode}"
    lake.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}/{database}'")
    lake.sql(f"CREATE TABLE {database}.Singers (Id BIGINT, Provider STRING) USING parquet")
    writing = Writing(lake, tmp_path, TableOptions("delta", None, database, mode, "apply"))
    (error,) = writing.write("Singers", "Albums").values()
    assert lake.table(f"{database}.Singers").columns == ["Id", "Provider"]
    assert writing.count(f"{database}.Albums") == 1
    if mode != "history":
        assert str(error).startswith(f"`{database}`.`Singers` is a table of parquet, and not of delta. ")


@pytest.mark.long
@ICEBERG
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_table_with_snapshot_isolation_is_not_merged_into_whoever_has_set_it(
    lake: SparkSession, tmp_path: Path, mode: Mode
) -> None:
    catalog = f"isolated_{mode}"
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(tmp_path / "lake"),
        ".table-default.write.merge.isolation-level": "Snapshot",
    }.items():
        lake.conf.set(f"spark.sql.catalog.{catalog}{name}", value)
    lake.sql(f"CREATE NAMESPACE {catalog}.music")
    writing = Writing(lake, tmp_path, TableOptions("iceberg", None, f"{catalog}.music", mode, "apply"))
    stopped = writing.write("Singers")
    if mode == "append":
        assert stopped == {}
        return
    name = f"{catalog}.music.Singers"
    unset = f"ALTER TABLE `{catalog}`.`music`.`Singers` UNSET TBLPROPERTIES ('write.merge.isolation-level')"
    assert unset in str(stopped["Singers"])
    assert writing.count(name) == 0
    lake.sql(unset)
    assert writing.write("Singers") == {}
    assert writing.count(name) == 1


@pytest.mark.long
@pytest.mark.parametrize("gone", ["data", "metadata"])
def test_a_table_of_which_a_file_is_missing_stops_alone(
    lake: SparkSession, tmp_path: Path, merging_format: Format, gone: str
) -> None:
    path = tmp_path / "lake"
    writing = Writing(lake, tmp_path, TableOptions(merging_format, str(path), None, "merge", "apply"))
    assert writing.write("Singers", "Albums") == {}
    kept = "metadata" if merging_format == "iceberg" else "_delta_log"
    for file in (path / "Singers").rglob("*.avro" if gone == "metadata" else "*.parquet"):
        if (gone == "metadata") == (kept in file.parts):
            file.unlink()
    stopped = writing.write("Singers", "Albums")
    if gone == "metadata" and merging_format == "delta":
        assert stopped == {}  # its log has no such file
        return
    assert stopped.keys() == {"Singers"}
    assert "a file of it is missing: " in str(stopped["Singers"])
    assert writing.count(target(path, merging_format, "Albums")) == 2


def test_a_table_whose_name_is_too_long_for_a_folder_stops_alone(
    lake: SparkSession, tmp_path: Path, merging_format: Format
) -> None:
    long = f"{'S' * 128}.{'T' * 128}"
    writing = Writing(lake, tmp_path, TableOptions(merging_format, str(tmp_path / "lake"), None, "merge", "apply"))
    assert writing.write(long, "Albums").keys() == {long}
    assert writing.count(target(tmp_path / "lake", merging_format, "Albums")) == 1
