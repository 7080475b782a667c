"""Names that collide in BigQuery: two tables of one name, and columns called as the sink's own; without Spark."""

import pytest
from google.cloud import bigquery

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.bigquery.merging.changed_keys import backfill_statement, changed_keys, keep_statement
from spark_sink.sinks.bigquery.merging.lengths import too_long
from spark_sink.sinks.bigquery.merging.statements import LONGEST_STATEMENT, merge_statement, numbers_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Delivered, MakeScenario, Sealing, ids_of
from tests.spark_sink.sinks.bigquery.tables.edits import STREAMED, dead_letters_of, like, reasons_of, replay
from tests.spark_sink.spools import KEY

JSON, STRING = '{"code":"JSON"}', '{"code":"STRING"}'


def wide(columns: int, length: int, kind: str) -> TableSchema:
    """A table of so many columns, whose names have so many characters."""
    others = [ColumnType(f"c{number:04}".ljust(length, "x"), kind, False, number) for number in range(2, columns + 1)]
    return TableSchema.of("Singers", [KEY, *others])


# Tables


@pytest.mark.parametrize("mode", STREAMED)
def test_of_two_tables_that_would_be_one_only_the_second_is_stopped(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1], "a.b")
    for number in (2, 3):
        seal([number], "a_b", "a.b")
        scenario.run()
    name = scenario.place("a.b")[1]
    assert ids_of(scenario, "a.b") == [1, 2, 3]
    assert dead_letters_of(scenario) == {"a_b": 2}
    (reason,) = reasons_of(scenario)
    assert reason.startswith("table a_b is stopped: the tables a.b and a_b would both be ")
    assert name in reason


@pytest.mark.parametrize("ignores_case", [False, True])
def test_tables_whose_names_differ_in_case_are_two_but_in_a_dataset_that_ignores_it(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, ignores_case: bool
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    dataset = bigquery.Dataset(f"{scenario.server.project}.{scenario.dataset}")
    dataset.is_case_insensitive = ignores_case
    scenario.client.create_dataset(dataset)
    Sealing(scenario)([1], "Singers", "singers")
    scenario.run()
    assert ids_of(scenario) == [1]
    assert dead_letters_of(scenario) == ({"singers": 1} if ignores_case else {})


@pytest.mark.parametrize("mode", STREAMED)
def test_a_replay_says_which_two_tables_would_be_one_and_sends_the_dead_letters_of_the_others(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = Sealing(scenario)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], "a.b")
    seal([2, 3], "a_b", values={"Name": "bad"})
    seal([4], "a.b", "Singers", values={"Name": "bad"})
    seal([5], "a_b")
    scenario.run()
    bigquery_double.take_all()
    assert replay(scenario) == Replayed(sent=2, rejected=3)
    assert (ids_of(scenario, "a.b"), ids_of(scenario)) == ([1, 4], [4])
    assert dead_letters_of(scenario) == {"a_b": 3}
    (said,) = [line.fields for line in caplog.records if hasattr(line, "fields") and line.levelname == "WARNING"]
    assert said["table"] == "a_b"
    assert said["reason"].startswith("table a_b is stopped: the tables a.b and a_b would both be ")
    assert said["reason"].endswith("or exclude one of them (source.tables.exclude)")
    assert replay(scenario, dataset="{}_{schema}") == Replayed(sent=3)


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_was_dropped_keeps_its_dead_letters_and_holds_up_no_others_in_a_replay(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = Sealing(scenario)
    bigquery_double.refuse("Name", "bad", "this is no name")
    seal([1], "A", "B")
    seal([2], "A", "B", values={"Name": "bad"})
    scenario.run()
    bigquery_double.take_all()
    definition = like(scenario, "A")
    bigquery_double.drop(*scenario.place("A"))
    assert replay(scenario) == Replayed(sent=1, rejected=1)
    assert (ids_of(scenario, "B"), dead_letters_of(scenario)) == ([1, 2], {"A": 1})
    scenario.client.create_table(definition)
    assert replay(scenario) == Replayed(sent=1)


# Columns


@pytest.mark.long
def test_columns_called_as_those_of_a_staging_table_or_its_aliases_are_merged(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    names = ["_spanner_present", "_spanner_deleted", "_Spanner_Replaced", "_spanner_deleted_", "t", "s"]
    columns = [ColumnType(name, STRING, False, place) for place, name in enumerate(names, 2)]
    document = ColumnType("e", JSON, False, 9)
    scenario = make_scenario(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    given = (KEY, *columns, document)
    seal([1, 2, 3], columns=given, values={**dict.fromkeys(names, "1"), "e": '{"a":1}'})
    seal([2], columns=(KEY, columns[0]), values={names[0]: "changed"}, mod_type="UPDATE")
    scenario.run()
    seal([3], columns=given, values={}, mod_type="DELETE")
    seal([1], columns=(KEY, columns[1]), values={names[1]: None}, mod_type="UPDATE")
    scenario.run()
    found = {row["Id"]: [row[name] for name in names] for row in scenario.rows("Singers")}
    assert found == {1: ["1", None, "1", "1", "1", "1"], 2: ["changed", "1", "1", "1", "1", "1"]}


def test_statements_of_a_table_without_such_columns_are_what_they_were() -> None:
    table = bigquery_table(TableSchema.of("T", [KEY]), BigQueryTableOptions("d", "merge-load"))
    merge = merge_statement(table, "p.d.T", "p.d.staging")
    assert merge.startswith("MERGE `p.d.T` t USING `p.d.staging` s ON t.`Id` = s.`Id` WHEN MATCHED AND s.datastream_m")
    assert "AND s._spanner_deleted THEN DELETE" in merge
    assert numbers_statement(table, "p.d.T", "p.d.staging").startswith("SELECT s.datastream_metadata.uuid, t.dat")


@pytest.mark.parametrize(
    ("columns", "length", "kind", "fits"),
    [(1024, 30, JSON, True), (800, 128, STRING, True), (1024, 128, STRING, False), (640, 128, JSON, True)],
)
def test_a_merge_of_the_widest_tables_that_spanner_has_is_short_enough_or_known_to_be_too_long(
    columns: int, length: int, kind: str, fits: bool
) -> None:
    table = bigquery_table(wide(columns, length, kind), BigQueryTableOptions("d" * 100, "merge-load", prefix="p" * 100))
    assert (too_long(table, "a" * 30) is None) == fits
    staging = f"{'a' * 30}.{'d' * 100}.{'s' * 160}"
    into, changed = f"{'a' * 30}.{'d' * 100}.{table.name}", f"{'a' * 30}.{'d' * 100}.{changed_keys(table).name}"
    statements = [
        merge_statement(table, into, staging),
        backfill_statement(table, into, staging, changed),
        keep_statement(table, changed, staging),
    ]
    assert (max(map(len, statements)) <= LONGEST_STATEMENT) == fits


@pytest.mark.long
def test_a_table_whose_merge_would_be_too_long_is_stopped_and_the_others_are_not(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_sink.sinks.bigquery.merging.lengths.LONGEST_STATEMENT", 50_000)
    scenario = make_scenario(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    columns = [ColumnType(f"c{number:04}", STRING, False, number) for number in range(2, 120)]
    seal([1], "Wide", columns=(KEY, *columns), values={"c0002": "x"})
    seal([1], "Singers")
    scenario.run()
    assert (ids_of(scenario), dead_letters_of(scenario)) == ([1], {"Wide": 1})
    (reason,) = reasons_of(scenario)
    assert reason.startswith("table Wide is stopped: the MERGE of its 119 columns would have ")
    assert "and BigQuery takes 50,000: take mode merge or append-only" in reason
