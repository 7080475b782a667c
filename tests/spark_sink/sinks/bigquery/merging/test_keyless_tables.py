"""A table with ``PRIMARY KEY ()``, which has at most one row, is merged by load jobs; a deleted row is marked."""

import json
from dataclasses import replace
from random import Random

import pytest
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.spool.consumers import record as record_progress
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.bigquery.client import ExistingTable
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.tables.mismatches import mismatches
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, bigquery_table
from tests.connector.builders import AT
from tests.local_bigquery import LocalBigQuery
from tests.property import bigquery_merging
from tests.property.bigquery_merging import Row
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario, Scenario
from tests.spark_sink.sinks.bigquery.merging.statements import Statements
from tests.spark_sink.sinks.bigquery.tables.edits import reasons_of, recreate, replay
from tests.spark_sink.spools import START, record

COLUMNS = (
    ColumnType("Name", '{"code":"STRING"}', False, 1),
    ColumnType("Doc", '{"code":"JSON"}', False, 2),
)
SCHEMA = TableSchema.of("Singers", COLUMNS)


def change(at: int, mod_type: str, **values: str | None) -> DataChangeRecord:
    """A change of the only row; an update may name a part of its columns."""
    named = json.dumps(values)
    mod = Mod("{}", "{}", named) if mod_type == "DELETE" else Mod("{}", named, "{}")
    columns = tuple(column for column in COLUMNS if column.name in values)
    return replace(record(at, mod_type=mod_type, columns=columns), mods=(mod,))


def found(scenario: Scenario) -> list[tuple[str | None, object, bool]]:
    """The rows, and whether each is marked as deleted."""
    return [(row["Name"], row["Doc"], row["datastream_metadata"]["is_deleted"]) for row in scenario.rows("Singers")]


@pytest.mark.long
def test_the_row_is_merged_and_marked_when_it_is_deleted_and_a_repetition_changes_nothing(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
    steps = [
        (change(START + SECOND, "INSERT", Name="a", Doc='{"x":1}'), ("a", {"x": 1}, False)),
        (change(START + 2 * SECOND, "UPDATE", Name="b"), ("b", {"x": 1}, False)),
        (change(START + 3 * SECOND, "DELETE", Name="b", Doc='{"x":1}'), (None, None, True)),
        (change(START + 4 * SECOND, "INSERT", Name="c"), ("c", None, False)),
    ]
    for sealed, row in steps:
        scenario.maker.seal(sealed)
        scenario.run()
        assert found(scenario) == [row]
    record_progress(scenario.maker.spool, "bigquery", 0, now=START)
    scenario.checkpoint = Checkpoint([])
    scenario.run()
    assert found(scenario) == [("c", None, False)]


@pytest.mark.long
def test_a_table_whose_metadata_cannot_mark_the_row_is_stopped_until_it_is_dropped(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
    scenario.maker.seal(change(START + SECOND, "INSERT", Name="a", Doc=None))
    scenario.run()

    def unmarked(table: bigquery.Table) -> None:
        *others, metadata = table.schema
        kept = [field for field in metadata.fields if field.name != "is_deleted"]
        table.schema = [*others, SchemaField(metadata.name, "STRUCT", fields=kept)]

    recreate(scenario, unmarked)
    scenario.maker.seal(change(START + 2 * SECOND, "UPDATE", Name="b", Doc=None))
    scenario.run()
    (reason,) = reasons_of(scenario)
    assert "its datastream_metadata lacks the field is_deleted of tables without a key: drop the table there" in reason
    scenario.query("DROP TABLE `{}.Singers`")
    assert replay(scenario) == Replayed(sent=1)
    assert found(scenario) == [("b", None, False)]


def test_a_key_that_is_lost_or_gained_is_a_reason_to_drop_the_table() -> None:
    options = BigQueryTableOptions("d", "merge-load")
    keyless, keyed = bigquery_table(SCHEMA, options), bigquery_table(bigquery_merging.SCHEMA, options)

    def reasons(wanted: BigQueryTable, there: BigQueryTable) -> list[str]:
        fields = {field.name.lower(): field for field in there.fields}
        return list(mismatches("p.d.Singers", wanted, ExistingTable(fields, there.primary_key, None)))

    (lost,) = reasons(keyless, keyed)
    assert lost.startswith("its key is (Id, Region) in BigQuery, and would be (): drop the table there")
    (gained,) = reasons(keyed, keyless)
    assert gained.startswith("its key is () in BigQuery, and would be (Id, Region): drop the table there")


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))])
def test_beside_a_backfill_the_row_is_that_of_the_source(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, seed: int
) -> None:
    random = Random(seed)
    scenario = make_scenario(local_bigquery, "merge-load")
    statements = Statements(scenario, SCHEMA)
    row: Row | None = None
    lines, read = [], b""
    read_at = random.randrange(4, 9)
    for number in range(12):
        if number == read_at and row is not None:
            rows = bigquery_merging.snapshot_events(["{}"], [json.dumps(row)], AT + number - 1, SCHEMA)
            read = bigquery_merging.lines_of(RowMerger(statements.table), rows)
        mod_type = "INSERT" if row is None else random.choice(["UPDATE", "UPDATE", "DELETE"])
        named = {} if mod_type == "DELETE" else {name: str(number) for name in random.sample(["Name", "Doc"], 1)}
        row = None if mod_type == "DELETE" else {"Name": None, "Doc": None, **(row or {}), **named}
        if number >= read_at:  # the stream begins with the backfill's timestamp
            event = bigquery_merging.enveloped(change(AT + number, mod_type, **named), schema=SCHEMA)
            lines.append(bigquery_merging.lines_of(RowMerger(statements.table), event))
    backfill_at = random.randrange(len(lines) + 1)
    for number in range(len(lines) + 1):
        if number == backfill_at and read:
            statements.load(read)
            statements.backfill()
        if number < len(lines):
            statements.load(lines[number])
            statements.note()
            statements.merge()
    kept = [(name, doc) for name, doc, is_deleted in found(scenario) if not is_deleted]
    assert kept == ([] if row is None else [(row["Name"], row["Doc"] and json.loads(row["Doc"]))])
