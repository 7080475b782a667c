"""Dead letters of rows are replayed once, and never bring back what the source no longer has."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.config.sections import SpoolConfig
from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.spool.consumers import record as record_consumer
from connector.spool.reading import Spool
from spark_sink.dead_letters_command import Replayed
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import Format, Mode, TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink, appended, stop_singers
from tests.spark_sink.sinks.tables.changes import keyed_change
from tests.spark_sink.sinks.tables.reading import sealed, target
from tests.spark_sink.sinks.tables.rejected.ages import AGE, BAD, WHY, edit, made, mend, merged
from tests.spark_sink.sinks.tables.repairs.sealing import sealed_repair
from tests.spark_sink.spools import KEY, START


@pytest.fixture(params=["parquet"])
def sink(lake: SparkSession, tmp_path: Path) -> Sink:
    """Into Parquet."""
    return Sink(lake, tmp_path, format="parquet", mode="append")


def reasons(sink: Sink) -> list[str]:
    return sorted(why for file in sink.store.files() for why in file.reasons)


@pytest.mark.long
def test_a_micro_batch_that_is_repeated_with_other_bounds_has_each_dead_letter_once(sink: Sink) -> None:
    """As after a kill, if the sink is forgotten then."""
    for at, key in enumerate((1, 2, 3), 1):
        sink.maker.seal(made(at, key, BAD))
    with killed_at(TablesWriter, "_append", call=2), pytest.raises(KilledError):
        sink.deliver(1, 3)
    assert sink.letters() == 3, "before the second attempt, without them"
    sink.restart()
    sink.deliver(1, 2)
    sink.maker.seal(made(4, 4, BAD))
    sink.deliver(3, 4)
    assert sink.letters() == 4
    mend(sink)
    assert sink.replay() == Replayed(sent=4)
    assert appended(sink, "Singers") == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("payload", ['{"Id":"1"', "[]", '{"Age":"5"}'], ids=["broken", "no object", "no key"])
def test_a_payload_that_was_damaged_by_hand_is_rejected_alone(sink: Sink, payload: str) -> None:
    sink.maker.seal(made(1, 1, BAD), made(2, 2, BAD))
    sink.deliver(1)
    edit(sink, lambda one: payload if '"Id":"1"' in one else one.replace(BAD, "5"))
    assert sink.replay() == Replayed(sent=1, rejected=1)
    assert appended(sink, "Singers") == [(2, 1)]
    assert reasons(sink) == ["its payload is no JSON object with the key of table Singers: mend it, or remove it"]


def test_an_event_without_its_epoch_ends_the_replay_with_one_line_and_stays(sink: Sink) -> None:
    sink.maker.seal(made(1, 1, BAD))
    sink.deliver(1)
    (path,) = Path(sink.store.root).rglob("*.jsonl")
    path.write_text(path.read_text().replace(',"epoch":1}', "}"))
    with pytest.raises(SinkError, match=r"an event has no epoch. Mend it, or remove its line"):
        sink.replay()
    assert sink.letters() == 1


@pytest.mark.long
def test_a_stopped_table_continues_without_its_rows_that_cannot_be_written(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected before it was stopped, and among the changes that it was stopped with."""
    sink.maker.seal(made(1, 1, BAD))
    sink.deliver(1)
    for at, age in ((2, "2"), (3, BAD), (4, "4")):
        sink.maker.seal(made(at, at, age))
    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "table", stop_singers)
        for epoch in (2, 3):
            sink.deliver(epoch)
    assert sink.replay() == Replayed(sent=1, rejected=2)
    assert appended(sink, "Singers") == [(2, 2)]
    assert (sink.letters(), reasons(sink), sink.stopped) == (2, [WHY, WHY], {})
    assert sink.deliver(4) == "1 events to 1 tables", "it is no longer stopped"
    mend(sink)
    assert sink.replay() == Replayed(sent=2)
    assert appended(sink, "Singers") == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.long
def test_a_stopped_table_needs_no_old_values_of_its_deletes(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that cannot be merged is a dead letter, until a DELETE makes it useless."""
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(*(made(1, key, "1") for key in (1, 2, 3)))
    sink.deliver(1)
    sink.maker.seal(made(2, 1, BAD, "DELETE"), made(2, 2, BAD, "UPDATE"), made(2, 4, "4"))
    sink.maker.seal(made(3, 2, BAD, "DELETE"))
    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "table", stop_singers)
        for epoch in (2, 3):
            sink.deliver(epoch)
    assert sink.replay() == Replayed(sent=3, rejected=1)
    assert merged(lake, tmp_path / "lake", merging_format) == {3: 1, 4: 4}
    assert sink.stopped == {}
    mend(sink)
    sink.replay()
    assert merged(lake, tmp_path / "lake", merging_format) == {3: 1, 4: 4}
    assert sink.letters() == 0


@pytest.mark.long
def test_a_dead_letter_that_a_stopped_table_gets_with_its_delete_does_not_come_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill before the commit, if the micro-batch is repeated with other bounds, and stops the table."""
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(made(1, 1, "1"), made(2, 2, BAD))
    sink.maker.seal(made(3, 2, BAD, "DELETE"))
    with killed_at(TablesWriter, "_merge", call=2), pytest.raises(KilledError):
        sink.deliver(1)
    assert sink.letters() == 1
    sink.restart()
    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "table", stop_singers)
        sink.deliver(1, 2)
    mend(sink)
    assert sink.replay() == Replayed(sent=4)
    assert merged(lake, tmp_path / "lake", merging_format) == {1: 1}


@pytest.mark.long
def test_a_row_that_is_deleted_while_its_dead_letter_is_not_found_does_not_come_back(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """As on a volume that is not mounted when the sink starts."""
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(made(1, 1, "1"), made(2, 2, BAD))
    sink.deliver(1)
    (tmp_path / "letters").rename(tmp_path / "aside")
    sink.restart()
    sink.maker.seal(made(3, 2, BAD, "DELETE"))
    sink.deliver(2)
    (tmp_path / "aside").rename(tmp_path / "letters")
    sink.restart()
    mend(sink)
    assert sink.replay() == Replayed(sent=1)
    assert merged(lake, tmp_path / "lake", merging_format) == {1: 1}


@pytest.mark.long
def test_a_damaged_payload_keeps_later_changes_of_its_table_waiting(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """Its row is not known, and an UPDATE that lacks columns may follow it."""
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(made(1, 1, "1"), made(1, 2, BAD), made(2, 2, None, "UPDATE", "OLD_AND_NEW_VALUES"))
    sink.deliver(1)
    edit(sink, lambda one: one.replace(BAD, "5")[:-1] if BAD in one else one)
    assert sink.replay() == Replayed(rejected=2)
    edit(sink, lambda one: one if one.endswith("}") else f"{one}}}")
    assert sink.replay() == Replayed(sent=2)
    assert merged(lake, tmp_path / "lake", merging_format) == {1: 1, 2: 5}


@pytest.mark.long
def test_old_values_that_cannot_be_cast_are_left_out_of_an_appended_delete(sink: Sink) -> None:
    sink.maker.seal(made(1, 1, "1"), made(1, 2, "2"), made(2, 1, BAD, "DELETE"), made(2, 2, "2", "DELETE"))
    assert sink.deliver(1) == "4 events to 1 tables"
    rows = sink.lake.read.parquet(str(sink.path / "Singers")).where("_is_deleted").collect()
    found = {row["Id"]: (row["Age"], sorted(row["_present"])) for row in rows}
    assert found == {1: (None, ["Id"]), 2: (2, ["Age", "Id"])}


OTHER = (ColumnType("Age", AGE.type, True, 1), ColumnType("Id", KEY.type, False, 2))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["merge", "history"])
def test_a_dead_letter_of_a_table_that_was_created_again_with_another_key_is_not_written(
    lake: SparkSession, merging_format: Format, tmp_path: Path, mode: Mode
) -> None:
    sink = Sink(lake, tmp_path, format=merging_format, mode=mode)
    sink.maker.seal(made(1, 1, "1"), made(1, 2, BAD))
    sink.deliver(1)
    sink.maker.seal(keyed_change(5, OTHER, {"Age": "7"}, {"Id": "70"}))
    sink.path = tmp_path / "renamed"
    renamed = sink.config.sink.model_copy(update={"path": str(sink.path)})
    sink.config = sink.config.model_copy(update={"sink": renamed})
    sink.restart()
    sink.deliver(2)
    mend(sink, "9")
    assert sink.replay() == Replayed(rejected=1)
    table = lake.table(target(sink.path, merging_format))
    assert [(row["Age"], row["Id"]) for row in table.collect()] == [(7, 70)]
    assert reasons(sink) == [
        "table Singers was created again with another key, and no row has the former one: remove it"
    ]


def repaired(sink: Sink, own: Spool, epoch: int) -> str:
    """The sink delivers an epoch of a repair."""
    config = sink.config.model_copy(update={"spool": SpoolConfig(path=own.path)})
    assert isinstance(config.sink, TablesConfig)
    said = TablesDelivery(config, config.sink, Feed.at(own.path)).run(sealed(sink.lake, own, epoch, epoch))
    record_consumer(own, "tables", epoch, now=START)
    return said


@pytest.mark.long
def test_a_row_that_a_repair_deletes_does_not_come_back_by_an_earlier_dead_letter(
    lake: SparkSession, merging_format: Format, tmp_path: Path
) -> None:
    """As after a gap, in which its DELETE was lost."""
    sink = Sink(lake, tmp_path, format=merging_format)
    sink.maker.seal(*(made(1, key, "1") for key in (1, 2)))
    sink.deliver(1)
    sink.maker.seal(made(2, 1, BAD, "UPDATE"), made(2, 2, BAD, "UPDATE"))
    sink.deliver(2)
    own = sealed_repair(sink.maker, START + 10 * SECOND, {3: "n"}, [1])
    assert repaired(sink, own, 1) == "1 events to 1 tables", "the DELETE is written, and no rejected row"
    assert merged(lake, tmp_path / "lake", merging_format) == {2: 1}
    assert sink.letters() == 3
    mend(sink)
    assert sink.replay() == Replayed(sent=3)
    assert merged(lake, tmp_path / "lake", merging_format) == {2: 5}
