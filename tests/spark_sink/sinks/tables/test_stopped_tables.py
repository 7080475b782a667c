"""A table that cannot be written stops alone, and nothing of it is lost."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.spool.sink_report import report_of
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.campaign.backfill_ends import BackfillEnds
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink, appended, stop_singers
from tests.spark_sink.sinks.tables.changes import NAME, change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import KEY, START, record

NUMBER, TEXT = (ColumnType("Age", f'{{"code":"{code}"}}', False, 2) for code in ("INT64", "STRING"))


@pytest.fixture(params=["parquet"])
def sink(lake: SparkSession, tmp_path: Path) -> Sink:
    """Into Parquet: Singers stops at epoch 2, where a column has another type; Albums has changes in every epoch."""
    sink = Sink(lake, tmp_path, format="parquet", mode="append")
    sink.maker.seal(change(1, [1], (KEY, NUMBER), Age="1"), change(1, [1], table="Albums"))
    sink.deliver(1)
    for at in range(2, 6):
        sink.maker.seal(change(at, [at], (KEY, TEXT), Age="old"), change(at, [at], table="Albums"))
    return sink


def mend(sink: Sink) -> None:
    """As the reason says."""
    shutil.move(sink.path / "Singers", sink.path.parent / "former")


def test_a_table_that_cannot_be_written_is_named_once_and_the_others_continue(
    sink: Sink, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [sink.deliver(epoch) for epoch in (2, 3)]
    assert said == [f"1 events to 1 tables, 1 to the dead letters at {sink.store.root}"] * 2
    assert appended(sink, "Albums") == [(1, 1), (2, 2), (3, 3)]
    why = "column Age of table Singers is string, but in"
    assert list(sink.stopped) == ["Singers"]
    assert why in sink.stopped["Singers"]
    assert capsys.readouterr().err.count("table Singers is stopped, and the others continue: column Age") == 1
    assert sink.letters() == report_of(sink.spool, "tables").refused == 2


def test_a_stopped_table_stays_stopped_until_its_dead_letters_are_replayed_and_has_each_change_once(
    sink: Sink,
) -> None:
    sink.deliver(2)
    mend(sink)
    sink.deliver(3)
    sink.restart()
    sink.deliver(4)
    assert not (sink.path / "Singers").exists(), "a later change has not overtaken a dead letter"
    assert "column Age of table Singers" in sink.stopped["Singers"], "also after a restart"
    assert sink.replay() == Replayed(sent=3)
    assert appended(sink, "Singers") == [(2, 2), (3, 3), (4, 4)]
    assert sink.stopped == {}
    assert sink.deliver(5) == "2 events to 2 tables"
    assert appended(sink, "Singers") == [(2, 2), (3, 3), (4, 4), (5, 5)]
    assert len(appended(sink, "Albums")) == 5


@pytest.mark.long
def test_a_replay_before_the_table_is_mended_changes_nothing(sink: Sink) -> None:
    sink.deliver(2)
    sink.deliver(3)
    assert sink.replay() == Replayed(rejected=2)
    assert sink.letters() == 2
    assert list(sink.stopped) == ["Singers"]
    assert appended(sink, "Singers") == [(1, 1)]


@pytest.mark.long
def test_a_micro_batch_that_is_repeated_has_the_same_dead_letters_and_a_replay_waits_for_its_end(sink: Sink) -> None:
    sink.delivery.run(epochs(sink.lake, sink.maker, 2, 3))
    assert sink.replay() == Replayed(waiting=2)
    mend(sink)
    sink.deliver(2, 3)
    assert sink.letters() == 2
    assert sink.replay() == Replayed(sent=2)
    assert appended(sink, "Singers") == [(2, 2), (3, 3)]
    assert len(appended(sink, "Albums")) == 3


@pytest.mark.long
def test_a_replay_that_is_killed_before_it_removes_a_file_adds_nothing_twice(sink: Sink) -> None:
    sink.deliver(2)
    sink.deliver(3)
    mend(sink)
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        sink.replay()
    assert appended(sink, "Singers") == [(2, 2)]
    assert sink.replay() == Replayed(sent=2)
    assert appended(sink, "Singers") == [(2, 2), (3, 3)]


@pytest.mark.long
def test_a_table_whose_dead_letters_were_removed_continues_with_a_warning(
    sink: Sink, capsys: pytest.CaptureFixture[str]
) -> None:
    sink.deliver(2)
    mend(sink)
    shutil.rmtree(sink.store.root)
    sink.restart()
    sink.deliver(3)
    assert appended(sink, "Singers") == [(3, 3)]
    assert sink.stopped == {}
    assert "table Singers continues: there are no dead letters of it at" in capsys.readouterr().err


@pytest.mark.long
def test_appended_dead_letters_that_a_start_has_not_found_are_written_after_later_epochs(sink: Sink) -> None:
    sink.deliver(2)
    sink.deliver(3)
    mend(sink)
    aside = Path(sink.store.root).rename(sink.path.with_name("aside"))
    sink.restart()
    sink.deliver(4)
    aside.rename(sink.store.root)
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        sink.replay()
    assert appended(sink, "Singers") == [(2, 2), (4, 4)]
    assert report_of(sink.spool, "tables").lacking.keys() == {"Singers"}
    assert sink.replay() == Replayed(sent=2)
    assert report_of(sink.spool, "tables").lacking == {}
    assert sink.deliver(5) == "2 events to 2 tables"
    assert appended(sink, "Singers") == [(2, 2), (3, 3), (4, 4), (5, 5)]


@pytest.mark.long
def test_a_parquet_table_whose_name_another_one_had_is_replayed_once_that_is_excluded(
    lake: SparkSession, tmp_path: Path
) -> None:
    sink = Sink(lake, tmp_path, format="parquet", mode="append")
    sink.maker.seal(change(1, [1], table="a.b"), change(1, [2], table="a_b"))
    sink.deliver(1)
    assert sink.replay() == Replayed(rejected=2)
    tables = sink.config.source.tables.model_copy(update={"exclude": ("a.b",)})
    source = sink.config.source.model_copy(update={"tables": tables})
    sink.config = sink.config.model_copy(update={"source": source})
    assert sink.replay() == Replayed(sent=1, rejected=1)
    assert appended(sink, "a_b") == [(2, 1)]


@pytest.mark.long
def test_dead_letters_of_another_spool_are_rejected(sink: Sink, tmp_path: Path) -> None:
    sink.deliver(2)
    other = Sink(sink.lake, tmp_path / "other", format="parquet", mode="append")
    other.config = other.config.model_copy(
        update={"sink": other.config.sink.model_copy(update={"dead_letters": sink.store.root})}
    )
    other.maker.seal(change(1, [1]))
    other.restart()
    other.deliver(1)
    assert other.replay() == Replayed(rejected=1)


@pytest.mark.parametrize(
    "columns", [(KEY, replace(NAME, name="_captured")), (KEY, NAME)], ids=["column of parquet", "table of parquet"]
)
def test_a_name_that_the_destination_cannot_have_stops_that_table(
    lake: SparkSession, tmp_path: Path, columns: tuple[ColumnType, ...]
) -> None:
    """A column that the sink adds, or a table whose name another one has."""
    sink = Sink(lake, tmp_path, format="parquet", mode="append")
    table = "a.b" if columns[1] == NAME else "Singers"
    others = ["a_b"] if columns[1] == NAME else []
    sink.maker.seal(*(change(1, [1], columns, one) for one in [table, *others]), change(1, [1], table="Albums"))
    sink.deliver(1)
    assert set(sink.stopped) == {table, *others}
    assert appended(sink, "Albums") == [(1, 1)]


def test_a_merged_table_has_the_rows_of_the_source_after_a_replay(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(change(1, [1, 2], (KEY, NUMBER), Age="1"), change(1, [1], table="Albums"))
    sink.deliver(1)
    table, at = target(sink.path, merging_format), START + 4 * SECOND
    sink.maker.seal(change(2, [3, 4], (KEY, NUMBER), Age="4"), change(2, [2], table="Albums"))
    sink.maker.seal(record(at, [4, 1], columns=(KEY, NUMBER), values={"Age": "4"}, mod_type="DELETE"))
    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "table", stop_singers)
        for epoch in (2, 3):
            sink.deliver(epoch)
        assert lake.table(target(sink.path, merging_format, "Albums")).count() == 2
        assert sink.replay() == Replayed(rejected=4)
    assert list(sink.stopped) == ["Singers"]
    assert sink.replay() == Replayed(sent=4)
    lake.sql(f"REFRESH TABLE {table}")
    assert {(row["Id"], row["Age"]) for row in lake.table(table).collect()} == {(2, 1), (3, 4)}


@pytest.mark.long
@pytest.mark.parametrize("is_away", [False, True])
def test_a_row_that_is_deleted_while_a_backfill_has_dead_letters_does_not_come_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path, *, is_away: bool
) -> None:
    """Its deleted row is kept until the dead letters of the backfill are replayed, though the backfill is done.

    Also if a start does not find them meanwhile, as on a volume that is not mounted.
    """
    run = BackfillEnds(lake, merging_format, "silence", tmp_path, seed=1)
    run.chance = 0
    with run.refusing():
        run.begin()
        run.stop("Singers")
        run.deliver_backfill()
        run.mend()
        run.source.commit()
        run.deliver()
    at = target(tmp_path / "lake", merging_format)
    if is_away:
        (tmp_path / "letters").rename(tmp_path / "aside")
        run.deliver()
        (tmp_path / "aside").rename(tmp_path / "letters")
    lake.sql(f"REFRESH TABLE {at}")
    assert lake.table(at).where("_is_deleted").count() > 0
    run.replay()
    assert run.wrong() == ""
