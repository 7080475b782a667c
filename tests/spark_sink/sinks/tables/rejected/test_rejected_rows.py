"""A row that a table cannot take becomes a dead letter, alone; a replay writes it once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from connector.spool.sink_report import report_of
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.formats.parquet import ParquetStore
from spark_sink.sinks.tables.formats.session import session_options
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.rejected import rejected_rows
from spark_sink.sources.changes.offsets import Offset
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink, appended, stop_singers
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.rejected.ages import BAD, WHY, made, mend, merged


@pytest.fixture(params=["parquet"])
def sink(lake: SparkSession, tmp_path: Path) -> Sink:
    """Into Parquet: one row of three cannot be written, and Albums has a change, too."""
    sink = Sink(lake, tmp_path, format="parquet", mode="append")
    sink.maker.seal(made(1, 1, "1"), made(2, 2, BAD), made(3, 3, "3"), change(4, [1], table="Albums"))
    return sink


@contextmanager
def killed_after_dead_letters(sink: Sink) -> Iterator[None]:
    """Kills the sink between the dead letters of Singers and its commit."""
    original = ParquetStore.append

    def append(store: ParquetStore, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        if name == "Singers" and sink.letters():
            raise KilledError
        original(store, rows, name, first, last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetStore, "append", append)
        yield


def test_a_row_that_cannot_be_appended_is_a_dead_letter_alone_and_is_replayed_once(
    sink: Sink,
) -> None:
    said = sink.deliver(1)
    assert said == f"3 events to 2 tables, 1 to the dead letters at {sink.store.root}; Singers: {WHY}"
    assert appended(sink, "Singers") == [(1, 1), (3, 1)]
    assert appended(sink, "Albums") == [(1, 1)]
    assert (sink.stopped, sink.letters(), report_of(sink.spool, "tables").refused) == ({}, 1, 1)
    (file,) = sink.store.files()
    assert file.reasons == {WHY: 1}
    assert file.name == f"{sink.spool.header().spool_id}_rows_{1:016d}_{1:016d}_0000"
    assert sink.replay() == Replayed(rejected=1)
    assert sink.letters() == 1
    mend(sink)
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        sink.replay()
    assert appended(sink, "Singers") == [(1, 1), (2, 1), (3, 1)]
    assert sink.replay() == Replayed(sent=1)
    assert appended(sink, "Singers") == [(1, 1), (2, 1), (3, 1)], "each once, though the replay was killed"
    sink.maker.seal(made(5, 4, "4"))
    sink.deliver(2)
    assert appended(sink, "Singers") == [(1, 1), (2, 1), (3, 1), (4, 2)]


@pytest.mark.long
def test_a_sink_that_is_killed_between_its_dead_letters_and_its_commit_writes_the_same_ones_again(sink: Sink) -> None:
    with killed_after_dead_letters(sink), pytest.raises(KilledError):
        sink.deliver(1)
    assert sink.letters() == 1, "before the commit of the others"
    sink.restart()
    assert "1 to the dead letters" in sink.deliver(1)
    assert sink.letters() == 1
    sink.restart()
    assert "1 to the dead letters" in sink.deliver(1), "also of a table that has the micro-batch already"
    assert (sink.letters(), report_of(sink.spool, "tables").refused) == (1, 1)
    assert appended(sink, "Singers") == [(1, 1), (3, 1)]
    mend(sink)
    assert sink.replay() == Replayed(sent=1)
    assert appended(sink, "Singers") == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.long
def test_the_store_is_searched_once_while_no_row_is_rejected(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    original = DeadLetters._found

    def found(store: DeadLetters, beginning: str = "") -> object:
        searched.append(beginning)
        return original(store, beginning)

    monkeypatch.setattr(DeadLetters, "_found", found)
    for at in (1, 2, 3):
        sink.maker.seal(change(10 + at, [at], table="Albums"))
    counts = []
    for epoch in (2, 3, 4):
        sink.deliver(epoch)
        counts.append(len(searched))
    assert counts == [2, 2, 2], "by the first micro-batch of the process: for stopped tables, and for rejected rows"


@pytest.mark.long
def test_a_session_without_ansi_writes_no_null_instead_of_a_value(sink: Sink) -> None:
    with session_options(sink.lake, {"spark.sql.ansi.enabled": "false"}):
        sink.deliver(1)
    assert sink.letters() == 1
    assert appended(sink, "Singers") == [(1, 1), (3, 1)]


@pytest.mark.long
def test_a_table_with_too_many_rejected_rows_is_stopped(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected_rows, "MOST", 1)
    sink.deliver(1)
    sink.maker.seal(made(5, 5, BAD), change(6, [2], table="Albums"))
    sink.deliver(2)
    assert "table Singers has more than 1 rows that cannot be written" in sink.stopped["Singers"]
    assert len(appended(sink, "Albums")) == 2
    assert sink.letters() == 2


@pytest.mark.long
def test_a_dead_letter_of_a_row_that_is_in_one_of_its_stopped_table_is_written_once(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill before the commit, where the table cannot be written when the micro-batch is repeated."""
    with killed_after_dead_letters(sink), pytest.raises(KilledError):
        sink.deliver(1)
    sink.restart()
    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "table", stop_singers)
        sink.deliver(1)
        assert list(sink.stopped) == ["Singers"]
        assert sink.letters() == 4
        assert sink.replay() == Replayed(rejected=4)
        assert {why for file in sink.store.files() for why in file.reasons} == {"it is to be mended first"}
    mend(sink)
    assert sink.replay() == Replayed(sent=4)
    assert appended(sink, "Singers") == [(1, 1), (2, 1), (3, 1)]
    assert sink.stopped == {}


@pytest.mark.long
def test_merged_rows_are_those_of_the_source_but_for_the_dead_letters(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """Whole rows: a later one is written, and a replay writes what is newer than the table alone."""
    sink = Sink(lake, tmp_path, format=merging_format)
    path = tmp_path / "lake"
    sink.maker.seal(*(made(1, key, "1") for key in range(1, 7)))
    sink.deliver(1)
    sink.maker.seal(
        *(made(2, key, BAD, "UPDATE") for key in (1, 2, 3)),
        made(2, 4, BAD, "DELETE"),
        made(2, 5, "2", "UPDATE"),
        made(2, 7, BAD),
        made(3, 7, BAD, "DELETE"),
    )
    said = sink.deliver(2)
    assert f"4 to the dead letters at {sink.store.root}; Singers: {WHY}" in said, "the DELETE of 7 is written"
    assert sink.stopped == {}
    assert merged(lake, path, merging_format) == {1: 1, 2: 1, 3: 1, 5: 2, 6: 1}
    sink.restart()
    sink.maker.seal(made(4, 2, "4", "UPDATE"), made(4, 3, BAD, "DELETE"))
    sink.deliver(3)
    assert merged(lake, path, merging_format) == {1: 1, 2: 4, 5: 2, 6: 1}
    assert sink.replay().rejected == 2, "those of 1 and of 2"
    mend(sink)
    assert sink.replay() == Replayed(sent=2)
    assert merged(lake, path, merging_format) == {1: 5, 2: 4, 5: 2, 6: 1}
    sink.maker.seal(made(5, 3, "5"), made(5, 1, "6", "UPDATE"))
    sink.deliver(4)
    assert merged(lake, path, merging_format) == {1: 6, 2: 4, 3: 5, 5: 2, 6: 1}
