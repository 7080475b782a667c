"""A table that was dropped, or set back to an older state, is incomplete until a backfill has read it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.spool import consumers
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.late_store import LateRanges
from connector.spool.sink_report import NOTHING, WrittenTable, report_of, write_report
from spark_sink.publishing import _Incompleteness
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.kept_rows import KeptRows
from spark_sink.sinks.tables.losses.written_tables import TableNow, WrittenTables
from tests.connector.spool.backfill.builders import recorded
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import target
from tests.spark_sink.spools import START, SpoolMaker

WHY = {"Singers": "it was dropped or set back to an older state at the destination, and lacks rows"}
LINE = "table Singers lacks rows"


def made(lake: SparkSession, folder: Path, **sink: str) -> Sink:
    sink_of_six = Sink(lake, folder, **sink)
    for at in range(1, 7):
        sink_of_six.maker.seal(change(at, [at]), change(at, [at], table="Albums"))
    return sink_of_six


def incomplete(sink: Sink, epoch: int) -> dict[str, str]:
    """The reasons of a cut at the end of an epoch."""
    now = _Incompleteness.now(sink.delivery, LateRanges(sink.spool))
    return dict(now.of(["Albums", "Singers"], sink.spool.manifest(epoch).watermark_high))


def backfilled(sink: Sink, epoch: int) -> None:
    """A backfill of Singers as of the end of an epoch is done."""
    at = sink.spool.manifest(epoch).watermark_high
    own = spool_of(sink.spool, recorded(sink.spool, sink.spool.header(), "Singers", at=at).number)
    progress = TableProgress(table="Singers", state="done")
    write_progress(own, BackfillProgress(updated=START, tables=(progress,)))
    consumers.record(own, "tables", 1, now=START)
    KeptRows(sink.spool, "tables", list).remove(frozenset())


def dropped(sink: Sink, of_format: Format) -> None:
    if of_format == "iceberg":
        sink.lake.sql(f"DROP TABLE {target(sink.path, of_format)} PURGE")
    shutil.rmtree(sink.path / "Singers", ignore_errors=True)


def rolled_back(sink: Sink, of_format: Format, commits: int = 1) -> None:
    """The last commits of Singers are gone: by Iceberg's procedure, or by a folder of Delta put back from a backup."""
    table = target(sink.path, of_format)
    if of_format == "iceberg":
        catalog, _, name = table.partition(".")
        snapshots = sink.lake.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at").collect()
        to = snapshots[-1 - commits]["snapshot_id"]
        sink.lake.sql(f"CALL {catalog}.system.rollback_to_snapshot('{name}', {to})")
        return
    for log in sorted((sink.path / "Singers" / "_delta_log").glob("*.json"))[-commits:]:
        number = log.name.partition(".")[0]
        for file in log.parent.glob(f"*{number}*"):
            file.unlink()


@pytest.mark.parametrize("lost", [dropped, rolled_back], ids=["dropped", "rolled_back"])
def test_a_table_that_lost_rows_is_named_and_its_cuts_are_incomplete_until_its_backfill(
    lake: SparkSession,
    merging_format: Format,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lost: Callable[[Sink, Format], None],
) -> None:
    sink = made(lake, tmp_path, format=merging_format)
    sink.deliver(1)
    sink.deliver(2)
    assert incomplete(sink, 2) == {}
    lost(sink, merging_format)
    sink.restart()
    sink.deliver(3)
    assert incomplete(sink, 3) == WHY
    said = capsys.readouterr().err
    assert said.count(LINE) == 1
    assert "`spanner-cdc backfill --table Singers`" in said
    sink.restart()
    sink.deliver(4)
    assert incomplete(sink, 4) == WHY
    assert LINE not in capsys.readouterr().err
    backfilled(sink, 4)
    assert incomplete(sink, 3).keys() == {"Singers"}
    assert incomplete(sink, 4) == {}


def test_a_backfill_that_began_in_the_new_table_is_enough_and_an_earlier_one_is_not(
    spool: SpoolMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.fill(3)
    at = [spool.spool.manifest(epoch).watermark_high for epoch in (1, 2, 3)]
    for number, (as_of, there) in enumerate(zip(at[1:], ("old", "new"), strict=True), 1):
        recorded(spool.spool, spool.spool.header(), "Singers", at=as_of)
        written = NOTHING.model_copy(update={"last": 1, "written": {"Singers": WrittenTable(id=there, epoch=1)}})
        write_report(spool_of(spool.spool, number), "tables", written)
    before = NOTHING.model_copy(update={"written": {"Singers": WrittenTable(id="old", epoch=1, up_to=at[0])}})
    write_report(spool.spool, "tables", before)
    tables = WrittenTables(Feed.at(spool.path), "tables")
    tables.met({"Singers": TableNow("old", 1), "Albums": TableNow("new", 0, is_new=True)})
    tables.met({"Singers": TableNow("old", 0)})
    assert report_of(spool.spool, "tables").lost == {}, "a number alone may expire"
    assert LINE not in capsys.readouterr().err
    tables.met({"Singers": TableNow("new", 0)})
    assert report_of(spool.spool, "tables").lost == {"Singers": at[1] + 1}
    tables.met({"Singers": TableNow("new", 0)})
    assert capsys.readouterr().err.count(LINE) == 1
