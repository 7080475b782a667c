"""What somebody else does to BigQuery's tables, and what the source does to its own, without Spark.

One clear line, nothing lost, and after the repair it goes on: on the double, and on local-bigquery where it takes SQL.
"""

from collections.abc import Callable

import pytest
from google.cloud import bigquery

from connector.core.records import ColumnType
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.bigquery.commit_log import CommitLog
from spark_sink.bigquery.replay import replay_into
from spark_sink.bigquery.writing.writer import BigQueryWriter
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.errors import SinkError
from spark_sink.sink.dead_letters import DeadLetters
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.bigquery.deliveries.scenarios import (
    KilledError,
    MakeScenario,
    Scenario,
    Sealing,
    ids_of,
    killed_at,
    line_of,
)
from tests.spark_sink.bigquery.deliveries.scenarios import make as make
from tests.spark_sink.spools import KEY, NAME

STREAMED = ("append-only", "changelog", "merge")
BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)
NUMBERS = ColumnType("Numbers", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 4)


def names_of(scenario: Scenario, column: str = "Name") -> dict[int, object]:
    return {row["Id"]: row.get(column) for row in scenario.rows("Singers")}


def letters_of(scenario: Scenario) -> dict[str, int]:
    """How many letters there are of each table."""
    counted: dict[str, int] = {}
    for file in DeadLetters(str(scenario.dead_letters)).files():
        counted[file.table] = counted.get(file.table, 0) + file.count
    return counted


def reasons_of(scenario: Scenario) -> set[str]:
    return {reason for file in DeadLetters(str(scenario.dead_letters)).files() for reason in file.reasons}


def rename_of(scenario: Scenario, column: str) -> str:
    """What a reason recommends for a column of table Singers whose type is another."""
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
    """An empty table like one that is there."""
    dataset, name = scenario.place(table)
    found = scenario.client.get_table(f"{scenario.server.project}.{dataset}.{name}")
    made = bigquery.Table(found.reference, schema=found.schema)
    made.clustering_fields = found.clustering_fields
    made.table_constraints = found.table_constraints
    return made


def remake(scenario: Scenario, change: Callable[[bigquery.Table], None]) -> None:
    """Makes a table anew, empty, as it was but for a change."""
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


def repaired_with_letters(scenario: Scenario, ids: list[int]) -> Sealing:
    """A table that a changed type has stopped, with letters of these rows; then it is repaired, and empty."""
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    remake(scenario, typed("Name", "INT64"))
    seal(ids)
    scenario.run()
    remake(scenario, typed("Name", ""))
    return seal


# What somebody drops


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_somebody_dropped_stops_the_sink_until_it_is_there_and_what_came_since_is_written(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal(range(3))
    scenario.run()
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
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
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
    assert str(raised.value).startswith(f"cannot write table {name} of BigQuery: it does not exist. Restore it")
    scenario.client.create_table(definition)
    scenario.run()
    assert ids_of(scenario) == [3, 4]


@pytest.mark.parametrize("mode", STREAMED)
def test_a_column_that_somebody_dropped_stops_the_sink_and_the_line_tells_how_to_add_it(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    values = {"Name": "n", "Numbers": ["1"]}
    seal(range(3), columns=(KEY, NAME, NUMBERS), values=values)
    scenario.run()
    for column, kind in (("Name", "STRING"), ("Numbers", "ARRAY<INT64>")):
        remake(scenario, typed(column, ""))
        seal([7], columns=(KEY, NAME, NUMBERS), values=values, mod_type="UPDATE")
        line = line_of(scenario)
        place = f"double.{scenario.dataset}.{scenario.place('Singers')[1]}"
        assert line.startswith(f"column {column} of table {place} was dropped in BigQuery")
        assert f"ADD COLUMN {column} {kind})" in line
        remake(scenario, typed(column, kind))
    scenario.run()
    assert {row["Id"]: (row["Name"], row["Numbers"]) for row in scenario.rows("Singers")} == {7: ("n", [1])}


@pytest.mark.parametrize("mode", STREAMED)
def test_the_line_of_a_dropped_struct_is_a_statement_that_adds_it(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    own = "_metadata_spanner_mod_type" if mode == "changelog" else "datastream_metadata"
    remake(scenario, typed(own, ""))
    seal([2])
    kind = {
        "changelog": "STRING",
        "merge": "STRUCT<uuid STRING, source_timestamp INT64>",
        "append-only": "STRUCT<uuid STRING, source_timestamp INT64, change_sequence_number STRING, change_type STRING,"
        " sort_keys ARRAY<STRING>>",
    }[mode]
    assert f"ADD COLUMN {own} {kind})" in line_of(scenario)


@pytest.mark.parametrize("mode", ["append-only", "merge-load"])
def test_what_is_dropped_and_added_again_by_sql_is_written_since(
    local_bigquery: LocalBigQuery, make: MakeScenario, mode: str
) -> None:
    scenario = make(local_bigquery, mode)
    seal = Sealing(scenario)
    seal(range(2))
    scenario.run()
    scenario.query("ALTER TABLE `{}.Singers` DROP COLUMN Name")
    seal([2])
    assert f"column Name of table local.{scenario.dataset}.Singers was dropped" in line_of(scenario)
    scenario.query("ALTER TABLE `{}.Singers` ADD COLUMN Name STRING")
    scenario.run()
    assert names_of(scenario) == {0: None, 1: None, 2: "n"}


def test_a_table_that_is_dropped_between_load_and_merge_ends_the_sink_with_a_line_and_its_rows_come_later(
    local_bigquery: LocalBigQuery, make: MakeScenario
) -> None:
    scenario = make(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    seal(range(2))
    scenario.run()
    seal([2])
    with scenario.sink() as sink:
        assert sink.plan()
        told = [row for task in sink.tasks() for row in sink.reports(task)]
        definition = like(scenario)
        scenario.client.delete_table(definition)
        with pytest.raises(SinkError, match=f"cannot use BigQuery's table {scenario.dataset}.Singers: ") as raised:
            sink.deliver(told)
    assert "\n" not in str(raised.value)
    for _ in range(2):
        assert "was dropped in BigQuery" in line_of(scenario)
    scenario.client.create_table(definition)
    scenario.run()
    assert ids_of(scenario) == [2]


# What does not fit any more


@pytest.mark.parametrize("mode", STREAMED)
def test_a_type_that_somebody_changed_stops_that_table_only_and_its_letters_are_replayed_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1], "Singers", "Other")
    scenario.run()
    remake(scenario, typed("Name", "INT64"))
    seal([2, 3], "Singers", "Other")
    (said,) = scenario.run()
    repair = rename_of(scenario, "Name")
    told = f"table Singers is stopped: column Name is INT64 in BigQuery, and would be STRING: {repair}"
    assert (
        said
        == f"2 rows to 2 tables, 2 to the dead letters at {scenario.dead_letters}; {told}, and replay its dead letters"
    )
    assert reasons_of(scenario) == {told}
    assert (ids_of(scenario), ids_of(scenario, "Other")) == ([], [1, 2, 3])

    seal([4], "Singers", "Other")
    scenario.run()
    assert report_of(scenario.maker.spool, "bigquery").stopped == {"Singers": told}
    assert replay(scenario) == Replayed(sent=0, refused=3, left=0)  # nothing is repaired
    assert (letters_of(scenario), ids_of(scenario, "Other")) == ({"Singers": 3}, [1, 2, 3, 4])

    remake(scenario, typed("Name", ""))
    seal([5], "Singers", "Other")
    scenario.run()
    assert ids_of(scenario) == [], "what comes does not pass what waits"
    assert replay(scenario) == Replayed(sent=4)
    assert (letters_of(scenario), names_of(scenario)) == ({}, {2: "n", 3: "n", 4: "n", 5: "n"})
    seal([6])
    (said,) = scenario.run()
    assert (said, ids_of(scenario)) == ("1 rows to 1 tables", [2, 3, 4, 5, 6])
    report = report_of(scenario.maker.spool, "bigquery")
    assert (report.refused, report.stopped) == (4, {})


def test_a_key_that_somebody_changed_stops_that_table_only(bigquery_double: BigQueryDouble, make: MakeScenario) -> None:
    scenario = make(bigquery_double, "merge")
    seal = Sealing(scenario)
    seal([1], "Singers", "Other")
    scenario.run()
    remake(scenario, keyless)
    seal([2], "Singers", "Other")
    scenario.run()
    place = ".".join((scenario.server.project, *scenario.place("Singers")))
    way = f"give it that key (ALTER TABLE `{place}` ADD PRIMARY KEY (Id) NOT ENFORCED), or drop the table there"
    (reason,) = reasons_of(scenario)
    assert reason.startswith(
        f"table Singers is stopped: its key is () in BigQuery, and would be (Id): {way}, and it is"
    )
    bigquery_double.drop(*scenario.place("Singers"))
    assert replay(scenario) == Replayed(sent=1)
    seal([3], "Singers", "Other")
    scenario.run()
    assert (ids_of(scenario), ids_of(scenario, "Other")) == ([2, 3], [1, 2, 3])


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
@pytest.mark.parametrize(
    ("owner", "method", "after"),
    [
        (BigQueryWriter, "finalize", True),
        (CommitLog, "enter_replay", True),
        (BigQueryWriter, "commit", False),
        (BigQueryWriter, "commit", True),
        (DeadLetters, "replace", False),
        (DeadLetters, "replace", True),
        (CommitLog, "forget_replay", False),
    ],
)
def test_letters_whose_replay_is_killed_are_appended_once(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str, owner: type, method: str, after: bool
) -> None:
    scenario = make(bigquery_double, mode)
    seal = repaired_with_letters(scenario, [2, 3])
    with killed_at(owner, method, after=after), pytest.raises(KilledError):
        replay(scenario)
    replay(scenario)
    assert (letters_of(scenario), ids_of(scenario)) == ({}, [2, 3])
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [2, 3, 4]


def test_letters_that_are_refused_again_stay_with_their_reason_though_the_replay_is_killed(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    altered(seal)
    scenario.run()
    remake(scenario, typed("Name", ""))
    with killed_at(BigQueryWriter, "commit", after=True), pytest.raises(KilledError):
        replay(scenario)
    done = replay(scenario)
    assert (done.sent, letters_of(scenario)) == (1, {"Singers": 1}), "a text is no bytes"
    assert ["column Name" in reason for reason in reasons_of(scenario)] == [True]
    assert ids_of(scenario) == [3]


def altered(seal: Sealing) -> None:
    """Rows of the column's old type and then of its new one, in one epoch."""
    seal.epoch(
        seal.records([2], "Singers", "Other", mod_type="UPDATE", values={"Name": "abcd"}),
        seal.records([3], columns=(KEY, BYTES), values={"Name": "aGk="}),
        seal.records([4], "Other"),
    )


@pytest.mark.parametrize("mode", STREAMED)
def test_a_type_that_the_source_changes_stops_that_table_only_and_after_the_repair_it_goes_on(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal([1, 2], "Singers", "Other")
    scenario.run()
    altered(seal)
    (said,) = scenario.run()
    repair = rename_of(scenario, "Name")
    why = f"table Singers is stopped: column Name is STRING in BigQuery, and would be BYTES: {repair}"
    assert (
        said
        == f"2 rows to 2 tables, 2 to the dead letters at {scenario.dead_letters}; {why}, and replay its dead letters"
    )
    assert reasons_of(scenario) == {why}
    remake(scenario, typed("Name", ""))  # and with it what rows had there
    done = replay(scenario)
    assert (done.sent, letters_of(scenario)) == (1, {"Singers": 1}), "a text is no bytes"
    assert ["column Name" in reason for reason in reasons_of(scenario)] == [True]
    seal([5], columns=(KEY, BYTES), values={"Name": "aGk="})
    scenario.run()
    assert names_of(scenario) == {3: b"hi", 5: b"hi"}
    assert set(ids_of(scenario, "Other")) == {1, 2, 4}


def test_a_changed_type_that_is_repaired_by_sql_goes_on_with_what_rows_had_before(
    local_bigquery: LocalBigQuery, make: MakeScenario
) -> None:
    scenario = make(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    seal([1, 2], values={"Name": "old"})
    scenario.run()
    seal([1, 3], columns=(KEY, BYTES), values={"Name": "aGk="}, mod_type="UPDATE")
    scenario.run()
    assert letters_of(scenario) == {"Singers": 2}
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    assert replay(scenario) == Replayed(sent=2)
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert scenario.run() == ["1 rows to 1 tables"]
    assert names_of(scenario) == {1: b"hi", 2: None, 3: b"hi", 4: b"hi"}
    assert names_of(scenario, "Name_before") == {1: "old", 2: "old", 3: None, 4: None}


def test_rows_of_a_columns_old_and_new_type_in_a_new_tables_first_micro_batch_are_not_misread(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal.epoch(
        seal.records([1], values={"Name": "abcd"}),  # which could be read as bytes
        seal.records([2], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    scenario.run()
    assert names_of(scenario) == {2: b"hi"}
    assert letters_of(scenario) == {"Singers": 1}


@pytest.mark.parametrize(
    ("killed", "left"),
    [
        (1, 6),  # two files of those before, and two rows that came
        (2, 2),  # the last file, which is merged already
    ],
)
def test_what_comes_does_not_pass_the_letters_that_a_killed_replay_has_left(
    local_bigquery: LocalBigQuery, make: MakeScenario, killed: int, left: int
) -> None:
    """Where columns are merged one by one, an older change that comes late does nothing."""
    scenario = make(local_bigquery, "merge-load")
    seal = Sealing(scenario)
    columns = (KEY, NAME, BORN)
    seal([1, 2], columns=columns, values={"Name": "a", "Born": "1"})
    scenario.run()
    for changed in ({"Name": "aGk="}, {"Born": "2"}):
        seal([1, 2], columns=(KEY, BYTES, BORN), values=changed, mod_type="UPDATE")
        scenario.run()
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    with killed_at(DeadLetters, "replace", call=killed), pytest.raises(KilledError):
        replay(scenario)
    seal([1], columns=(KEY, BYTES, BORN), values={"Name": None}, mod_type="UPDATE")
    seal([2], columns=(KEY, BYTES, BORN), values={}, mod_type="DELETE")
    scenario.run()
    assert letters_of(scenario) == {"Singers": left}
    assert replay(scenario) == Replayed(sent=left)
    assert [(row["Id"], row["Name"], row["Born"]) for row in scenario.rows("Singers")] == [(1, None, 2)]


@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_hold_nothing_in_the_column_whose_type_changed_are_written_and_a_delete_is_merged_by_its_key(
    bigquery_double: BigQueryDouble, make: MakeScenario, mode: str
) -> None:
    scenario = make(bigquery_double, mode)
    seal = Sealing(scenario)
    seal.epoch(
        seal.records([1], values={"Name": None}),
        seal.records([2], values={}),
        seal.records([2], values={"Name": "abcd"}, mod_type="DELETE"),
        seal.records([3], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    scenario.run()
    if mode == "merge":
        assert (names_of(scenario), letters_of(scenario)) == ({1: None, 3: b"hi"}, {})
    else:
        assert (names_of(scenario), letters_of(scenario)) == ({1: None, 2: None, 3: b"hi"}, {"Singers": 1})
        assert reasons_of(scenario) == {"column Name was STRING when the row was changed, and is BYTES since"}


# Tables that cannot be


def test_a_table_without_a_key_is_stopped_where_it_would_be_merged(
    bigquery_double: BigQueryDouble, make: MakeScenario
) -> None:
    scenario = make(bigquery_double, "merge")
    seal = Sealing(scenario)
    keyless = ColumnType("Id", '{"code":"INT64"}', False, 1)
    seal([1], "Keyless", columns=(keyless, NAME))
    seal([1])
    scenario.run()
    assert (letters_of(scenario), ids_of(scenario)) == ({"Keyless": 1}, [1])
    assert {reason.partition(":")[0] for reason in reasons_of(scenario)} == {"table Keyless is stopped"}


def test_fields_are_compared_without_their_case(bigquery_double: BigQueryDouble, make: MakeScenario) -> None:
    scenario = make(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal([1])
    scenario.run()
    remake(scenario, typed("Name", "STRING", called="NAME"))
    seal([2])
    scenario.run()
    assert [row["NAME"] for row in scenario.rows("Singers")] == ["n"]
