"""Tables of BigQuery are partitioned as ``sink.partition_by`` says, which is read before anything starts."""

import pytest

from connector.config import validated
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.tables.partition import TablePartition, parse
from spark_sink.sinks.bigquery.tables.table import (
    BigQueryTable,
    BigQueryTableOptions,
    Mode,
    bigquery_table,
    errors_of_stream,
)
from tests.spark_sink.sinks.bigquery.tables.orders import ORDERS


def table(partition_by: dict[str, str], mode: Mode = "append-only") -> BigQueryTable:
    source = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
    sink = {"type": "bigquery", "dataset": "d", "mode": mode, "partition_by": partition_by}
    config = validated({"source": source, "sink": sink}).sink
    assert isinstance(config, BigQueryConfig)
    return bigquery_table(ORDERS, config.table_options())


@pytest.mark.parametrize(
    ("spec", "partition"),
    [
        ("Placedon", None),
        ("Day", TablePartition("Day", "day")),
        ("Day, month", TablePartition("Day", "month")),
        ("Id,0,1000000,1000", TablePartition("Id", "", 0, 1_000_000, 1000)),
        ("_PARTITIONTIME", TablePartition("", "day")),
        ("_PARTITIONTIME,hour", TablePartition("", "hour")),
    ],
)
def test_a_table_is_partitioned_by_a_column_a_range_or_the_time_of_arrival(
    spec: str, partition: TablePartition | None
) -> None:
    assert table({"Orders": spec}).partition == partition


def test_a_column_is_named_as_in_the_source_and_partitions_as_in_bigquery() -> None:
    source = TableSchema(
        "Orders", (ORDERS.columns[0], ColumnType("Placed-on", '{"code":"TIMESTAMP"}', False, 2)), ("Id",)
    )
    made = bigquery_table(source, BigQueryTableOptions("d", "append-only", partition_by='{"Orders":"Placed-on,hour"}'))
    assert made.partition == TablePartition("Placed_on", "hour")


def test_a_changelog_can_be_partitioned_by_the_commit_timestamp_for_all_tables() -> None:
    made = table({"*": "_metadata_spanner_commit_timestamp"}, "changelog")
    assert made.partition == TablePartition("_metadata_spanner_commit_timestamp", "day")


def test_a_table_that_is_named_says_why_it_cannot_be_partitioned_and_one_of_all_others_just_is_not() -> None:
    for spec, why in [
        ("Gone", "there is no column Gone"),
        ("Tags,0,10,1", "column Tags is repeated in BigQuery, and ranges are of INT64"),
        ("Id", "column Id is INT64 in BigQuery: days are of DATE or TIMESTAMP"),
        ("Day,hour", "column Day is DATE in BigQuery: hours are of TIMESTAMP"),
    ]:
        made = table({"Orders": spec})
        assert made.partition is None
        assert made.unfit == (f"sink.partition_by: table Orders cannot be partitioned by {spec}: {why}",)
        assert table({"*": spec}).unfit == ()


def test_tables_that_are_merged_into_have_no_time_of_arrival() -> None:
    assert "is for modes that append rows" in table({"Orders": "_PARTITIONTIME"}, "merge-load").unfit[0]


def test_check_says_what_cannot_be_partitioned() -> None:
    table_options = BigQueryTableOptions("d", "append-only", partition_by='{"Orders":"Gone"}')
    (error,) = errors_of_stream(table_options, "Everything", "NEW_ROW", [ORDERS])
    assert error.startswith("sink.partition_by: table Orders cannot be partitioned by Gone")


@pytest.mark.parametrize(
    "spec", ["", "Day,week", "Id,0,10", "Id,10,0,1", "Id,0,10,0", "Id,0,10001,1", "_PARTITIONTIME,0,10,1"]
)
def test_an_invalid_partitioning_is_rejected(spec: str) -> None:
    with pytest.raises(ValueError, match="is not a valid partitioning"):
        parse(spec)
    with pytest.raises(ConfigurationError):
        table({"Orders": spec})
