"""Changes merged into tables of Delta and Iceberg."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.histories import COLUMNS, History, Row, as_text
from tests.spark_sink.sinks.tables.reading import commits, epochs, from_source, rows_of, target
from tests.spark_sink.spools import START, SpoolMaker, record

_CAPTURES = pytest.mark.parametrize("capture", ["NEW_ROW", pytest.param("OLD_AND_NEW_VALUES", marks=pytest.mark.slow)])


@pytest.mark.long(but=1)
@_CAPTURES
def test_a_merged_table_has_the_rows_of_spanner_whatever_is_repeated(
    lake: SparkSession, merging_format: Format, capture: str, tmp_path: Path
) -> None:
    """Bounds that differ from those before are what a query with a new checkpoint has."""
    spool = SpoolMaker(tmp_path / "spool")
    history = History(spool, random.Random(7), capture)
    path = tmp_path / "lake"

    def merge(first: int, last: int) -> None:
        spark_sink.merge_into(from_source(lake, spool, first, last), path=str(path), format=merging_format)

    for last in (history.commit(12), history.commit(12)):
        merge(1, last)  # the second time with an epoch that the table has
    assert as_text(rows_of(lake, target(path, merging_format))) == as_text(history.rows)
    before = commits(lake, target(path, merging_format), merging_format)
    merge(1, 2)
    assert commits(lake, target(path, merging_format), merging_format) == before == 2
    history.commit(20)
    history.commit(20)
    merge(3, 4)
    assert as_text(rows_of(lake, target(path, merging_format))) == as_text(history.rows)
    assert rows_of(lake, target(path, merging_format), "_is_deleted") == {}


@_CAPTURES
def test_deleted_rows_are_kept_with_their_last_values_if_asked(
    lake: SparkSession, merging_format: Format, capture: str, tmp_path: Path
) -> None:
    """Also of rows that are written and deleted within a micro-batch."""
    spool = SpoolMaker(tmp_path / "spool")
    history = History(spool, random.Random(3), capture)
    path = tmp_path / "lake"
    for _ in range(2):
        last = history.commit(25)
        spark_sink.merge_into(epochs(lake, spool, last, last), path=str(path), format=merging_format, deletes="flag")
    assert as_text(rows_of(lake, target(path, merging_format))) == as_text(history.rows)
    assert as_text(rows_of(lake, target(path, merging_format), "_is_deleted")) == as_text(history.deleted)


def test_a_new_column_widens_the_table_and_another_type_stops_with_one_line(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    history = History(spool, random.Random(5))
    path = tmp_path / "lake"
    spark_sink.merge_into(epochs(lake, spool, 1, history.commit(5)), path=str(path), format=merging_format)
    history.columns = (*COLUMNS, ColumnType("Rating", '{"code":"STRING"}', False, 5))
    for row in history.rows.values():
        row["Rating"] = None
    spark_sink.merge_into(epochs(lake, spool, 2, history.commit(8)), path=str(path), format=merging_format)
    assert as_text(rows_of(lake, target(path, merging_format))) == as_text(history.rows)
    history.columns = (*COLUMNS[:2], ColumnType("Balance", '{"code":"DATE"}', False, 3))
    history.rows.clear()
    last = history.commit(1)
    with pytest.raises(SinkError, match=r"column Balance of table Singers is string, but in .* it is decimal\(38,9\)"):
        spark_sink.merge_into(epochs(lake, spool, last, last), path=str(path), format=merging_format)


def test_invalid_arguments_are_refused(lake: SparkSession, tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.fill(1)
    events = epochs(lake, spool, 1, 1)
    with pytest.raises(ConfigurationError, match="give either path"):
        spark_sink.merge_into(events)
    with pytest.raises(ConfigurationError, match="Parquet files cannot be merged"):
        spark_sink.merge_into(events, path="/lake", format="parquet")
    with pytest.raises(ConfigurationError, match="format: 'orc' is none of delta, iceberg, parquet"):
        spark_sink.merge_into(events, path="/lake", format="orc")  # type: ignore[arg-type]


@pytest.mark.long
def test_a_backfill_fills_what_changes_did_not_name_and_brings_no_deleted_row_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """The stream's changes are merged first, and are later than the backfill's rows."""
    stream, backfill = SpoolMaker(tmp_path / "spool"), SpoolMaker(tmp_path / "backfill")

    def change(mod_type: str, key: int, at: int, **values: object) -> DataChangeRecord:
        made = record(START + at * SECOND, [key], columns=COLUMNS, values=values, mod_type=mod_type)
        return replace(made, value_capture_type="NEW_VALUES")

    def whole(name: str) -> Row:
        return {"Name": name, "Balance": "1.25", "Tags": ["a"]}

    stream.seal(change("UPDATE", 1, 20, Name="updated"), change("DELETE", 2, 21), change("INSERT", 3, 22, Name="new"))
    stream.seal(change("UPDATE", 1, 30, Tags=["b"]))
    backfill.seal(*(change("INSERT", key, 10, **whole("old")) for key in (1, 2, 3, 4)))
    options = TableOptions(merging_format, str(tmp_path / "lake"), None, "merge", "apply")
    writer, of_backfill = (TablesWriter(Feed.at(spool.path), options, "tables") for spool in (stream, backfill))
    for epoch in (1, 2):
        writer.write(epochs(lake, stream, epoch, epoch), tombstones=frozenset({"Singers"}))
    table = target(tmp_path / "lake", merging_format)
    assert rows_of(lake, table, "_captured IS NOT NULL").keys() == {1}
    assert rows_of(lake, table, "_is_deleted").keys() == {2}
    of_backfill.write(epochs(lake, backfill, 1, 1), of_backfill=True)
    writer.remove_deleted(lake, "Singers")
    wanted = {
        1: {"Name": "updated", "Balance": "1.25", "Tags": ["b"]},
        3: {"Name": "new", "Balance": None, "Tags": None},
        4: whole("old"),
    }
    assert rows_of(lake, table) == wanted
    assert rows_of(lake, table, "_is_deleted OR _captured IS NOT NULL") == {}
