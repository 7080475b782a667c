"""With ``source.complete_rows`` BigQuery takes any value capture type; what cannot be completed is a dead letter."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector.config.sections import SourceConfig
from connector.config.sinks import WatchedStream
from connector.core.records import DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.sink_type import SINK
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario, Scenario
from tests.spark_sink.sinks.files.written import ALBUMS
from tests.spark_sink.spools import START, record


def update(at: int, key: int, name: str) -> DataChangeRecord:
    made = record(at, [key], columns=ALBUMS[:2], mod_type="UPDATE")
    mod = Mod(f'{{"Id":"{key}"}}', json.dumps({"Name": name}), "{}")
    return replace(made, mods=(mod,), value_capture_type="NEW_VALUES")


def run(scenario: Scenario) -> list[str]:
    config = scenario.config()
    source: SourceConfig = config.source.model_copy(update={"complete_rows": True})
    with SinkRun(config.model_copy(update={"source": source}), Checkpoint([])) as sink:
        sink.only_what_is_sealed()
        return sink.run()


def rows(scenario: Scenario) -> list[tuple[Any, ...]]:
    return sorted((row["Id"], row["Name"], row["Sales"]) for row in scenario.rows("Singers"))


def changed(scenario: Scenario) -> None:
    scenario.maker.seal(record(START + 1, [1, 2], columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    scenario.maker.seal(update(START + SECOND, 1, "a"), update(START + SECOND + 1, 2, "b"))


def test_updates_are_merged_whole_and_those_that_are_not_are_dead_letters(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, sold: dict[str, str]
) -> None:
    scenario = make_scenario(bigquery_double, "merge")
    changed(scenario)
    sold["1"] = "7"
    (said,) = run(scenario)
    assert said.startswith("3 rows to 1 tables, 1 without columns that Spanner no longer keeps, 1 to the dead letters")
    assert rows(scenario) == [(1, "a", 7), (2, "n", 1)]
    (letter,) = [
        line for file in Path(scenario.dead_letters).rglob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert json.loads(letter)["reason"].startswith("the update lacks the columns that did not change, and Spanner no")
    assert report_of(scenario.maker.spool, "bigquery").incomplete == 1


def test_what_is_appended_without_columns_is_counted(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, sold: dict[str, str]
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    changed(scenario)
    sold["1"] = "7"
    (said,) = run(scenario)
    assert said == "4 rows to 1 tables, 1 without columns that Spanner no longer keeps"
    assert rows(scenario)[0] == (1, "a", 7)
    assert (2, "b", None) in rows(scenario)


def test_an_appended_delete_has_the_row_that_it_removed(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, sold: dict[str, str]
) -> None:
    sold["1"] = "7"
    made = record(START + 1, [1], columns=ALBUMS[:1], mod_type="DELETE")
    delete = replace(made, mods=(Mod('{"Id":"1"}', "{}", "{}"),), value_capture_type="NEW_ROW")
    appended = make_scenario(bigquery_double, "append-only")
    appended.maker.seal(replace(delete, column_types=ALBUMS))
    assert run(appended) == ["1 rows to 1 tables, 1 without columns that Spanner no longer keeps"], "it has no name"
    assert rows(appended) == [(1, None, 7)]


@pytest.mark.parametrize(("completes", "errors"), [(False, 1), (True, 0)])
def test_merge_takes_any_value_capture_type_with_whole_rows(completes: bool, errors: int) -> None:
    stream = WatchedStream("s", "OLD_AND_NEW_VALUES", "googlesql", "", (), completes)
    sink = BigQueryConfig(type="bigquery", dataset="d")
    assert len(SINK.stream_errors(sink, stream)) == errors
