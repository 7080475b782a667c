"""Tables that are created again in Spanner, with other keys, columns or types, without Spark."""

import pytest
from google.cloud import bigquery
from google.cloud.bigquery.table import PrimaryKey, TableConstraints

from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.other_columns import (
    BYTES,
    CODE_AS_KEY,
    ID_NO_KEY,
    NAME_AS_KEY,
    with_mods,
)
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    MakeScenario,
    ids_of,
)
from tests.spark_sink.sinks.bigquery.tables.edits import dead_letters_of, recreate, replay
from tests.spark_sink.spools import KEY, NAME, START, record

# Tables created again in Spanner


def test_a_table_that_was_recreated_with_another_key_is_stopped_and_after_the_repair_merged_by_that_key(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, _ = delivered(bigquery_double, "merge", [1, 2])
    both = (ID_NO_KEY, NAME_AS_KEY)
    scenario.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    (said,) = scenario.run()
    assert "its key is (Id) in BigQuery, and would be (Name): drop the table there, and it is created again" in said
    bigquery_double.drop(*scenario.place("Singers"))
    assert replay(scenario) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in scenario.rows("Singers")) == [("a", 7), ("b", 7)]


@pytest.mark.long
def test_a_merged_load_takes_another_key_likewise(local_bigquery: LocalBigQuery, delivered: Delivered) -> None:
    scenario, _ = delivered(local_bigquery, "merge-load", [1, 2])
    both = (ID_NO_KEY, NAME_AS_KEY)
    scenario.maker.seal(with_mods(2, both, ('{"Name":"a"}', '{"Id":"7"}'), ('{"Name":"b"}', '{"Id":"7"}')))
    scenario.run()
    assert dead_letters_of(scenario) == {"Singers": 2}
    scenario.query("DROP TABLE `{}.Singers`")
    assert replay(scenario) == Replayed(sent=2)
    assert sorted((row["Name"], row["Id"]) for row in scenario.rows("Singers")) == [("a", 7), ("b", 7)]


def test_a_table_that_was_recreated_with_a_key_of_other_columns_continues_after_the_repair(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, _ = delivered(bigquery_double, "merge", [1, 2])
    scenario.maker.seal(with_mods(2, (CODE_AS_KEY, NAME), ('{"Code":"a"}', '{"Name":"x"}')))
    (said,) = scenario.run()
    assert "would be (Code)" in said
    bigquery_double.drop(*scenario.place("Singers"))
    assert replay(scenario) == Replayed(sent=1)
    scenario.maker.seal(with_mods(3, (CODE_AS_KEY, NAME), ('{"Code":"b"}', '{"Name":"x"}')))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert sorted(row["Code"] for row in scenario.rows("Singers")) == ["a", "b"]


def test_a_key_whose_columns_stand_in_another_order_is_the_same_key(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    columns = ColumnType("A", '{"code":"INT64"}', True, 1), ColumnType("B", '{"code":"INT64"}', True, 2)
    scenario = make_scenario(bigquery_double, "merge")
    scenario.maker.seal(with_mods(1, columns, ('{"A":"1","B":"2"}', "{}")))
    scenario.run()

    def reordered(table: bigquery.Table) -> None:
        table.table_constraints = TableConstraints(PrimaryKey(columns=["B", "A"]), None)

    recreate(scenario, reordered)
    scenario.maker.seal(with_mods(2, columns, ('{"A":"1","B":"3"}', "{}")))
    assert scenario.run() == ["1 rows to 1 tables"]


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_a_column_that_comes_back_in_another_spelling_is_the_same_column(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, _ = delivered(bigquery_double, mode, [1, 2])
    respelled = ColumnType("name", '{"code":"STRING"}', False, 3)
    scenario.maker.seal(record(START + 2 * SECOND, [3], columns=(KEY, respelled), values={"name": "m"}))
    assert scenario.run() == ["1 rows to 1 tables"]
    assert {row["Id"]: row["Name"] for row in scenario.rows("Singers")} == {1: "n", 2: "n", 3: "m"}


@pytest.mark.parametrize("mode", ["merge", "append-only"])
def test_what_was_committed_before_a_type_changed_is_written_however_far_the_sink_is_behind(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    seal([2, 3], values={"Name": "abcd"})
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    first, second = scenario.run()
    assert first == "2 rows to 1 tables"
    assert second.startswith("0 rows to 1 tables, 1 to the dead letters")
    assert ids_of(scenario) == [1, 2, 3]


def test_a_float32_that_becomes_a_float64_is_read_as_one(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    single, double = (ColumnType("V", f'{{"code":"{code}"}}', False, 2) for code in ("FLOAT32", "FLOAT64"))
    scenario.maker.seal(
        record(START + SECOND, [1], columns=(KEY, single), values={"V": 0.5}),
        record(START + 2 * SECOND, [2], columns=(KEY, double), values={"V": 0.25}),
    )
    assert scenario.run() == ["2 rows to 1 tables"]
    assert {row["Id"]: row["V"] for row in scenario.rows("Singers")} == {1: 0.5, 2: 0.25}
