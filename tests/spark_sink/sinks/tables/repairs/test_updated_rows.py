"""Rows that the stream updates while they are repaired, where it captures only changes."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Deletes, Format, Mode, TableOptions
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.histories import COLUMNS
from tests.spark_sink.sinks.tables.reading import epochs, rows_of, target
from tests.spark_sink.spools import START, SpoolMaker, record

FILLED = frozenset({"Singers"})


def change(mod_type: str, key: int, at: int, **values: object) -> DataChangeRecord:
    made = record(START + at * SECOND, [key], columns=COLUMNS, values=values, mod_type=mod_type)
    return replace(made, value_capture_type="OLD_AND_NEW_VALUES")


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "deletes", "is_late"),
    [("merge", "apply", True), ("merge", "flag", True), ("merge", "apply", False), ("history", "apply", True)],
    ids=str,
)
def test_a_repair_mends_the_columns_that_no_later_change_has_named(
    lake: SparkSession, merging_format: Format, mode: Mode, deletes: Deletes, *, is_late: bool, tmp_path: Path
) -> None:
    """Row 1 lacks an update of its name. Row 2 is inserted again after the timestamp, and then updated."""
    stream, repair = SpoolMaker(tmp_path / "spool"), SpoolMaker(tmp_path / "repair")
    stream.seal(*(change("INSERT", key, 1, Name="wrong", Balance="1.00", Tags=["old"]) for key in (1, 2, 3, 4)))
    stream.seal(
        change("UPDATE", 1, 20, Tags=["new"]),
        change("INSERT", 2, 21, Name="again", Balance="2.00", Tags=["again"]),
        change("UPDATE", 4, 22, Tags=["not repaired"]),
    )
    stream.seal(change("UPDATE", 1, 30, Balance="3.00"), change("UPDATE", 2, 31, Balance="4.00"))
    stream.seal(change("UPDATE", 1, 40, Tags=["last"]))
    repair.seal(*(change("INSERT", key, 10, Name="right", Balance="1.00", Tags=["old"]) for key in (1, 2, 3)))
    options = TableOptions(merging_format, str(tmp_path / "lake"), None, mode, deletes)
    writer, of_repair = (TablesWriter(Feed.at(spool.path), options, "tables") for spool in (stream, repair))
    table, current = target(tmp_path / "lake", merging_format), "NOT _is_deleted"
    if mode == "history":
        current = "_is_current"
    writer.write(epochs(lake, stream, 1, 1))
    if not is_late:
        of_repair.write(epochs(lake, repair, 1, 1), tombstones=FILLED, of_backfill=True)
    for epoch in (2, 3):
        writer.write(epochs(lake, stream, epoch, epoch), tombstones=FILLED)
    if is_late:
        of_repair.write(epochs(lake, repair, 1, 1), tombstones=FILLED, of_backfill=True)
    writer.write(epochs(lake, stream, 4, 4), tombstones=FILLED)
    wanted = {
        1: {"Name": "right", "Balance": "3.00", "Tags": ["last"]},
        2: {"Name": "again", "Balance": "4.00", "Tags": ["again"]},
        3: {"Name": "right", "Balance": "1.00", "Tags": ["old"]},
        4: {"Name": "wrong", "Balance": "1.00", "Tags": ["not repaired"]},
    }
    if mode == "merge":
        assert rows_of(lake, table, "_captured IS NOT NULL") != {}
    for _ in range(2):
        found = rows_of(lake, table, current)
        assert {key: {name: row[name] for name in wanted[1]} for key, row in found.items()} == wanted
        (writer.remove_deleted if deletes == "apply" else writer.remove_notes)(lake, "Singers")
    assert rows_of(lake, table, f"{current} AND _captured IS NOT NULL") == {}
