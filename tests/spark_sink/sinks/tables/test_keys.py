"""A table that is dropped in Spanner, and created again with another key."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.core.records import ColumnType
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.tables.changes import NAME, change, keyed_change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import KEY, SpoolMaker

OTHER = (ColumnType("Name", '{"code":"STRING"}', True, 1), ColumnType("Id", '{"code":"INT64"}', False, 2))


def rows(lake: SparkSession, table: str) -> list[tuple[int, str]]:
    lake.sql(f"REFRESH TABLE {table}")
    return sorted((row["Id"], row["Name"]) for row in lake.table(table).collect())


def test_another_key_stops_with_one_line_and_a_new_table_has_the_new_rows(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """The micro-batch has rows of both keys: those of the former one are in Spanner no more."""
    spool = SpoolMaker(tmp_path / "spool")
    path, table = tmp_path / "lake", target(tmp_path / "lake", merging_format)
    spool.seal(change(1, [1, 2, 3], Name="same"))
    spark_sink.merge_into(epochs(lake, spool, 1, 1), path=path, format=merging_format)
    spool.seal(
        change(2, [4, 5], Name="same"),
        keyed_change(3, OTHER, {"Name": "same"}, {"Id": "9"}),
        keyed_change(4, OTHER, {"Name": "other"}, {"Id": "9"}),
    )
    for _ in range(2):
        with pytest.raises(
            SinkError, match=r"the key of table Singers is \(Name\), but in .* merged by \(Id\)"
        ) as ends:
            spark_sink.merge_into(epochs(lake, spool, 2, 2), path=path, format=merging_format)
        assert "Rename or drop the table there" in str(ends.value.hint)
    assert rows(lake, table) == [(1, "same"), (2, "same"), (3, "same")]
    lake.sql(f"DELETE FROM {table}" if merging_format == "delta" else f"DROP TABLE {table}")
    other = path if merging_format == "iceberg" else tmp_path / "renamed"
    spark_sink.merge_into(epochs(lake, spool, 2, 2), path=other, format=merging_format)
    assert rows(lake, target(other, merging_format)) == [(9, "other"), (9, "same")]


@pytest.mark.long
def test_a_table_that_does_not_say_its_key_takes_no_rows_of_two(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """As those that an older version has created: without rows of a second key they are merged as ever."""
    spool = SpoolMaker(tmp_path / "spool")
    path, table = tmp_path / "lake", target(tmp_path / "lake", merging_format)
    spool.seal(change(1, [1], Name="a"))
    spark_sink.merge_into(epochs(lake, spool, 1, 1), path=path, format=merging_format)
    lake.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('spanner-cdc.primary-key')")
    spool.seal(change(2, [1, 2], (KEY, NAME), Name="b"))
    spark_sink.merge_into(epochs(lake, spool, 2, 2), path=path, format=merging_format)
    assert rows(lake, table) == [(1, "b"), (2, "b")]
    spool.seal(change(3, [4], Name="c"), keyed_change(4, OTHER, {"Name": "b"}, {"Id": "9"}))
    with pytest.raises(SinkError, match=r"is \(Name\), but a micro-batch has rows with the key \(Id\), which would be"):
        spark_sink.merge_into(epochs(lake, spool, 3, 3), path=path, format=merging_format)
    assert rows(lake, table) == [(1, "b"), (2, "b")]
