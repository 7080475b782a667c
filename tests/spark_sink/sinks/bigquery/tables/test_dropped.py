"""Tables and columns that somebody dropped in BigQuery, without Spark.

One line says so, nothing is lost, and the sink continues after the repair.
"""

import pytest

from emulator.bigquery.double import BigQueryDouble
from spark_sink.errors import SinkError
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    MakeScenario,
    Sealing,
    ids_of,
    line_of,
)
from tests.spark_sink.sinks.bigquery.tables.edits import NUMBERS, STREAMED, like, names_of, recreate, typed
from tests.spark_sink.spools import KEY, NAME

# What somebody drops


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_somebody_dropped_stops_the_sink_until_it_is_there_and_what_came_since_is_written(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, range(3))
    definition = like(scenario)
    bigquery_double.drop(*scenario.place("Singers"))
    seal(range(3, 5), "Singers", "Other")
    for _ in range(2):
        line = line_of(scenario)
        assert line.startswith(
            f"table double.{scenario.dataset}.{scenario.place('Singers')[1]} was dropped in BigQuery"
        )
        assert "create an empty one like it" in line
    scenario.client.create_table(definition)
    scenario.run()
    assert (ids_of(scenario), ids_of(scenario, "Other")) == ([3, 4], [3, 4])


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_is_dropped_while_it_is_written_ends_the_sink_with_a_line_and_its_rows_come_later(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = Sealing(scenario)
    seal(range(3))
    with scenario.sink() as sink:
        sink.run()
        definition = like(scenario)
        seal(range(3, 5))
        sink.only_what_is_sealed()
        bigquery_double.drop(*scenario.place("Singers"))
        with pytest.raises(SinkError) as raised:
            sink.run()
    name = f"{scenario.dataset}.{scenario.place('Singers')[1]}"
    assert str(raised.value).startswith(f"cannot write table {name} of BigQuery: the table does not exist. Restore it")
    scenario.client.create_table(definition)
    scenario.run()
    assert ids_of(scenario) == [3, 4]


@pytest.mark.parametrize("mode", STREAMED)
def test_a_column_that_somebody_dropped_stops_the_sink_and_the_line_says_how_to_add_it(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = Sealing(scenario)
    values = {"Name": "n", "Numbers": ["1"]}
    seal(range(3), columns=(KEY, NAME, NUMBERS), values=values)
    scenario.run()
    for column, kind in (("Name", "STRING"), ("Numbers", "ARRAY<INT64>")):
        recreate(scenario, typed(column, ""))
        seal([7], columns=(KEY, NAME, NUMBERS), values=values, mod_type="UPDATE")
        line = line_of(scenario)
        place = f"double.{scenario.dataset}.{scenario.place('Singers')[1]}"
        assert line.startswith(f"column {column} of table {place} was dropped in BigQuery")
        assert f"ADD COLUMN {column} {kind})" in line
        recreate(scenario, typed(column, kind))
    scenario.run()
    assert {row["Id"]: (row["Name"], row["Numbers"]) for row in scenario.rows("Singers")} == {7: ("n", [1])}


@pytest.mark.parametrize("mode", STREAMED)
def test_the_line_of_a_dropped_struct_is_a_statement_that_adds_it(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    own = "_metadata_spanner_mod_type" if mode == "changelog" else "datastream_metadata"
    recreate(scenario, typed(own, ""))
    seal([2])
    kind = {
        "changelog": "STRING",
        "merge": "STRUCT<uuid STRING, source_timestamp INT64>",
        "append-only": "STRUCT<uuid STRING, source_timestamp INT64, change_sequence_number STRING, change_type STRING,"
        " sort_keys ARRAY<STRING>>",
    }[mode]
    assert f"ADD COLUMN {own} {kind})" in line_of(scenario)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["append-only", "merge-load"])
def test_what_is_dropped_and_added_again_by_sql_is_written_since(
    local_bigquery: LocalBigQuery, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(local_bigquery, mode, range(2))
    scenario.query("ALTER TABLE `{}.Singers` DROP COLUMN Name")
    seal([2])
    assert f"column Name of table local.{scenario.dataset}.Singers was dropped" in line_of(scenario)
    scenario.query("ALTER TABLE `{}.Singers` ADD COLUMN Name STRING")
    scenario.run()
    assert names_of(scenario) == {0: None, 1: None, 2: "n"}


@pytest.mark.long
def test_a_table_that_is_dropped_between_load_and_merge_ends_the_sink_with_a_line_and_its_rows_come_later(
    local_bigquery: LocalBigQuery, delivered: Delivered
) -> None:
    scenario, seal = delivered(local_bigquery, "merge-load", range(2))
    seal([2])
    with scenario.sink() as sink:
        assert sink.plan()
        reports = [row for task in sink.tasks() for row in sink.reports(task)]
        definition = like(scenario)
        scenario.client.delete_table(definition)
        with pytest.raises(SinkError, match=f"cannot use BigQuery's table {scenario.dataset}.Singers: ") as raised:
            sink.deliver(reports)
    assert "\n" not in str(raised.value)
    for _ in range(2):
        assert "was dropped in BigQuery" in line_of(scenario)
    scenario.client.create_table(definition)
    scenario.run()
    assert ids_of(scenario) == [2]
