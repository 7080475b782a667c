"""The tables at the destination, as ``spanner-cdc discover`` lists them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.config.sinks import DestinationObject
from spark_sink.sinks.tables.config import Format, Mode, TablesConfig
from spark_sink.sinks.tables.formats.iceberg import catalog_of
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.reading.objects import objects_in
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs
from tests.spark_sink.spools import SpoolMaker


def listed(lake: SparkSession, of_format: Format, **place: str) -> list[DestinationObject]:
    mode = "append" if of_format == "parquet" else "merge"
    sink = TablesConfig.model_validate({"type": "tables", "format": of_format, "mode": mode, **place})
    return list(objects_in(lake, sink))


@pytest.mark.long
@pytest.mark.parametrize("of_format", ["parquet", "delta", "iceberg"])
def test_the_tables_below_a_path_are_listed_with_their_columns_and_keys(
    lake: SparkSession, of_format: Format, tmp_path: Path
) -> None:
    if of_format in LIBRARIES and spark_version() not in LIBRARIES[of_format].versions:
        pytest.skip(f"there is no library of {of_format} for Spark {spark_version()}: make test-lakehouse")
    spool, path = SpoolMaker(tmp_path / "spool"), tmp_path / "lake"
    assert listed(lake, of_format, path=str(path)) == []
    spool.seal(*(change(1, [1], table=table, Name="n") for table in "BA"))
    mode: Mode = "append" if of_format == "parquet" else "merge"
    spark_sink.merge_into(epochs(lake, spool, 1, 1), path=path, format=of_format, mode=mode)
    (path / "of_others").mkdir()
    first, second = listed(lake, of_format, path=str(path))
    assert [first.name, second.name] == ["A", "B"]
    assert first.key == (() if of_format == "parquet" else ("Id",))
    assert (first.columns["Id"], first.columns["Name"]) == ("bigint", "string")


@pytest.mark.skipif(
    spark_version() not in LIBRARIES["iceberg"].versions,
    reason="there is no Iceberg for this Spark: make test-lakehouse",
)
def test_all_tables_of_a_database_are_listed_also_those_of_others(lake: SparkSession, tmp_path: Path) -> None:
    assert listed(lake, "iceberg", path=str(tmp_path / "lake")) == []
    database = f"{catalog_of(str(tmp_path / 'lake'))}.music"
    lake.sql(f"CREATE NAMESPACE {database}")
    lake.sql(f"CREATE TABLE {database}.Others (Id BIGINT, Tags ARRAY<STRING>) USING iceberg")
    found = listed(lake, "iceberg", database=database)
    assert found == [DestinationObject("Others", {"Id": "bigint", "Tags": "array<string>"})]
