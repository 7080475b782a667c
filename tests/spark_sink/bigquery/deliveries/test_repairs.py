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
from spark_sink.bigquery.writing.writer import BigQueryWriter
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.started_batches import StartedBatch, StartedBatches
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.bigquery.deliveries.runs import Checkpoint
from tests.spark_sink.bigquery.deliveries.scenarios import (
    KilledError,
    MakeScenario,
    Sealing,
    ids_of,
    killed_at,
    line_of,
)
from tests.spark_sink.bigquery.deliveries.scenarios import make as make
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
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    scenario.run()
    both = (ID_NO_KEY, NAME_AS_KEY)
    scenario.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    (said,) = scenario.run()
    assert "its key is (Id) in BigQuery, and would be (Name): drop the table there, and it is created again" in said
    bigquery_double.drop(*scenario.place("Singers"))
    assert replay(scenario) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in scenario.rows("Singers")) == [("a", 7), ("b", 7)]


def test_a_merged_load_takes_another_key_likewise(local_bigquery: LocalBigQuery, make: MakeScenario) -> None:
    scenario = make(local_bigquery, "merge-load")
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    scenario.run()
    both = (ID_NO_KEY, NAME_AS_KEY)
    scenario.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    scenario.run()
    assert letters_of(scenario) == {"Singers": 2}
    scenario.query("DROP TABLE `{}.Singers`")
    assert replay(scenario) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in scenario.rows("Singers")) == [("a", 7), ("b", 7)]


def test_a_table_that_was_made_anew_with_a_key_of_other_columns_goes_on_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    scenario.run()
    scenario.maker.seal(with_mods(2, (CODE_AS_KEY, NAME), ('{"Code":"a"}', '{"Name":"x"}')))
    (said,) = scenario.run()
    assert "would be (Code)" in said
    bigquery_double.drop(*scenario.place("Singers"))
    assert replay(scenario) == Replayed(sent=1)
    scenario.maker.seal(with_mods(3, (CODE_AS_KEY, NAME), ('{"Code":"b"}', '{"Name":"x"}')))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert sorted(row["Code"] for row in scenario.rows("Singers")) == ["a", "b"]


def test_a_key_whose_columns_stand_in_another_order_is_the_same_key(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    columns = ColumnType("A", '{"code":"INT64"}', True, 1), ColumnType("B", '{"code":"INT64"}', True, 2)
    scenario = make(bigquery_double, "merge")
    scenario.maker.seal(with_mods(1, columns, ('{"A":"1","B":"2"}', "{}")))
    scenario.run()

    def reordered(table: bigquery.Table) -> None:
        table.table_constraints = TableConstraints(PrimaryKey(columns=["B", "A"]), None)

    remake(scenario, reordered)
    scenario.maker.seal(with_mods(2, columns, ('{"A":"1","B":"3"}', "{}")))
    assert scenario.run() == ["1 rows to 1 tables"]


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_column_that_comes_back_in_another_spelling_is_the_same_column(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    scenario.run()
    respelled = ColumnType("name", '{"code":"STRING"}', False, 3)
    scenario.maker.seal(record(START + 2 * SECOND, [3], columns=(KEY, respelled), values={"name": "m"}))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert {row["Id"]: row["Name"] for row in scenario.rows("Singers")} == {1: "n", 2: "n", 3: "m"}


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_what_was_committed_before_a_type_changed_is_written_however_far_the_sink_is_behind(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    first, second = scenario.run()
    assert first == "2 rows to 1 tables"
    assert second.startswith("0 rows to 1 tables, 1 to the dead letters")
    assert ids_of(scenario) == [1, 2, 3]


def test_a_float32_that_becomes_a_float64_is_read_as_one(bigquery_double: BigQueryDouble, make: MakeScenario) -> None:
    scenario = make(bigquery_double, "append-only")
    single, double = (ColumnType("V", f'{{"code":"{code}"}}', False, 2) for code in ("FLOAT32", "FLOAT64"))
    scenario.maker.seal(
        record(START + SECOND, [1], columns=(KEY, single), values={"V": 0.5}),
        record(START + 2 * SECOND, [2], columns=(KEY, double), values={"V": 0.25}),
    )
    assert scenario.run() == ["2 rows to 1 tables"]
    assert {row["Id"]: row["V"] for row in scenario.rows("Singers")} == {1: 0.5, 2: 0.25}


# Options and checkpoints


@pytest.mark.parametrize(("one", "two"), [("append-only", "merge"), ("merge", "append-only"), ("merge", "merge-load")])
def test_another_mode_for_tables_that_are_there_is_refused_and_the_old_one_goes_on(
    bigquery_double: BigQueryDouble, make: MakeScenario, one: str, two: str
) -> None:
    scenario = make(bigquery_double, one)
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    scenario.mode = two
    seal([2])
    assert f"was made for mode {one}. Choose another sink.dataset or sink.prefix for this mode" in line_of(scenario)
    scenario.mode = one
    seal([3])
    scenario.run()
    assert (ids_of(scenario), letters_of(scenario)) == ([1, 2, 3], {})


def test_tables_of_another_mode_are_known_without_the_spool_that_made_them(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    scenario.maker.seal(record(START + SECOND, [1]))
    scenario.run()
    other = make(bigquery_double, "merge")
    other.dataset = scenario.dataset
    other.maker.seal(record(START + SECOND, [1]))
    assert "was made in another mode: its datastream_metadata has other fields" in line_of(other)


def test_an_older_checkpoint_of_spark_is_refused_with_what_helps(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    older = Checkpoint(list(scenario.checkpoint.offsets), scenario.checkpoint.done)
    for number in (2, 3):
        seal([number])
        scenario.run()
    scenario.run()
    scenario.checkpoint = older
    with scenario.sink() as sink, pytest.raises(SpoolError, match=r"older copy: remove it, and the sink goes on"):
        sink.run()
    scenario.checkpoint = Checkpoint([])
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [1, 2, 3, 4]


def test_what_was_sealed_before_a_batch_that_was_begun_is_not_one_batch_across_a_change(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1], values={"Name": "abcd"})
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    StartedBatches(scenario.maker.spool, "bigquery").begin(StartedBatch(first=3, last=3, pinned="{}"), done=2)
    said = scenario.run()
    assert said[0] == "1 rows to 1 tables"
    assert ids_of(scenario) == [1]


def test_an_error_of_the_disk_that_passes_does_not_end_a_sink_that_starts(
    bigquery_double: BigQueryDouble, make: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    seal([2])
    failures = [OSError(errno.ESTALE, "stale")]

    def failing(spool: Spool, consumer: str) -> Consumer | None:
        if failures:
            raise failures.pop()
        return find(spool, consumer)

    monkeypatch.setattr("spark_sink.sink.sink_stream.find", failing)
    scenario.run()
    scenario.run()
    assert (failures, ids_of(scenario)) == ([], [1, 2])


def test_a_mode_that_the_reason_recommends_may_be_taken_for_a_table_that_was_never_made(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    columns = (ColumnType("V", '{"code":"FLOAT64"}', True, 1), NAME)
    scenario.maker.seal(with_mods(1, columns, ('{"V":0.5}', '{"Name":"n"}')))
    (said,) = scenario.run()
    assert "which has no such keys: take mode append-only" in said
    scenario.mode = "append-only"
    assert replay(scenario) == Replayed(sent=1)
    scenario.maker.seal(with_mods(2, columns, ('{"V":0.75}', '{"Name":"n"}')))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert [row["V"] for row in scenario.rows("Singers")] == [0.5, 0.75]


# Letters and their replays


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_table_whose_type_is_changed_back_goes_on_without_a_repair(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    seal([3], values={"Name": "back"})
    scenario.run()
    assert replay(scenario) == Replayed(sent=1, refused=1)
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [1, 3, 4]


def test_a_column_that_is_added_while_a_table_is_stopped_is_merged_by_the_replay(
    local_bigquery: LocalBigQuery, make: MakeScenario
) -> None:
    scenario = make(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    scenario.run()
    seal([3], columns=(KEY, BYTES, TAGS), values={"Name": "aGk=", "Tags": ["a"]})
    scenario.run()
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    assert replay(scenario) == Replayed(sent=2)
    seal([4], columns=(KEY, BYTES, TAGS), values={"Name": "aGk="})
    scenario.run()
    assert ids_of(scenario) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_letters_of_a_dataset_that_was_taken_later_go_by_what_was_met_there(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    scenario.options["dataset"] = "{}_later"
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([2], columns=(KEY, NAME, TAGS), values={"Name": "bad", "Tags": ["a"]})
    scenario.run()
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=1)


def test_letters_of_a_record_that_knows_no_schemas_are_read_each_by_its_own(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], values={"Name": "bad"})
    seal([2], columns=(KEY, NAME, TAGS), values={"Name": "bad", "Tags": ["a"]})
    scenario.run()
    bigquery_double.take_all()
    path = Path(scenario.maker.path, "consumers", "bigquery.tables")
    document = orjson.loads(path.read_bytes())
    for table in document["tables"].values():
        del table["schema_key"], table["mode"]
    path.write_bytes(orjson.dumps(document))
    assert replay(scenario) == Replayed(sent=2)
    assert ids_of(scenario) == [1, 2]


def test_a_row_that_a_second_attempt_takes_leaves_no_letter_of_the_first(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    bigquery_double.refuse("Name", "n", "this is no name")
    Sealing(scenario)([1])
    with scenario.sink() as sink:
        sink.plan()
        (task,) = sink.tasks()
        list(sink.reports(task))
        assert letters_of(scenario) == {"Singers": 1}
        bigquery_double.take_all()
        sink.deliver(list(sink.reports(task)))
        sink.checkpoint.done = True
    scenario.run()
    assert (ids_of(scenario), letters_of(scenario)) == ([1], {})


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_a_tasks_second_attempt_that_is_killed_leaves_the_letters_of_the_first(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    columns = (KEY, TAGS)
    scenario.maker.seal(
        record(START + SECOND, [1], columns=columns, values={"Tags": ["a"]}),
        record(START + 2 * SECOND, [2], columns=columns, values={"Tags": [None]}),
    )
    with scenario.sink() as sink:
        sink.plan()
        (task,) = sink.tasks()
        counts = list(sink.reports(task))
        with killed_at(DeadLetters, "put"), pytest.raises(KilledError):
            list(sink.reports(task))
        sink.deliver(counts)
        sink.checkpoint.done = True
    scenario.run()
    assert (ids_of(scenario), letters_of(scenario)) == ([1], {"Singers": 1})


def test_letters_of_a_replay_that_was_killed_are_merged_though_options_have_changed_since(
    local_bigquery: LocalBigQuery, make: MakeScenario
) -> None:
    scenario = make(local_bigquery, "merge-load")
    scenario.maker.seal(record(START + SECOND, [1], columns=(KEY, NAME, TAGS), values={"Name": "n", "Tags": ["a"]}))
    scenario.run()
    columns = (KEY, BYTES, TAGS)
    scenario.maker.seal(
        record(START + 2 * SECOND, [2], columns=columns, values={"Name": "aGk=", "Tags": ["a"]}),
        record(START + 3 * SECOND, [3], columns=columns, values={"Name": "aGk=", "Tags": [None]}),
    )
    scenario.run()
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        replay(scenario)
    assert replay(scenario, arrays="json") == Replayed(refused=2), "told to rename it"
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    assert replay(scenario, arrays="json") == Replayed(sent=2)
    assert (ids_of(scenario), letters_of(scenario)) == ([1, 2, 3], {})


def test_a_replay_goes_by_what_the_sink_has_met_and_not_by_what_is_sealed(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1], columns=(KEY, NAME, TAGS), values={"Name": "n", "Tags": [None]})
    scenario.run()
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert replay(scenario) == Replayed(refused=1)
    scenario.run()
    assert ids_of(scenario) == [2, 3]


def test_letters_of_partial_rows_stay_and_hold_up_no_others(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    remake(scenario, typed("Name", "INT64"))
    partial = record(START + 60 * SECOND, [1], mod_type="UPDATE")
    scenario.maker.seal(replace(partial, value_capture_type="NEW_VALUES"), record(START + 61 * SECOND, [2]))
    scenario.run()
    remake(scenario, typed("Name", ""))
    assert replay(scenario) == Replayed(sent=1, refused=1)
    (reason,) = reasons_of(scenario)
    assert "has an update without the columns that did not change" in reason
    assert ids_of(scenario) == [2]


def test_letters_of_a_former_spool_are_sent(bigquery_double: BigQueryDouble, make: MakeScenario) -> None:
    former = make(bigquery_double, "append-only")
    seal = Sealing(former)
    for number in (1, 2, 3):
        seal([number])
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([4], values={"Name": "bad"})
    former.run()
    bigquery_double.take_all()
    scenario = make(bigquery_double, "append-only")
    scenario.dataset = former.dataset
    scenario.maker.seal(record(START + 60 * SECOND, [5]))
    scenario.run()
    place = DeadLetters(str(former.dead_letters))
    with replay_into(scenario.config(dead_letters=str(former.dead_letters))) as into:
        assert replayed(place, place.files(), into, []) == Replayed(sent=1)
    assert ids_of(scenario) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_letters_whose_schema_the_spool_does_not_have_stay_and_hold_up_no_others(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    former = make(bigquery_double, "append-only")
    former.maker.seal(record(START + 1, [1]), record(START + 2, [2], columns=(KEY, BYTES), values={}))
    scenario = make(bigquery_double, mode)
    scenario.maker.seal(record(START + 60 * SECOND, [5]))
    scenario.run()
    place = DeadLetters(str(scenario.dead_letters))
    batches = [batch for file in former.maker.spool.manifest(1).files for batch in former.maker.spool.batches(file)]
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    place.put("Singers", f"{former.maker.spool_id}_1_0", rows, ["x", "x"])
    place.put("Singers", f"{former.maker.spool_id}_2_0", rows.slice(1), ["x"])
    assert replay(scenario) == Replayed(sent=1, refused=2)
    assert ids_of(scenario) == [1, 5]
    (reason,) = reasons_of(scenario)
    assert reason.startswith(
        f"the spool at {scenario.maker.path} does not have the schema that its row was written with"
    )


def test_letters_that_were_all_refused_again_are_sent_by_the_first_replay_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], values={"Name": "bad"})
    scenario.run()
    with killed_at(DeadLetters, "replace", after=True), pytest.raises(KilledError):
        replay(scenario)
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=1)
    assert ids_of(scenario) == [1]


@pytest.mark.parametrize("after", [False, True])
def test_a_replay_into_another_dataset_sends_what_a_killed_one_had_sent_to_the_first(
    bigquery_double: BigQueryDouble, make: MakeScenario, after: bool
) -> None:
    scenario = make(bigquery_double, "append-only")
    repaired_with_letters(scenario, [2, 3])
    with killed_at(BigQueryWriter, "commit", after=after), pytest.raises(KilledError):
        replay(scenario)
    assert replay(scenario, dataset="{}_other") == Replayed(sent=2)
    assert sorted(row["Id"] for row in bigquery_double.rows(f"{scenario.dataset}_other", "Singers")) == [2, 3]


def test_a_table_that_a_replay_has_let_go_on_is_not_told_as_stopped(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    remake(scenario, typed("Name", "INT64"))
    seal([2])
    scenario.run()
    assert list(report_of(scenario.maker.spool, "bigquery").stopped) == ["Singers"]
    remake(scenario, typed("Name", ""))
    replay(scenario)
    assert report_of(scenario.maker.spool, "bigquery").stopped == {}


def test_a_merged_loads_letter_that_is_overtaken_stays_and_says_so(
    local_bigquery: LocalBigQuery, make: MakeScenario
) -> None:
    scenario = make(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    columns = (KEY, NAME, TAGS)
    seal([1], columns=columns, values={"Name": "n", "Tags": ["a"]})
    scenario.run()
    seal([2, 3], columns=columns, values={"Name": "n", "Tags": [None]})
    scenario.run()
    seal([2], columns=(KEY, TAGS), values={"Tags": ["b"]}, mod_type="UPDATE")
    scenario.run()
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    scenario.query("ALTER TABLE `{}.Singers` ADD COLUMN Tags JSON")
    scenario.options["arrays"] = "json"
    assert replay(scenario) == Replayed(sent=1, refused=1)
    assert reasons_of(scenario) == {
        "later changes of its row are in the table: check what the table lacks, and remove this dead letter"
    }
    assert sorted((row["Id"], row["Name"]) for row in scenario.rows("Singers")) == [(1, "n"), (2, None), (3, "n")]
