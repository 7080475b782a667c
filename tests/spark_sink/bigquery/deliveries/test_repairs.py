"""Tables made anew, options that change and replays that break off, in orders that are easy to get wrong.

Without Spark: on the double, and on local-bigquery where it takes a MERGE.
"""

import errno
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from google.cloud import bigquery
from google.cloud.bigquery.table import PrimaryKey, TableConstraints

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.consumers import Consumer, find
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.bigquery.replay import replay_into
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.started_batches import StartedBatch, StartedBatches
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.bigquery.deliveries.lives import Checkpoint
from tests.spark_sink.bigquery.deliveries.trials import KilledError, MakeTrial, Sealing, ids_of, killed_at, line_of
from tests.spark_sink.bigquery.deliveries.trials import make as make
from tests.spark_sink.bigquery.test_tables import letters_of, reasons_of, remake, repaired_with_letters, replay, typed
from tests.spark_sink.spools import KEY, NAME, START, record

BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
TAGS = ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 3)
ID_NO_KEY = ColumnType("Id", '{"code":"INT64"}', False, 1)
NAME_AS_KEY = ColumnType("Name", '{"code":"STRING"}', True, 2)
CODE_AS_KEY = ColumnType("Code", '{"code":"STRING"}', True, 1)

Server = LocalBigQuery | BigQueryDouble


def with_mods(seconds: int, columns: tuple[ColumnType, ...], *mods: tuple[str, str]) -> DataChangeRecord:
    """Inserts of table Singers, by their keys' and their other values' JSON."""
    inserted = record(START + seconds * SECOND, [1], columns=columns)
    return replace(inserted, mods=tuple(Mod(keys, values, "{}") for keys, values in mods))


# Tables made anew in Spanner


def test_a_table_that_was_made_anew_with_another_key_is_stopped_and_after_the_repair_merged_by_that_key(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "merge")
    trial.maker.seal(record(START + SECOND, [1, 2]))
    trial.run()
    both = (ID_NO_KEY, NAME_AS_KEY)
    trial.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    (said,) = trial.run()
    assert "its key is (Id) in BigQuery, and would be (Name): drop the table there, and it is made anew" in said
    bigquery_double.drop(*trial.place("Singers"))
    assert replay(trial) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in trial.rows("Singers")) == [("a", 7), ("b", 7)]


def test_a_merged_load_takes_another_key_likewise(local_bigquery: LocalBigQuery, make: MakeTrial) -> None:
    trial = make(local_bigquery, "merge-load")
    trial.maker.seal(record(START + SECOND, [1, 2]))
    trial.run()
    both = (ID_NO_KEY, NAME_AS_KEY)
    trial.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    trial.run()
    assert letters_of(trial) == {"Singers": 2}
    trial.query("DROP TABLE `{}.Singers`")
    assert replay(trial) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in trial.rows("Singers")) == [("a", 7), ("b", 7)]


def test_a_table_that_was_made_anew_with_a_key_of_other_columns_goes_on_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "merge")
    trial.maker.seal(record(START + SECOND, [1, 2]))
    trial.run()
    trial.maker.seal(with_mods(2, (CODE_AS_KEY, NAME), ('{"Code":"a"}', '{"Name":"x"}')))
    (said,) = trial.run()
    assert "would be (Code)" in said
    bigquery_double.drop(*trial.place("Singers"))
    assert replay(trial) == Replayed(sent=1)
    trial.maker.seal(with_mods(3, (CODE_AS_KEY, NAME), ('{"Code":"b"}', '{"Name":"x"}')))
    assert trial.run() == ["1 rows to 1 tables"]
    assert sorted(row["Code"] for row in trial.rows("Singers")) == ["a", "b"]


def test_a_key_whose_columns_stand_in_another_order_is_the_same_key(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    columns = ColumnType("A", '{"code":"INT64"}', True, 1), ColumnType("B", '{"code":"INT64"}', True, 2)
    trial = make(bigquery_double, "merge")
    trial.maker.seal(with_mods(1, columns, ('{"A":"1","B":"2"}', "{}")))
    trial.run()

    def reordered(table: bigquery.Table) -> None:
        table.table_constraints = TableConstraints(PrimaryKey(columns=["B", "A"]), None)

    remake(trial, reordered)
    trial.maker.seal(with_mods(2, columns, ('{"A":"1","B":"3"}', "{}")))
    assert trial.run() == ["1 rows to 1 tables"]


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_column_that_comes_back_in_another_spelling_is_the_same_column(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    trial.maker.seal(record(START + SECOND, [1, 2]))
    trial.run()
    respelled = ColumnType("name", '{"code":"STRING"}', False, 3)
    trial.maker.seal(record(START + 2 * SECOND, [3], columns=(KEY, respelled), values={"name": "m"}))
    assert trial.run() == ["1 rows to 1 tables"]
    assert {row["Id"]: row["Name"] for row in trial.rows("Singers")} == {1: "n", 2: "n", 3: "m"}


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_what_was_committed_before_a_type_changed_is_written_however_far_the_sink_is_behind(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    first, second = trial.run()
    assert first == "2 rows to 1 tables"
    assert second.startswith("0 rows to 1 tables, 1 to the dead letters")
    assert ids_of(trial) == [1, 2, 3]


def test_a_float32_that_becomes_a_float64_is_read_as_one(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "append-only")
    single, double = (ColumnType("V", f'{{"code":"{code}"}}', False, 2) for code in ("FLOAT32", "FLOAT64"))
    trial.maker.seal(
        record(START + SECOND, [1], columns=(KEY, single), values={"V": 0.5}),
        record(START + 2 * SECOND, [2], columns=(KEY, double), values={"V": 0.25}),
    )
    assert trial.run() == ["2 rows to 1 tables"]
    assert {row["Id"]: row["V"] for row in trial.rows("Singers")} == {1: 0.5, 2: 0.25}


# Options and checkpoints


@pytest.mark.parametrize(("one", "two"), [("append-only", "merge"), ("merge", "append-only"), ("merge", "merge-load")])
def test_another_mode_for_tables_that_are_there_is_refused_and_the_old_one_goes_on(
    bigquery_double: BigQueryDouble, make: MakeTrial, one: str, two: str
) -> None:
    trial = make(bigquery_double, one)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    trial.mode = two
    seal([2])
    assert f"was made for mode {one}. Choose another sink.dataset or sink.prefix for this mode" in line_of(trial)
    trial.mode = one
    seal([3])
    trial.run()
    assert (ids_of(trial), letters_of(trial)) == ([1, 2, 3], {})


def test_tables_of_another_mode_are_known_without_the_spool_that_made_them(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    trial.maker.seal(record(START + SECOND, [1]))
    trial.run()
    other = make(bigquery_double, "merge")
    other.dataset = trial.dataset
    other.maker.seal(record(START + SECOND, [1]))
    assert "was made in another mode: its datastream_metadata has other fields" in line_of(other)


def test_an_older_checkpoint_of_spark_is_refused_with_what_helps(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    older = Checkpoint(list(trial.checkpoint.offsets), trial.checkpoint.done)
    for number in (2, 3):
        seal([number])
        trial.run()
    trial.run()
    trial.checkpoint = older
    with trial.life() as life, pytest.raises(SpoolError, match=r"older copy: remove it, and the sink goes on"):
        life.run()
    trial.checkpoint = Checkpoint([])
    seal([4])
    trial.run()
    assert ids_of(trial) == [1, 2, 3, 4]


def test_what_was_sealed_before_a_batch_that_was_begun_is_not_one_batch_across_a_change(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1], values={"Name": "abcd"})
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    StartedBatches(trial.maker.spool, "bigquery").begin(StartedBatch(first=3, last=3, pinned="{}"), done=2)
    said = trial.run()
    assert said[0] == "1 rows to 1 tables"
    assert ids_of(trial) == [1]


def test_an_error_of_the_disk_that_passes_does_not_end_a_sink_that_starts(
    bigquery_double: BigQueryDouble, make: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2])
    failures = [OSError(errno.ESTALE, "stale")]

    def failing(spool: Spool, consumer: str) -> Consumer | None:
        if failures:
            raise failures.pop()
        return find(spool, consumer)

    monkeypatch.setattr("spark_sink.sink.sink_stream.find", failing)
    trial.run()
    trial.run()
    assert (failures, ids_of(trial)) == ([], [1, 2])


def test_a_mode_that_the_reason_recommends_may_be_taken_for_a_table_that_was_never_made(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "merge")
    columns = (ColumnType("V", '{"code":"FLOAT64"}', True, 1), NAME)
    trial.maker.seal(with_mods(1, columns, ('{"V":0.5}', '{"Name":"n"}')))
    (said,) = trial.run()
    assert "which has no such keys: take mode append-only" in said
    trial.mode = "append-only"
    assert replay(trial) == Replayed(sent=1)
    trial.maker.seal(with_mods(2, columns, ('{"V":0.75}', '{"Name":"n"}')))
    assert trial.run() == ["1 rows to 1 tables"]
    assert [row["V"] for row in trial.rows("Singers")] == [0.5, 0.75]


# Letters and their replays


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_table_whose_type_is_changed_back_goes_on_without_a_repair(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    seal([3], values={"Name": "back"})
    trial.run()
    assert replay(trial) == Replayed(sent=1, refused=1)
    seal([4])
    trial.run()
    assert ids_of(trial) == [1, 3, 4]


def test_a_column_that_is_added_while_a_table_is_stopped_is_merged_by_the_replay(
    local_bigquery: LocalBigQuery, make: MakeTrial
) -> None:
    trial = make(local_bigquery, "merge-load")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    trial.run()
    seal([3], columns=(KEY, BYTES, TAGS), values={"Name": "aGk=", "Tags": ["a"]})
    trial.run()
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    assert replay(trial) == Replayed(sent=2)
    seal([4], columns=(KEY, BYTES, TAGS), values={"Name": "aGk="})
    trial.run()
    assert ids_of(trial) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_letters_of_a_dataset_that_was_taken_later_go_by_what_was_met_there(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    trial.options["dataset"] = "{}_later"
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([2], columns=(KEY, NAME, TAGS), values={"Name": "bad", "Tags": ["a"]})
    trial.run()
    bigquery_double.take_all()
    assert replay(trial) == Replayed(sent=1)


def test_letters_of_a_record_that_knows_no_schemas_are_read_each_by_its_own(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], values={"Name": "bad"})
    seal([2], columns=(KEY, NAME, TAGS), values={"Name": "bad", "Tags": ["a"]})
    trial.run()
    bigquery_double.take_all()
    path = Path(trial.maker.path, "consumers", "bigquery.tables")
    document = orjson.loads(path.read_bytes())
    for table in document["tables"].values():
        del table["schema_key"], table["mode"]
    path.write_bytes(orjson.dumps(document))
    assert replay(trial) == Replayed(sent=2)
    assert ids_of(trial) == [1, 2]


def test_a_row_that_a_second_attempt_takes_leaves_no_letter_of_the_first(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    bigquery_double.refuse("Name", "n", "this is no name")
    Sealing(trial)([1])
    with trial.life() as life:
        life.plan()
        (task,) = life.tasks()
        list(life.told(task))
        assert letters_of(trial) == {"Singers": 1}
        bigquery_double.take_all()
        life.deliver(list(life.told(task)))
        life.checkpoint.done = True
    trial.run()
    assert (ids_of(trial), letters_of(trial)) == ([1], {})


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_a_tasks_second_attempt_that_is_killed_leaves_the_letters_of_the_first(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    columns = (KEY, TAGS)
    trial.maker.seal(
        record(START + SECOND, [1], columns=columns, values={"Tags": ["a"]}),
        record(START + 2 * SECOND, [2], columns=columns, values={"Tags": [None]}),
    )
    with trial.life() as life:
        life.plan()
        (task,) = life.tasks()
        counts = list(life.told(task))
        with killed_at(DeadLetters, "put"), pytest.raises(KilledError):
            list(life.told(task))
        life.deliver(counts)
        life.checkpoint.done = True
    trial.run()
    assert (ids_of(trial), letters_of(trial)) == ([1], {"Singers": 1})


def test_letters_of_a_replay_that_was_killed_are_merged_though_options_have_changed_since(
    local_bigquery: LocalBigQuery, make: MakeTrial
) -> None:
    trial = make(local_bigquery, "merge-load")
    trial.maker.seal(record(START + SECOND, [1], columns=(KEY, NAME, TAGS), values={"Name": "n", "Tags": ["a"]}))
    trial.run()
    columns = (KEY, BYTES, TAGS)
    trial.maker.seal(
        record(START + 2 * SECOND, [2], columns=columns, values={"Name": "aGk=", "Tags": ["a"]}),
        record(START + 3 * SECOND, [3], columns=columns, values={"Name": "aGk=", "Tags": [None]}),
    )
    trial.run()
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        replay(trial)
    assert replay(trial, arrays="json") == Replayed(refused=2), "told to rename it"
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    assert replay(trial, arrays="json") == Replayed(sent=2)
    assert (ids_of(trial), letters_of(trial)) == ([1, 2, 3], {})


def test_a_replay_goes_by_what_the_sink_has_met_and_not_by_what_is_sealed(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1], columns=(KEY, NAME, TAGS), values={"Name": "n", "Tags": [None]})
    trial.run()
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert replay(trial) == Replayed(refused=1)
    trial.run()
    assert ids_of(trial) == [2, 3]


def test_letters_of_partial_rows_stay_and_hold_up_no_others(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "merge")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    remake(trial, typed("Name", "INT64"))
    partial = record(START + 60 * SECOND, [1], mod_type="UPDATE")
    trial.maker.seal(replace(partial, value_capture_type="NEW_VALUES"), record(START + 61 * SECOND, [2]))
    trial.run()
    remake(trial, typed("Name", ""))
    assert replay(trial) == Replayed(sent=1, refused=1)
    (reason,) = reasons_of(trial)
    assert "has an update without the columns that did not change" in reason
    assert ids_of(trial) == [2]


def test_letters_of_a_former_spool_are_sent(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    former = make(bigquery_double, "append-only")
    seal = Sealing(former)
    for number in (1, 2, 3):
        seal([number])
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([4], values={"Name": "bad"})
    former.run()
    bigquery_double.take_all()
    trial = make(bigquery_double, "append-only")
    trial.dataset = former.dataset
    trial.maker.seal(record(START + 60 * SECOND, [5]))
    trial.run()
    place = DeadLetters(str(former.letters))
    with replay_into(trial.config(dead_letters=str(former.letters))) as into:
        assert replayed(place, place.files(), into, []) == Replayed(sent=1)
    assert ids_of(trial) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_letters_whose_schema_the_spool_does_not_have_stay_and_hold_up_no_others(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    former = make(bigquery_double, "append-only")
    former.maker.seal(record(START + 1, [1]), record(START + 2, [2], columns=(KEY, BYTES), values={}))
    trial = make(bigquery_double, mode)
    trial.maker.seal(record(START + 60 * SECOND, [5]))
    trial.run()
    place = DeadLetters(str(trial.letters))
    batches = [batch for file in former.maker.spool.manifest(1).files for batch in former.maker.spool.batches(file)]
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    place.put("Singers", f"{former.maker.spool_id}_1_0", rows, ["x", "x"])
    place.put("Singers", f"{former.maker.spool_id}_2_0", rows.slice(1), ["x"])
    assert replay(trial) == Replayed(sent=1, refused=2)
    assert ids_of(trial) == [1, 5]
    (reason,) = reasons_of(trial)
    assert reason.startswith(f"the spool at {trial.maker.path} does not have the schema that its row was written with")


def test_letters_that_were_all_refused_again_are_sent_by_the_first_replay_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], values={"Name": "bad"})
    trial.run()
    with killed_at(DeadLetters, "replace", after=True), pytest.raises(KilledError):
        replay(trial)
    bigquery_double.take_all()
    assert replay(trial) == Replayed(sent=1)
    assert ids_of(trial) == [1]


@pytest.mark.parametrize("after", [False, True])
def test_a_replay_into_another_dataset_sends_what_a_killed_one_had_sent_to_the_first(
    bigquery_double: BigQueryDouble, make: MakeTrial, after: bool
) -> None:
    trial = make(bigquery_double, "append-only")
    repaired_with_letters(trial, [2, 3])
    with killed_at(BigQueryWriter, "commit", after=after), pytest.raises(KilledError):
        replay(trial)
    assert replay(trial, dataset="{}_other") == Replayed(sent=2)
    assert sorted(row["Id"] for row in bigquery_double.rows(f"{trial.dataset}_other", "Singers")) == [2, 3]


def test_a_table_that_a_replay_has_let_go_on_is_not_told_as_stopped(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "merge")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    remake(trial, typed("Name", "INT64"))
    seal([2])
    trial.run()
    assert list(report_of(trial.maker.spool, "bigquery").stopped) == ["Singers"]
    remake(trial, typed("Name", ""))
    replay(trial)
    assert report_of(trial.maker.spool, "bigquery").stopped == {}


def test_a_merged_loads_letter_that_is_overtaken_stays_and_says_so(
    local_bigquery: LocalBigQuery, make: MakeTrial
) -> None:
    trial = make(local_bigquery, "merge-load")
    seal = Sealing(trial)
    columns = (KEY, NAME, TAGS)
    seal([1], columns=columns, values={"Name": "n", "Tags": ["a"]})
    trial.run()
    seal([2, 3], columns=columns, values={"Name": "n", "Tags": [None]})
    trial.run()
    seal([2], columns=(KEY, TAGS), values={"Tags": ["b"]}, mod_type="UPDATE")
    trial.run()
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    trial.query("ALTER TABLE `{}.Singers` ADD COLUMN Tags JSON")
    trial.options["arrays"] = "json"
    assert replay(trial) == Replayed(sent=1, refused=1)
    assert reasons_of(trial) == {"later changes of its row are in the table: see what it lacks, and remove this letter"}
    assert sorted((row["Id"], row["Name"]) for row in trial.rows("Singers")) == [(1, "n"), (2, None), (3, "n")]
