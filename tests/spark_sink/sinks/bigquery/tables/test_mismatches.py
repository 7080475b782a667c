"""A stopped table's reason recommends what BigQuery accepts: its statements are run on the strict double."""

import re
from dataclasses import replace

import pytest
from google.cloud import bigquery

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.bigquery.client import ExistingTable, _field
from spark_sink.sinks.bigquery.tables.mismatches import mismatches
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, Field, Mode, bigquery_table
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import Delivered, Scenario, ids_of
from tests.spark_sink.sinks.bigquery.tables.edits import (
    STREAMED,
    dead_letters_of,
    keyless,
    reasons_of,
    recreate,
    replay,
    typed,
)
from tests.spark_sink.spools import KEY, NAME

NUMBER = ColumnType("Number", '{"code":"INT64"}', False, 3)
DECIMAL = ColumnType("Number", '{"code":"NUMERIC"}', False, 3)
TEXT_KEY = ColumnType("Id", '{"code":"STRING"}', True, 1)

_STATEMENT = re.compile(
    r"ALTER TABLE `[^`]+` RENAME COLUMN \w+ TO \w+|ALTER TABLE `[^`]+` ALTER COLUMN \w+ SET DATA TYPE \w+"
    r"|ALTER TABLE `[^`]+` ADD PRIMARY KEY \([\w, ]+\) NOT ENFORCED|CREATE TABLE `[^`]+` AS SELECT \* FROM `[^`]+`"
)


def follow(scenario: Scenario) -> list[str]:
    """Runs what the one reason there is recommends; the statements."""
    (reason,) = reasons_of(scenario)
    statements = _STATEMENT.findall(reason)
    for statement in statements:
        scenario.client.query(statement, job_retry=None).result()
    return statements


@pytest.mark.parametrize("mode", STREAMED)
def test_a_column_is_renamed_as_the_reason_says_and_added_again(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    seal([2], columns=(KEY, ColumnType("Name", '{"code":"BYTES"}', False, 2)), values={"Name": "aGk="})
    scenario.run()
    (statement,) = follow(scenario)
    assert statement.endswith("RENAME COLUMN Name TO Name_before")
    assert replay(scenario) == Replayed(sent=1)
    rows = {row["Id"]: (row["Name"], row["Name_before"]) for row in scenario.rows("Singers")}
    assert rows == {1: (None, "n"), 2: (b"hi", None)}, "a row that does not change again has NULL"


@pytest.mark.parametrize("mode", STREAMED)
def test_a_wider_type_is_set_as_the_reason_says_and_keeps_what_is_there(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(
        bigquery_double, mode, [1], columns=(KEY, NAME, NUMBER), values={"Name": "n", "Number": "7"}
    )
    seal([2], columns=(KEY, NAME, DECIMAL), values={"Name": "n", "Number": "7.5"})
    scenario.run()
    (statement,) = follow(scenario)
    assert statement.endswith("ALTER COLUMN Number SET DATA TYPE NUMERIC")
    assert replay(scenario) == Replayed(sent=1)
    assert {row["Id"]: float(str(row["Number"])) for row in scenario.rows("Singers")} == {1: 7, 2: 7.5}


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_whose_keys_type_changed_is_copied_and_dropped_as_the_reason_says(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1], "Singers", "Other")
    dataset, name = scenario.place("Singers")
    recreate(scenario, lambda table: setattr(table, "schema", [_as_text(field) for field in table.schema]))
    seal([2], "Singers", "Other")
    scenario.run()
    (reason,) = reasons_of(scenario)
    assert (
        "column Id is STRING in BigQuery, and would be INT64: drop the table there, and it is created again" in reason
    )
    (statement,) = follow(scenario)
    assert f"CREATE TABLE `double.{dataset}.{name}_before` AS" in statement
    scenario.client.query(f"DROP TABLE `double.{dataset}.{name}`", job_retry=None).result()
    assert replay(scenario) == Replayed(sent=1)
    assert (ids_of(scenario), ids_of(scenario, "Other"), dead_letters_of(scenario)) == ([2], [1, 2], {})


def _as_text(field: bigquery.SchemaField) -> bigquery.SchemaField:
    return bigquery.SchemaField(field.name, "STRING", mode=field.mode) if field.name == "Id" else field


def test_a_key_that_is_missing_is_added_as_the_reason_says(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "merge", [1])
    recreate(scenario, keyless)
    seal([2])
    scenario.run()
    (reason,) = reasons_of(scenario)
    statement = _STATEMENT.findall(reason)[0]
    assert statement.endswith("ADD PRIMARY KEY (Id) NOT ENFORCED")
    scenario.client.query(statement, job_retry=None).result()
    assert replay(scenario) == Replayed(sent=1)
    assert ids_of(scenario) == [2]


def test_a_column_of_the_key_that_is_gone_is_not_advised_to_be_added(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "merge", [1])

    def without_key(table: bigquery.Table) -> None:
        keyless(table)
        table.clustering_fields = None
        typed("Id", "")(table)

    recreate(scenario, without_key)
    seal([2])
    with scenario.sink() as sink, pytest.raises(Exception, match=r"column Id of table .* was dropped") as raised:
        sink.run()
    assert "A key's column cannot be added: restore the table" in str(raised.value)


def test_a_clustered_column_of_a_table_without_a_key_is_not_advised_to_be_renamed() -> None:
    table = bigquery_table(TableSchema.of("T", [TEXT_KEY, NAME]), BigQueryTableOptions("d", "append-only"))
    fields = {field.name.lower(): field for field in table.fields} | {"id": Field("Id", "INT64")}
    (clustered,) = mismatches("p.d.T", table, ExistingTable(fields, (), None, ("Id",)))
    assert clustered.startswith("column Id is INT64 in BigQuery, and would be STRING: drop the table there")
    (free,) = mismatches("p.d.T", table, ExistingTable(fields, (), None))
    assert free.startswith("column Id is INT64 in BigQuery, and would be STRING: ALTER TABLE `p.d.T` RENAME COLUMN Id")


@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only"])
def test_a_column_that_cannot_be_null_is_not_kept_but_a_key_may_be_so(mode: Mode) -> None:
    table = bigquery_table(TableSchema.of("T", [TEXT_KEY, NAME]), BigQueryTableOptions("d", mode))
    fields = {field.name.lower(): replace(field, required=True) for field in table.fields}
    (reason,) = mismatches("p.d.T", table, ExistingTable(fields, table.primary_key, None))
    assert reason == (
        "column Name cannot be NULL in BigQuery, and a change may lack it: ALTER TABLE `p.d.T` ALTER COLUMN Name DROP"
        " NOT NULL"
    )


COLUMNS = [
    KEY,
    DECIMAL,
    ColumnType("Name", '{"code":"STRING"}', False, 2),
    ColumnType("Data", '{"code":"BYTES"}', False, 4),
    ColumnType("Prices", '{"code":"ARRAY","array_element_type":{"code":"NUMERIC"}}', False, 5),
]


def reasons_beside(mode: Mode, *others: bigquery.SchemaField) -> list[str]:
    """The reasons why a table cannot be written that has these columns, as REST shows them, beside or for its own."""
    table = bigquery_table(TableSchema.of("T", COLUMNS), BigQueryTableOptions("d", mode))
    shown = [bigquery.SchemaField.from_api_repr(other.to_api_repr()) for other in others]
    fields = {field.name.lower(): field for field in (*table.fields, *map(_field, shown))}
    defaults = frozenset(other.name.lower() for other in others if other.default_value_expression)
    return list(mismatches("p.d.T", table, ExistingTable(fields, table.primary_key, None, with_default=defaults)))


@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only", "changelog"])
def test_a_column_that_rounds_is_not_written(mode: Mode) -> None:
    (reason,) = reasons_beside(mode, bigquery.SchemaField("Number", "NUMERIC", precision=12, scale=2))
    assert reason == (
        "column Number is NUMERIC(12, 2) in BigQuery, and would be NUMERIC: ALTER TABLE `p.d.T` ALTER COLUMN Number SET"
        " DATA TYPE NUMERIC"
    )
    (reason,) = reasons_beside(mode, bigquery.SchemaField("Number", "NUMERIC", precision=10))
    assert reason.startswith("column Number is NUMERIC(10) in BigQuery")
    repeated = bigquery.SchemaField("Prices", "NUMERIC", mode="REPEATED", precision=12, scale=2)
    (reason,) = reasons_beside(mode, repeated)
    assert "ARRAY<NUMERIC(12, 2)>" in reason
    assert "RENAME COLUMN Prices TO Prices_before" in reason
    assert not reasons_beside(mode, bigquery.SchemaField("Number", "NUMERIC", precision=38, scale=9))


@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only", "changelog"])
@pytest.mark.parametrize(("name", "of_type"), [("Name", "STRING"), ("Data", "BYTES")])
def test_a_column_with_a_greatest_length_is_written_because_it_may_be_spanners_own(
    mode: Mode, name: str, of_type: str
) -> None:
    assert not reasons_beside(mode, bigquery.SchemaField(name, of_type, max_length=3))


def test_a_key_of_texts_may_be_short_but_one_of_numbers_must_not_round() -> None:
    for kind, short, count in (
        ("STRING", Field("Id", "STRING", parameters=(36,)), 0),
        ("NUMERIC", Field("Id", "NUMERIC", parameters=(12, 2)), 1),
    ):
        table = bigquery_table(
            TableSchema.of("T", [ColumnType("Id", f'{{"code":"{kind}"}}', True, 1)]),
            BigQueryTableOptions("d", "merge-load"),
        )
        found = list(mismatches("p.d.T", table, ExistingTable({"id": short}, ("Id",), None)))
        assert len(found) == count
        assert all("drop the table there" in reason for reason in found), "the type of a key's column is fixed"


@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only", "changelog"])
def test_a_column_of_others_may_be_null_or_have_a_default_where_that_is_used(mode: Mode) -> None:
    assert not reasons_beside(mode, bigquery.SchemaField("tenant", "STRING"))
    (reason,) = reasons_beside(mode, bigquery.SchemaField("tenant", "STRING", mode="REQUIRED"))
    assert reason == (
        "column tenant cannot be NULL in BigQuery, and Spanner has none: ALTER TABLE `p.d.T` ALTER COLUMN tenant DROP"
        " NOT NULL"
    )
    default = bigquery.SchemaField("tenant", "STRING", mode="REQUIRED", default_value_expression="'a'")
    assert bool(reasons_beside(mode, default)) == (mode != "merge-load")


def test_a_table_whose_key_has_a_collation_is_not_merged_into() -> None:
    existing = {"id": Field("Id", "STRING", required=True), "name": Field("Name", "STRING")}
    collated = ExistingTable(existing, ("Id",), None, collated=frozenset({"id", "name"}))
    schema = TableSchema.of("T", [TEXT_KEY, NAME])
    for mode in ("merge", "merge-load"):
        (reason,) = mismatches("p.d.T", bigquery_table(schema, BigQueryTableOptions("d", mode)), collated)
        assert reason.startswith(
            "column Id of its key has a collation, by which keys that differ in case are one: drop the table there"
        )
    assert not list(mismatches("p.d.T", bigquery_table(schema, BigQueryTableOptions("d", "append-only")), collated))
