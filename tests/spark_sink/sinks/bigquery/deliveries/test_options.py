"""Options that change between runs, older checkpoints, and errors of the disk, without Spark."""

import errno

import pytest

from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.consumers import Consumer, find, forget
from connector.spool.reading import Spool
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from tests.spark_sink.sinks.bigquery.deliveries.other_columns import (
    BYTES,
    with_mods,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    MakeScenario,
    Sealing,
    ids_of,
    line_of,
)
from tests.spark_sink.sinks.bigquery.tables.edits import dead_letters_of, replay
from tests.spark_sink.spools import KEY, NAME, START, record

# Options and checkpoints


@pytest.mark.parametrize(("one", "two"), [("append-only", "merge"), ("merge", "append-only"), ("merge", "merge-load")])
def test_another_mode_for_tables_that_are_there_is_rejected_and_the_old_one_continues(
    bigquery_double: BigQueryDouble, delivered: Delivered, one: str, two: str
) -> None:
    scenario, seal = delivered(bigquery_double, one, [1])
    scenario.mode = two
    seal([2])
    assert f"was made for mode {one}. Choose another sink.dataset or sink.prefix for this mode" in line_of(scenario)
    scenario.mode = one
    seal([3])
    scenario.run()
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1, 2, 3], {})


def test_tables_of_another_mode_are_known_without_the_spool_that_made_them(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, delivered: Delivered
) -> None:
    scenario, _ = delivered(bigquery_double, "append-only", [1])
    other = make_scenario(bigquery_double, "merge")
    other.dataset = scenario.dataset
    other.maker.seal(record(START + SECOND, [1]))
    assert "was made in another mode: its datastream_metadata has other fields" in line_of(other)


def test_an_older_checkpoint_of_spark_is_rejected_with_what_helps(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    older = Checkpoint(list(scenario.checkpoint.offsets), scenario.checkpoint.done)
    for number in (2, 3):
        seal([number])
        scenario.run()
    scenario.run()
    scenario.checkpoint = older
    with scenario.sink() as sink, pytest.raises(SpoolError, match=r"older copy: remove it, and the sink continues"):
        sink.run()
    scenario.checkpoint = Checkpoint([])
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [1, 2, 3, 4]


def test_what_was_sealed_before_a_batch_that_was_started_is_not_one_batch_across_a_change(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1], values={"Name": "abcd"})
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    StartedBatches(scenario.maker.spool, "bigquery").begin(StartedBatch(first=3, last=3, pinned="{}"), done=2)
    said = scenario.run()
    assert said[0] == "1 rows to 1 tables"
    assert ids_of(scenario) == [1]


def test_an_error_of_the_disk_that_passes_does_not_end_a_sink_that_starts(
    bigquery_double: BigQueryDouble, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    seal([2])
    failures = [OSError(errno.ESTALE, "stale")]

    def failing(spool: Spool, consumer: str) -> Consumer | None:
        if failures:
            raise failures.pop()
        return find(spool, consumer)

    monkeypatch.setattr("spark_sink.sinks.shared.sink_stream.find", failing)
    scenario.run()
    scenario.run()
    assert (failures, ids_of(scenario)) == ([], [1, 2])


def test_a_mode_that_the_reason_recommends_may_be_taken_for_a_table_that_was_never_made(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "merge")
    columns = (ColumnType("V", '{"code":"FLOAT64"}', True, 1), NAME)
    scenario.maker.seal(with_mods(1, columns, ('{"V":0.5}', '{"Name":"n"}')))
    (said,) = scenario.run()
    assert "which has no such keys: take mode append-only" in said
    scenario.mode = "append-only"
    assert replay(scenario) == Replayed(sent=1)
    scenario.maker.seal(with_mods(2, columns, ('{"V":0.75}', '{"Name":"n"}')))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert [row["V"] for row in scenario.rows("Singers")] == [0.5, 0.75]


@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_two_sinks_of_a_spool_deliver_everything_each_by_its_name(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    other = Checkpoint([])
    for number in (2, 3):
        seal([number])
        with SinkRun(scenario.config(name="second", dataset="second", mode="append-only"), other) as sink:
            sink.only_what_is_sealed()
            sink.run()
        scenario.run()
    assert ids_of(scenario) == [1, 2, 3]
    assert sorted(row["Id"] for row in bigquery_double.rows("second", "Singers")) == [1, 2, 3]


def test_a_sink_that_was_forgotten_delivers_all_that_is_kept_to_another_dataset(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, _ = delivered(bigquery_double, "append-only", [1])
    forget(scenario.maker.spool, "bigquery")
    scenario.dataset, scenario.checkpoint = "elsewhere", Checkpoint([])
    scenario.run()
    assert ids_of(scenario) == [1]
