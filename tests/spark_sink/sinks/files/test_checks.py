"""Warnings and errors of `check` and `run` about files before they are written."""

import pytest

from connector.config.sinks import WatchedStream
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from spark_sink.sinks.files.checks import warnings_of_files
from spark_sink.sinks.files.config import FilesConfig

MOMENTS = TableSchema.of(
    "Moments", [ColumnType("At", '{"code":"TIMESTAMP"}', True, 1), ColumnType("B", '{"code":"TIMESTAMP"}', False, 2)]
)


def warned(sink: FilesConfig, capture: str = "NEW_ROW", dialect: str = "googlesql") -> list[str]:
    return list(warnings_of_files(sink, WatchedStream("Everything", capture, dialect, "", (MOMENTS,))))


@pytest.mark.parametrize("capture", ["OLD_AND_NEW_VALUES", "NEW_VALUES"])
@pytest.mark.parametrize(
    ("dialect", "statement"),
    [
        ("googlesql", "ALTER CHANGE STREAM `Everything` SET OPTIONS (value_capture_type = 'NEW_ROW')"),
        ("postgresql", "ALTER CHANGE STREAM \"Everything\" SET (value_capture_type = 'NEW_ROW')"),
    ],
)
def test_partial_rows_are_warned_of_with_the_statement_that_helps(capture: str, dialect: str, statement: str) -> None:
    (line,) = warned(FilesConfig(), capture, dialect)
    assert line.startswith(f"source.change_stream: Everything captures {capture}, so that an UPDATE holds only the key")
    assert line.endswith(f"makes the others NULL. To capture whole rows: {statement}")


@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_whole_rows_are_not_warned_of(capture: str) -> None:
    assert warned(FilesConfig(), capture) == []


def test_a_key_with_nanoseconds_is_warned_of_where_avro_would_cut_it() -> None:
    (line,) = warned(FilesConfig(format="avro"))
    assert line.startswith("sink.timestamps: At in the key of table Moments has nanoseconds")
    assert warned(FilesConfig(format="avro", timestamps="text")) == []
