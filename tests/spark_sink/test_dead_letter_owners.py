"""Whose dead letters a file has: sinks of different types that have no names share a folder."""

import pytest

from connector.config.sinks import SinkConfig
from spark_sink.sinks.bigquery.sink_type import SINK as BIGQUERY
from spark_sink.sinks.files.sink_type import SINK as FILES
from spark_sink.sinks.shared.sink_type import SparkSinkType
from spark_sink.sinks.spanner.sink_type import SINK as SPANNER
from spark_sink.sinks.tables.sink_type import SINK as TABLES
from tests.spark_sink.sqlite_sink.sink import SINK as SQLITE

SINKS: list[SparkSinkType[SinkConfig]] = [FILES, BIGQUERY, SPANNER, TABLES, SQLITE]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("0123abcd_files_7_0", [FILES]),
        ("0123abcd_spanner.spanner_7_0", [SPANNER]),
        ("0123abcd_spanner.to_eu_7_0", [SPANNER]),
        ("0123abcd_7_0_1", [BIGQUERY]),
        ("0123abcd_7_0_89abcdef01234567_1", [BIGQUERY]),
        ("0123abcd_tables_0000000000000007_0000000000000009", [TABLES]),
        ("0123abcd_sqlite_7_0", [SQLITE]),
        ("0123abcd_another_7_0", []),
        ("0123abcd_files_of_another_7_0", []),
        ("0123abcd_89abcdef01234567", []),
        ("notes", []),
    ],
)
def test_a_sink_owns_what_it_has_written_and_nothing_else(name: str, owners: list[SparkSinkType[SinkConfig]]) -> None:
    assert [sink for sink in SINKS if sink.owns_dead_letters(name)] == owners
