"""Mode merge, by BigQuery's change data capture: on the strict double, without Spark."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from connector.core.timestamps import SECOND
from connector.spool.consumers import record as record_progress
from emulator.bigquery.double import BigQueryDouble
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from tests.spark_sink.sinks.bigquery.deliveries.double_scenarios import PARTIAL, check
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    WHOLE,
    column,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Interruption,
    MakeScenario,
    all_tasks,
    at,
    campaign,
    sized,
    some_parts,
    some_tasks,
)
from tests.spark_sink.spools import START, record

# Exactly once

INTERRUPTIONS: dict[str, Interruption] = {
    "some tasks ran": some_tasks,
    "a task wrote a part of what it is to write": some_parts,
    "an append has not answered": at(BigQueryWriter, "append", call=3, after=True),
    "all tasks ran": all_tasks,
    "all is delivered, which Spark has not heard": at(SinkRun, "deliver", after=True),
}


@pytest.mark.long(but=3)
@pytest.mark.parametrize("checkpoint", ["same", "fresh"])
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_tables_are_right_wherever_a_run_is_interrupted_and_however_the_next_is_split_into_parts(
    double_scenario: MakeScenario, interruption: str, checkpoint: str
) -> None:
    scenario = double_scenario(seed=3)
    for _ in range(3):
        scenario.seal()
    with sized(part=1, slice_bytes=1000), scenario.sink(cores=8) as sink:
        INTERRUPTIONS[interruption](sink)
    scenario.seal()
    if checkpoint == "fresh":
        scenario.checkpoint = Checkpoint([])
    with sized(part=10**9), scenario.sink(cores=1) as sink:
        sink.run()
    check(scenario)


def test_all_of_it_once_more_changes_nothing_though_rows_were_deleted_since(double_scenario: MakeScenario) -> None:
    scenario = double_scenario(seed=4)
    for _ in range(4):
        scenario.seal(2)
    scenario.run()
    check(scenario)
    record_progress(scenario.maker.spool, "bigquery", 0, now=START)
    scenario.checkpoint = Checkpoint([])
    with sized(slice_bytes=1), scenario.sink() as sink:
        assert sink.run()
    check(scenario)


@pytest.mark.parametrize("capture", WHOLE)
def test_tables_are_right_for_whole_rows_altered_midway_with_columns_added_and_dropped(
    double_scenario: MakeScenario, capture: str
) -> None:
    scenario = double_scenario(seed=5, capture=capture, dataset="{0}_{schema}")
    scenario.seal(4)
    scenario.run()
    scenario.history.add("Singers", column("Seen", "TIMESTAMP", 9))
    scenario.history.capture = WHOLE[WHOLE.index(capture) - 1]
    scenario.seal(4)
    scenario.history.drop("Singers", "Name")
    scenario.seal(4)
    scenario.run()
    check(scenario)


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 300))])
def test_tables_are_right_after_runs_interrupted_at_random(double_scenario: MakeScenario, seed: int) -> None:
    random = Random(seed)
    options = {"dataset": "{0}_{schema}"} if random.random() < 0.2 else {}
    scenario = double_scenario("merge", seed, random.choice(WHOLE), **options)
    campaign(scenario, random)
    check(scenario)


# Whole rows


@pytest.mark.parametrize("capture", PARTIAL)
def test_an_update_that_holds_only_changes_is_rejected_before_anything_of_its_micro_batch_is_written_to_its_table(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, capture: str
) -> None:
    scenario = double_scenario()
    scenario.maker.seal(record(START + SECOND, [1]))
    scenario.run()
    scenario.maker.seal(record(START + 2 * SECOND, [2]), record(START + 2 * SECOND, [2], table="Other"))
    partial = replace(record(START + 3 * SECOND, [1], mod_type="UPDATE"), value_capture_type=capture)
    scenario.maker.seal(partial)
    for _ in range(2):
        with scenario.sink() as sink, pytest.raises(SinkError) as raised:
            sink.run()
        line = str(raised.value)
        assert line.startswith("table Singers has an update without the columns that did not change")
        assert (
            f"captures {capture}: ALTER CHANGE STREAM Everything SET OPTIONS (value_capture_type = 'NEW_ROW')" in line
        )
        assert "\n" not in line
        assert [row["Id"] for row in bigquery_double.rows(scenario.dataset, "Singers")] == [1]


@pytest.mark.parametrize("capture", PARTIAL)
@pytest.mark.parametrize("mod_type", ["INSERT", "DELETE"])
def test_inserts_and_deletes_are_whole_whatever_the_stream_captures(
    double_scenario: MakeScenario, mod_type: str, capture: str
) -> None:
    scenario = double_scenario()
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    scenario.maker.seal(replace(record(START + 2 * SECOND, [2, 3], mod_type=mod_type), value_capture_type=capture))
    scenario.run()
    assert {row["Id"] for row in scenario.rows("Singers")} == ({1, 2, 3} if mod_type == "INSERT" else {1})


# Staleness


def test_max_staleness_is_set_when_a_table_is_made_and_when_the_option_changes(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = double_scenario()
    for number, (option, expected) in enumerate(
        [
            (None, timedelta(hours=1)),
            ("90m", timedelta(minutes=90)),
            ("0s", timedelta(0)),
            ("24h", timedelta(days=1)),
        ],
        1,
    ):
        scenario.options.update({"max_staleness": option} if option else {})
        scenario.maker.seal(record(START + number * SECOND, [number]))
        scenario.run()
        assert bigquery_double.table(scenario.dataset, "Singers").max_staleness == expected
        jobs = bigquery_double.counts.requests["jobs.insert"] + bigquery_double.counts.requests["jobs.query"]
        assert jobs == number, "it is set once"
    told = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines() if "max_staleness" in line]
    name = f"{bigquery_double.project}.{scenario.dataset}.Singers"
    assert told == [
        f"INFO spark_sink: max_staleness of table {name} is changed from {before} s to {after} s"
        for before, after in ((3600, 5400), (5400, 0), (0, 86400))
    ], "what a table is made with is not told"


def test_a_table_without_max_staleness_is_not_altered_to_none(
    double_scenario: MakeScenario, bigquery_double: BigQueryDouble
) -> None:
    scenario = double_scenario(max_staleness="0s")
    for number in (1, 2):
        scenario.maker.seal(record(START + number * SECOND, [number]))
        scenario.run()
    assert not bigquery_double.table(scenario.dataset, "Singers").max_staleness
    assert bigquery_double.counts.requests["jobs.insert"] + bigquery_double.counts.requests["jobs.query"] == 0
