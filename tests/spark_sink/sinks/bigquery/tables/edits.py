"""Changes that somebody makes to a table in BigQuery, and what a scenario shows of its dead letters."""

from collections.abc import Callable

from google.cloud import bigquery

from connector.core.records import ColumnType
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.sinks.bigquery.replay import replay_into
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Scenario,
    Sealing,
)

STREAMED = ("append-only", "changelog", "merge")
BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)
NUMBERS = ColumnType("Numbers", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 4)


def names_of(scenario: Scenario, column: str = "Name") -> dict[int, object]:
    return {row["Id"]: row.get(column) for row in scenario.rows("Singers")}


def dead_letters_of(scenario: Scenario) -> dict[str, int]:
    """The number of dead letters of each table."""
    counted: dict[str, int] = {}
    for file in DeadLetters(str(scenario.dead_letters)).files():
        counted[file.table] = counted.get(file.table, 0) + file.count
    return counted


def reasons_of(scenario: Scenario) -> set[str]:
    return {reason for file in DeadLetters(str(scenario.dead_letters)).files() for reason in file.reasons}


def rename_of(scenario: Scenario, column: str) -> str:
    """The recommended statement for a column of table Singers with another type."""
    place = ".".join((scenario.server.project, *scenario.place("Singers")))
    merged = (
        ""
        if scenario.mode in ("append-only", "changelog")
        else (" until they are written again (or the table is backfilled, once there is a backfill)")
    )
    return (
        f"ALTER TABLE `{place}` RENAME COLUMN {column} TO {column}_before, or DROP COLUMN {column}, and it is added"
        f" again; existing rows have NULL in it{merged}"
    )


def replay(scenario: Scenario, **options: object) -> Replayed:
    letters = DeadLetters(str(scenario.dead_letters))
    with replay_into(scenario.config(**options)) as into:
        return replayed(letters, letters.files(), into, [])


def like(scenario: Scenario, table: str = "Singers") -> bigquery.Table:
    """An empty table like an existing one."""
    dataset, name = scenario.place(table)
    found = scenario.client.get_table(f"{scenario.server.project}.{dataset}.{name}")
    made = bigquery.Table(found.reference, schema=found.schema)
    made.clustering_fields = found.clustering_fields
    made.table_constraints = found.table_constraints
    return made


def recreate(scenario: Scenario, change: Callable[[bigquery.Table], None]) -> None:
    """Creates a table again, empty and with a change."""
    made = like(scenario)
    change(made)
    scenario.client.delete_table(made)
    scenario.client.create_table(made)


def keyless(table: bigquery.Table) -> None:
    table.table_constraints = None


def typed(name: str, kind: str, *, called: str = "") -> Callable[[bigquery.Table], None]:
    """Gives a column another type, or none: then there is no such column."""
    mode = "REPEATED" if kind.startswith("ARRAY") else "NULLABLE"
    new = bigquery.SchemaField(called or name, kind.removeprefix("ARRAY<").removesuffix(">"), mode=mode)

    def change(table: bigquery.Table) -> None:
        others = [field for field in table.schema if field.name != name]
        table.schema = [*others, new] if kind else others

    return change


def repaired_with_dead_letters(scenario: Scenario, ids: list[int]) -> Sealing:
    """A table that was stopped by a changed type, with dead letters of these rows; then it is repaired, and empty."""
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    recreate(scenario, typed("Name", "INT64"))
    seal(ids)
    scenario.run()
    recreate(scenario, typed("Name", ""))
    return seal
