"""Dead letters and their replays, interrupted and in orders that are easy to get wrong, without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.core.timestamps import SECOND
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.commit_log import CommitLog, StreamsEntry
from spark_sink.sinks.bigquery.replay import replay_into
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.other_columns import BYTES, TAGS
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    KilledError,
    MakeScenario,
    Scenario,
    Sealing,
    ids_of,
    killed_at,
)
from tests.spark_sink.sinks.bigquery.tables.edits import (
    dead_letters_of,
    names_of,
    reasons_of,
    recreate,
    repaired_with_dead_letters,
    replay,
    typed,
)
from tests.spark_sink.spools import KEY, NAME, START, record

# Dead letters and their replays


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_table_whose_type_is_changed_back_continues_without_a_repair(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    seal([3], values={"Name": "back"})
    scenario.run()
    assert replay(scenario) == Replayed(sent=1, rejected=1)
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [1, 3, 4]


@pytest.mark.long
def test_a_column_that_is_added_while_a_table_is_stopped_is_merged_by_the_replay(
    local_bigquery: LocalBigQuery, delivered: Delivered
) -> None:
    scenario, seal = delivered(local_bigquery, "merge-load", [1])
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
def test_dead_letters_of_a_dataset_that_was_taken_later_go_by_what_was_met_there(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    scenario.options["dataset"] = "{}_later"
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([2], columns=(KEY, NAME, TAGS), values={"Name": "bad", "Tags": ["a"]})
    scenario.run()
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=1)


def test_dead_letters_of_a_record_that_knows_no_schemas_are_read_each_by_its_own(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
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


def test_a_row_that_a_second_attempt_takes_leaves_no_dead_letter_of_the_first(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    bigquery_double.refuse("Name", "n", "this is no name")
    Sealing(scenario)([1])
    with scenario.sink() as sink:
        sink.plan()
        (task,) = sink.tasks()
        list(sink.reports(task))
        assert dead_letters_of(scenario) == {"Singers": 1}
        bigquery_double.take_all()
        sink.deliver(list(sink.reports(task)))
        sink.checkpoint.done = True
    scenario.run()
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1], {})


def test_of_two_drivers_the_dead_letters_of_the_one_whose_streams_are_committed_stay(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    scenario.maker.seal(
        record(START + SECOND, [1], values={"Name": "good"}), record(START + 2 * SECOND, [2], values={"Name": "bad"})
    )
    bigquery_double.refuse("Name", "bad", "this is no name")
    with scenario.sink() as sink:
        sink.plan()
        (task,) = sink.tasks()
        first = list(sink.reports(task))
        bigquery_double.take_all()
        second = list(sink.reports(task))
        find = CommitLog.find
        sink.deliver(first)
        looked: list[object] = []

        def found(*args: Any) -> StreamsEntry | None:
            """The second driver has looked before the first one entered its streams."""
            looked.append(args)
            return None if len(looked) == 1 else find(*args)

        monkeypatch.setattr(CommitLog, "find", found)
        sink.deliver(second)
        assert len(looked) == 2
        sink.checkpoint.done = True
    scenario.run()
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1], {"Singers": 1})


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
def test_a_tasks_second_attempt_that_is_killed_leaves_the_dead_letters_of_the_first(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode)
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
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1], {"Singers": 1})


@pytest.mark.long
def test_dead_letters_of_a_replay_that_was_killed_are_merged_though_options_have_changed_since(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
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
    assert replay(scenario, arrays="json") == Replayed(rejected=2), "advised to rename it"
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    assert replay(scenario, arrays="json") == Replayed(sent=1, rejected=1), "the killed one had merged the first"
    assert replay(scenario, arrays="json") == Replayed(sent=1)
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1, 2, 3], {})


def test_a_replay_uses_the_schemas_that_the_sink_has_delivered_and_not_sealed_ones(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(
        bigquery_double, "append-only", [1], columns=(KEY, NAME, TAGS), values={"Name": "n", "Tags": [None]}
    )
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert replay(scenario) == Replayed(rejected=1)
    scenario.run()
    assert ids_of(scenario) == [2, 3]


def test_dead_letters_of_partial_rows_stay_and_hold_up_no_others(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, _seal = delivered(bigquery_double, "merge", [1])
    recreate(scenario, typed("Name", "INT64"))
    partial = record(START + 60 * SECOND, [1], mod_type="UPDATE")
    scenario.maker.seal(replace(partial, value_capture_type="NEW_VALUES"), record(START + 61 * SECOND, [2]))
    scenario.run()
    recreate(scenario, typed("Name", ""))
    assert replay(scenario) == Replayed(sent=1, rejected=1)
    (reason,) = reasons_of(scenario)
    assert "has an update without the columns that did not change" in reason
    assert ids_of(scenario) == [2]


def test_dead_letters_of_a_former_spool_are_sent(bigquery_double: BigQueryDouble, make_scenario: MakeScenario) -> None:
    former = make_scenario(bigquery_double, "append-only")
    seal = Sealing(former)
    for number in (1, 2, 3):
        seal([number])
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([4], values={"Name": "bad"})
    former.run()
    bigquery_double.take_all()
    scenario = make_scenario(bigquery_double, "append-only")
    scenario.dataset = former.dataset
    scenario.maker.seal(record(START + 60 * SECOND, [5]))
    scenario.run()
    store = DeadLetters(str(former.dead_letters))
    with replay_into(scenario.config(dead_letters=str(former.dead_letters.parent))) as into:
        assert replayed(store, store.files(), into, []) == Replayed(sent=1)
    assert ids_of(scenario) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_dead_letters_whose_schema_the_spool_does_not_have_stay_and_hold_up_no_others(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    former = make_scenario(bigquery_double, "append-only")
    former.maker.seal(record(START + 1, [1]), record(START + 2, [2], columns=(KEY, BYTES), values={}))
    scenario = make_scenario(bigquery_double, mode)
    scenario.maker.seal(record(START + 60 * SECOND, [5]))
    scenario.run()
    store = DeadLetters(str(scenario.dead_letters))
    batches = [batch for file in former.maker.spool.manifest(1).files for batch in former.maker.spool.batches(file)]
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    store.put("Singers", f"{former.maker.spool_id}_1_0", rows, ["x", "x"])
    store.put("Singers", f"{former.maker.spool_id}_2_0", rows.slice(1), ["x"])
    assert replay(scenario) == Replayed(sent=1, rejected=2)
    assert ids_of(scenario) == [1, 5]
    (reason,) = reasons_of(scenario)
    assert reason.startswith(
        f"the spool at {scenario.maker.path} does not have the schema that its row was written with"
    )


def test_dead_letters_that_were_all_rejected_again_are_sent_by_the_first_replay_after_the_repair(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
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
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, after: bool
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    repaired_with_dead_letters(scenario, [2, 3])
    with killed_at(BigQueryWriter, "commit", after=after), pytest.raises(KilledError):
        replay(scenario)
    assert replay(scenario, dataset="{}_other") == Replayed(sent=2)
    assert sorted(row["Id"] for row in bigquery_double.rows(f"{scenario.dataset}_other", "Singers")) == [2, 3]


def test_a_table_that_a_replay_has_let_continue_is_not_reported_as_stopped(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "merge", [1])
    recreate(scenario, typed("Name", "INT64"))
    seal([2])
    scenario.run()
    assert list(report_of(scenario.maker.spool, "bigquery").stopped) == ["Singers"]
    recreate(scenario, typed("Name", ""))
    replay(scenario)
    assert report_of(scenario.maker.spool, "bigquery").stopped == {}


_ARRAYS = (KEY, NAME, TAGS)
_LATER = "later changes of its row are in the table: check what the table lacks, and remove this dead letter"


def json_tags(scenario: Scenario) -> None:
    """Gives the table a column that holds arrays with NULL, and the sink the option for it."""
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Tags TO Tags_before")
    scenario.query("ALTER TABLE `{}.Singers` ADD COLUMN Tags JSON")
    scenario.options["arrays"] = "json"


@pytest.fixture
def overtaken(local_bigquery: LocalBigQuery, make_scenario: MakeScenario) -> Scenario:
    """A table with dead letters of rows 2 and 3, and a later change of row 2."""
    scenario = make_scenario(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    seal([1], columns=_ARRAYS, values={"Name": "n", "Tags": ["a"]})
    scenario.run()
    seal([2, 3], columns=_ARRAYS, values={"Name": "n", "Tags": [None]})
    scenario.run()
    seal([2], columns=(KEY, TAGS), values={"Tags": ["b"]}, mod_type="UPDATE")
    scenario.run()
    json_tags(scenario)
    return scenario


@pytest.mark.long
def test_a_merged_loads_dead_letter_that_is_overtaken_stays_and_says_so(overtaken: Scenario) -> None:
    assert replay(overtaken) == Replayed(sent=1, rejected=1)
    for _ in range(2):
        assert replay(overtaken) == Replayed(rejected=1)
    assert reasons_of(overtaken) == {_LATER}
    assert names_of(overtaken) == {1: "n", 2: None, 3: "n"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "method", "after"),
    [
        (CommitLog, "enter_replay", True),
        (BigQueryClient, "query", True),
        (DeadLetters, "replace", False),
    ],
)
def test_an_overtaken_dead_letter_stays_though_its_replay_is_killed(
    overtaken: Scenario, owner: type, method: str, after: bool
) -> None:
    with killed_at(owner, method, after=after), pytest.raises(KilledError):
        replay(overtaken)
    for _ in range(3):
        replay(overtaken)
    assert (dead_letters_of(overtaken), reasons_of(overtaken)) == ({"Singers": 1}, {_LATER})
    assert names_of(overtaken) == {1: "n", 2: None, 3: "n"}


@pytest.mark.long
def test_a_dead_letter_that_is_overtaken_after_its_replay_was_killed_stays(overtaken: Scenario) -> None:
    with killed_at(CommitLog, "enter_replay", after=True), pytest.raises(KilledError):
        replay(overtaken)
    overtaken.maker.seal(
        record(START + 60 * SECOND, [3], columns=(KEY, NAME), values={"Name": "later"}, mod_type="UPDATE")
    )
    overtaken.run()
    assert replay(overtaken) == Replayed(rejected=2)
    assert names_of(overtaken) == {1: "n", 2: None, 3: "later"}


@pytest.mark.long
def test_a_late_dead_letter_does_not_come_into_the_table_with_a_later_one_of_its_row(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    seal([1], columns=_ARRAYS, values={"Name": "n", "Tags": ["a"]})
    scenario.run()
    early = seal.records([1], columns=_ARRAYS, values={"Name": "b1", "Tags": [None]}, mod_type="UPDATE")
    between = seal.records([1], columns=(KEY, NAME), values={"Name": "b2"}, mod_type="UPDATE")
    late = seal.records([1], columns=(KEY, TAGS), values={"Tags": [None, "x"]}, mod_type="UPDATE")
    seal.epoch(early, between, late)
    scenario.run()
    assert dead_letters_of(scenario) == {"Singers": 2}
    json_tags(scenario)
    assert replay(scenario) == Replayed(sent=1, rejected=1)
    assert (names_of(scenario), reasons_of(scenario)) == ({1: "b2"}, {_LATER})
    (row,) = scenario.rows("Singers")
    assert orjson.loads(orjson.dumps(row["Tags"])) == [None, "x"]


@pytest.mark.long
def test_a_replay_takes_no_job_of_another_deployment_for_its_own(overtaken: Scenario) -> None:
    path = Path(overtaken.maker.path, "bigquery")
    with killed_at(DeadLetters, "replace"), pytest.raises(KilledError):
        replay(overtaken)
    for entry in path.glob("letters_*"):
        entry.unlink()  # the other one has a spool of its own
    overtaken.query("DELETE FROM `{}.Singers` WHERE Id = 3")
    assert replay(overtaken) == Replayed(sent=1, rejected=1)
    assert names_of(overtaken) == {1: "n", 2: None, 3: "n"}
