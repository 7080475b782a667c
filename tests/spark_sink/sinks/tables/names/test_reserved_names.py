"""Names that a format keeps for itself are named before anything starts."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.check.findings import check_sink, findings_of, warn
from connector.config import validated
from connector.config.sinks import WatchedStream
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.reader.change_stream import opened
from emulator import TABLES
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Mode, TableOptions, TablesConfig
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.sink_type import SINK
from tests.peers.histories import split
from tests.peers.served import served, settings
from tests.spark_sink.sinks.tables.changes import NAME, change
from tests.spark_sink.sinks.tables.reading import epochs
from tests.spark_sink.spools import KEY, SpoolMaker

EXCLUDE = "leave the table out (source.tables.exclude)"
RENAME = f"rename it in Spanner, or {EXCLUDE}"


def table(name: str, *columns: str) -> TableSchema:
    text = '{"code":"STRING"}'
    return TableSchema.of(name, [KEY, *(ColumnType(column, text, False, 2 + at) for at, column in enumerate(columns))])


def errors(*tables: TableSchema, **sink: str) -> list[str]:
    section = {"path": "/lake"} | sink if "database" not in sink else sink
    stream = WatchedStream("Everything", "NEW_ROW", "googlesql", "", tables)
    return SINK.stream_errors(TablesConfig.model_validate(section), stream)


@pytest.mark.parametrize("name", ["files", "Entries", "HISTORY", "Metadata_Log_Entries", "all.data_files", "Refs"])
def test_a_table_called_as_a_metadata_table_of_iceberg_cannot_be_in_its_folder(name: str) -> None:
    (error,) = errors(table(name), table("Singers"), format="iceberg")
    assert error == (
        f"sink: table {name} would be {name.replace('.', '_')}, a name that Iceberg keeps for a metadata table where a"
        f" path has the tables: use a database instead, or {EXCLUDE}"
    )
    assert errors(table(name), format="iceberg", database="lake.music") == []
    assert errors(table(name), format="delta") == []


@pytest.mark.parametrize("of_format", ["delta", "iceberg", "parquet"])
def test_a_name_that_is_too_long_for_a_disk_is_named(of_format: str) -> None:
    schema, mode = "S" * 128, "append" if of_format == "parquet" else "merge"
    assert errors(table(f"{schema}.{'T' * 126}"), format=of_format, mode=mode) == []
    (error,) = errors(table(f"{schema}.{'T' * 127}"), format=of_format, mode=mode)
    assert error.endswith(f"T would be a folder with a name of 256 bytes, and a disk takes 255 at most: {RENAME}")
    if of_format != "parquet":
        assert errors(table(f"{schema}.{'T' * 128}"), format=of_format, database="lake.music") == []


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_columns_called_as_metadata_columns_of_iceberg_are_named(mode: str) -> None:
    found = errors(table("Singers", "_file", "Name", "_POS"), format="iceberg", mode=mode, database="lake.music")
    why = "sink: table Singers has a column _POS, _file, which Iceberg keeps for itself: rename it in Spanner"
    assert found == [f"{why}, or {EXCLUDE}"]
    assert errors(table("Singers", "_file", "_pos", "_deleted"), format="delta", mode=mode) == []


@pytest.mark.parametrize("name", ["_metadata", "_Metadata", "_row_id_"])
def test_a_column_that_a_merge_of_delta_adds_or_reads_can_only_be_appended(name: str) -> None:
    (error,) = errors(table("Singers", name))
    assert error.startswith(f"sink: table Singers has a column {name}, which Delta keeps for itself: ")
    assert errors(table("Singers", name), mode="append") == []
    assert errors(table("Singers", name), format="parquet", mode="append") == []


def test_discover_shows_the_names_of_every_format_with_the_table() -> None:
    problems = SINK.table_problems(table("Files", "_file", "_metadata", "_captured", "_commit_version"))
    assert [problem.partition(":")[0] for problem in problems] == [
        "table Files has a column _captured, which the sink adds itself",
        "table Files has a column _metadata, which Delta keeps for itself",
        "table Files would be Files, a name that Iceberg keeps for a metadata table where a path has the tables",
        "table Files has a column _file, which Iceberg keeps for itself",
        "table Files has a column _commit_version, which Delta's change data feed keeps for itself",
    ]


def test_a_table_that_comes_later_is_named_with_the_same_line(spool: SpoolMaker) -> None:
    spool.seal(change(1, [1], table="Files"), change(2, [1], (KEY, NAME, replace(NAME, name="_file"))))
    options = TableOptions("iceberg", "/lake", None, "merge", "apply")
    writer = TablesWriter(Feed.at(spool.path), options, "tables")
    with pytest.raises(ConfigurationError, match="table Files would be Files, a name that Iceberg keeps"):
        writer.table("Files")
    with pytest.raises(ConfigurationError, match="table Singers has a column _file, which Iceberg keeps for itself"):
        writer.table("Singers")


@pytest.mark.parametrize("mode", ["merge", "append", "history"])
def test_deltas_change_data_feed_keeps_the_name_of_its_version_where_it_is_enabled(mode: Mode) -> None:
    stream = WatchedStream("Everything", "NEW_ROW", "googlesql", "", (table("Singers", "_Commit_Version"),))
    found = {}
    for enabled in ("True", "false"):
        sink = TablesConfig(path="/lake", mode=mode, table_properties={"delta.enablechangedatafeed": enabled})
        assert sink.options.properties == sink.table_properties
        found[enabled] = SINK.stream_errors(sink, stream)
    assert found["false"] == []
    (error,) = found["True"]
    assert error == (
        "sink: table Singers has a column _Commit_Version, which Delta's change data feed keeps for itself: leave out"
        f" delta.enableChangeDataFeed, rename the column in Spanner, or {EXCLUDE}"
    )


@pytest.mark.parametrize("name", ["_Change_Timestamp", "_mod_type", "_commit_timestamp", "_change_type"])
def test_names_of_the_sinks_columns_are_taken_and_so_are_the_former_ones(name: str) -> None:
    assert errors(table("Singers", name)) == [f"sink: table Singers has a column {name}, which the sink adds itself"]


def test_run_starts_and_names_the_table_that_check_reports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables = tuple(replace(table, name="Files") if table.name == "Albums" else table for table in TABLES)
    with served(split(tables=tables)) as server:
        sink = {"type": "tables", "format": "iceberg", "path": str(tmp_path / "lake")}
        config = validated({**settings(server, tmp_path / "spool"), "sink": sink})
        asyncio.run(check_sink(config))
        (reported,) = [one for one in asyncio.run(findings_of(config)).errors if "Files" in one]

        async def started() -> None:
            async with opened(config.source, started=False) as stream:
                warn(config, stream)

        asyncio.run(started())
    warned = {record.getMessage(): record.__dict__.get("fields", {}) for record in caplog.records}
    assert warned["the destination cannot have a table as it is; the others are delivered"]["why"] == reported


def test_events_that_the_spool_has_of_an_excluded_table_are_in_no_parquet_file(
    lake: SparkSession, spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(change(1, [1]), change(2, [2], (KEY, replace(NAME, name="_captured")), "Albums"))
    options = TableOptions("parquet", str(tmp_path), None, "append", "apply")
    writer = TablesWriter(Feed.at(spool.path), options, "tables", lambda table: table != "Albums")
    assert writer.write(epochs(lake, spool, 1, 1)).merged.events == {"Singers": 1}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name in ("Singers", "Albums")] == [
        "Singers"
    ]
