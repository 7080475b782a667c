"""What somebody else does to BigQuery's tables, and what the source does to its own, without Spark.

One clear line, nothing lost, and after the repair it goes on: on the double, and on local-bigquery where it takes SQL.
"""

from collections.abc import Callable

import pytest
from google.cloud import bigquery

from connector.core.records import ColumnType
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.bigquery.commit_log import Ledger
from spark_sink.bigquery.replay import replay_into
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.dead_letters_command import Replayed, replayed
from spark_sink.errors import SinkError
from spark_sink.sink.dead_letters import DeadLetters
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.bigquery.deliveries.trials import (
    KilledError,
    MakeTrial,
    Sealing,
    Trial,
    ids_of,
    killed_at,
    line_of,
)
from tests.spark_sink.bigquery.deliveries.trials import make as make
from tests.spark_sink.spools import KEY, NAME

STREAMED = ("append-only", "changelog", "merge")
BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)
NUMBERS = ColumnType("Numbers", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 4)


def names_of(trial: Trial, column: str = "Name") -> dict[int, object]:
    return {row["Id"]: row.get(column) for row in trial.rows("Singers")}


def letters_of(trial: Trial) -> dict[str, int]:
    """How many letters there are of each table."""
    counted: dict[str, int] = {}
    for file in DeadLetters(str(trial.letters)).files():
        counted[file.table] = counted.get(file.table, 0) + file.count
    return counted


def reasons_of(trial: Trial) -> set[str]:
    return {reason for file in DeadLetters(str(trial.letters)).files() for reason in file.reasons}


def rename_of(trial: Trial, column: str) -> str:
    """What a reason recommends for a column of table Singers whose type is another."""
    place = ".".join((trial.server.project, *trial.place("Singers")))
    merged = (
        ""
        if trial.mode in ("append-only", "changelog")
        else (" until they are written again (or the table is backfilled, once there is a backfill)")
    )
    return (
        f"ALTER TABLE `{place}` RENAME COLUMN {column} TO {column}_before, or DROP COLUMN {column}, and it is added"
        f" anew; rows that are there have NULL in it{merged}"
    )


def replay(trial: Trial, **options: object) -> Replayed:
    letters = DeadLetters(str(trial.letters))
    with replay_into(trial.config(**options)) as into:
        return replayed(letters, letters.files(), into, [])


def like(trial: Trial, table: str = "Singers") -> bigquery.Table:
    """An empty table like one that is there."""
    dataset, name = trial.place(table)
    found = trial.client.get_table(f"{trial.server.project}.{dataset}.{name}")
    made = bigquery.Table(found.reference, schema=found.schema)
    made.clustering_fields = found.clustering_fields
    made.table_constraints = found.table_constraints
    return made


def remake(trial: Trial, change: Callable[[bigquery.Table], None]) -> None:
    """Makes a table anew, empty, as it was but for a change."""
    made = like(trial)
    change(made)
    trial.client.delete_table(made)
    trial.client.create_table(made)


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


def repaired_with_letters(trial: Trial, ids: list[int]) -> Sealing:
    """A table that a changed type has stopped, with letters of these rows; then it is repaired, and empty."""
    seal = Sealing(trial)
    seal([1])
    trial.run()
    remake(trial, typed("Name", "INT64"))
    seal(ids)
    trial.run()
    remake(trial, typed("Name", ""))
    return seal


# What somebody drops


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_somebody_dropped_stops_the_sink_until_it_is_there_and_what_came_since_is_written(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal(range(3))
    trial.run()
    definition = like(trial)
    bigquery_double.drop(*trial.place("Singers"))
    seal(range(3, 5), "Singers", "Other")
    for _ in range(2):
        line = line_of(trial)
        assert line.startswith(f"table double.{trial.dataset}.{trial.place('Singers')[1]} was dropped in BigQuery")
        assert "make an empty one like it" in line
    trial.client.create_table(definition)
    trial.run()
    assert (ids_of(trial), ids_of(trial, "Other")) == ([3, 4], [3, 4])


@pytest.mark.parametrize("mode", STREAMED)
def test_a_table_that_is_dropped_while_it_is_written_ends_the_sink_with_a_line_and_its_rows_come_later(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal(range(3))
    with trial.life() as life:
        life.run()
        definition = like(trial)
        seal(range(3, 5))
        life.only_what_is_sealed()
        bigquery_double.drop(*trial.place("Singers"))
        with pytest.raises(SinkError) as raised:
            life.run()
    name = f"{trial.dataset}.{trial.place('Singers')[1]}"
    assert str(raised.value).startswith(f"cannot write table {name} of BigQuery: it is not there. Restore it")
    trial.client.create_table(definition)
    trial.run()
    assert ids_of(trial) == [3, 4]


@pytest.mark.parametrize("mode", STREAMED)
def test_a_column_that_somebody_dropped_stops_the_sink_and_the_line_tells_how_to_add_it(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    values = {"Name": "n", "Numbers": ["1"]}
    seal(range(3), columns=(KEY, NAME, NUMBERS), values=values)
    trial.run()
    for column, kind in (("Name", "STRING"), ("Numbers", "ARRAY<INT64>")):
        remake(trial, typed(column, ""))
        seal([7], columns=(KEY, NAME, NUMBERS), values=values, mod_type="UPDATE")
        line = line_of(trial)
        place = f"double.{trial.dataset}.{trial.place('Singers')[1]}"
        assert line.startswith(f"column {column} of table {place} was dropped in BigQuery")
        assert f"ADD COLUMN {column} {kind})" in line
        remake(trial, typed(column, kind))
    trial.run()
    assert {row["Id"]: (row["Name"], row["Numbers"]) for row in trial.rows("Singers")} == {7: ("n", [1])}


@pytest.mark.parametrize("mode", STREAMED)
def test_the_line_of_a_dropped_struct_is_a_statement_that_adds_it(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    own = "_metadata_spanner_mod_type" if mode == "changelog" else "datastream_metadata"
    remake(trial, typed(own, ""))
    seal([2])
    kind = {
        "changelog": "STRING",
        "merge": "STRUCT<uuid STRING, source_timestamp INT64>",
        "append-only": "STRUCT<uuid STRING, source_timestamp INT64, change_sequence_number STRING, change_type STRING,"
        " sort_keys ARRAY<STRING>>",
    }[mode]
    assert f"ADD COLUMN {own} {kind})" in line_of(trial)


@pytest.mark.parametrize("mode", ["append-only", "merge-load"])
def test_what_is_dropped_and_added_again_by_sql_is_written_since(
    local_bigquery: LocalBigQuery, make: MakeTrial, mode: str
) -> None:
    trial = make(local_bigquery, mode)
    seal = Sealing(trial)
    seal(range(2))
    trial.run()
    trial.query("ALTER TABLE `{}.Singers` DROP COLUMN Name")
    seal([2])
    assert f"column Name of table local.{trial.dataset}.Singers was dropped" in line_of(trial)
    trial.query("ALTER TABLE `{}.Singers` ADD COLUMN Name STRING")
    trial.run()
    assert names_of(trial) == {0: None, 1: None, 2: "n"}


def test_a_table_that_is_dropped_between_load_and_merge_ends_the_sink_with_a_line_and_its_rows_come_later(
    local_bigquery: LocalBigQuery, make: MakeTrial
) -> None:
    trial = make(local_bigquery, "merge-load")
    seal = Sealing(trial)
    seal(range(2))
    trial.run()
    seal([2])
    with trial.life() as life:
        assert life.plan()
        told = [row for task in life.tasks() for row in life.told(task)]
        definition = like(trial)
        trial.client.delete_table(definition)
        with pytest.raises(SinkError, match=f"cannot use BigQuery's table {trial.dataset}.Singers: ") as raised:
            life.deliver(told)
    assert "\n" not in str(raised.value)
    for _ in range(2):
        assert "was dropped in BigQuery" in line_of(trial)
    trial.client.create_table(definition)
    trial.run()
    assert ids_of(trial) == [2]


# What does not fit any more


@pytest.mark.parametrize("mode", STREAMED)
def test_a_type_that_somebody_changed_stops_that_table_only_and_its_letters_are_replayed_after_the_repair(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1], "Singers", "Other")
    trial.run()
    remake(trial, typed("Name", "INT64"))
    seal([2, 3], "Singers", "Other")
    (said,) = trial.run()
    told = (
        f"table Singers is stopped: column Name is INT64 in BigQuery, and would be STRING: {rename_of(trial, 'Name')}"
    )
    assert said == f"2 rows to 2 tables, 2 to the dead letters at {trial.letters}; {told}, and replay its dead letters"
    assert reasons_of(trial) == {told}
    assert (ids_of(trial), ids_of(trial, "Other")) == ([], [1, 2, 3])

    seal([4], "Singers", "Other")
    trial.run()
    assert report_of(trial.maker.spool, "bigquery").stopped == {"Singers": told}
    assert replay(trial) == Replayed(sent=0, refused=3, left=0)  # nothing is repaired
    assert (letters_of(trial), ids_of(trial, "Other")) == ({"Singers": 3}, [1, 2, 3, 4])

    remake(trial, typed("Name", ""))
    seal([5], "Singers", "Other")
    trial.run()
    assert ids_of(trial) == [], "what comes does not pass what waits"
    assert replay(trial) == Replayed(sent=4)
    assert (letters_of(trial), names_of(trial)) == ({}, {2: "n", 3: "n", 4: "n", 5: "n"})
    seal([6])
    (said,) = trial.run()
    assert (said, ids_of(trial)) == ("1 rows to 1 tables", [2, 3, 4, 5, 6])
    report = report_of(trial.maker.spool, "bigquery")
    assert (report.refused, report.stopped) == (4, {})


def test_a_key_that_somebody_changed_stops_that_table_only(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "merge")
    seal = Sealing(trial)
    seal([1], "Singers", "Other")
    trial.run()
    remake(trial, keyless)
    seal([2], "Singers", "Other")
    trial.run()
    place = ".".join((trial.server.project, *trial.place("Singers")))
    way = f"give it that key (ALTER TABLE `{place}` ADD PRIMARY KEY (Id) NOT ENFORCED), or drop the table there"
    (reason,) = reasons_of(trial)
    assert reason.startswith(
        f"table Singers is stopped: its key is () in BigQuery, and would be (Id): {way}, and it is"
    )
    bigquery_double.drop(*trial.place("Singers"))
    assert replay(trial) == Replayed(sent=1)
    seal([3], "Singers", "Other")
    trial.run()
    assert (ids_of(trial), ids_of(trial, "Other")) == ([2, 3], [1, 2, 3])


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
@pytest.mark.parametrize(
    ("owner", "method", "after"),
    [
        (BigQueryWriter, "finalize", True),
        (Ledger, "note_replay", True),
        (BigQueryWriter, "commit", False),
        (BigQueryWriter, "commit", True),
        (DeadLetters, "replace", False),
        (DeadLetters, "replace", True),
        (Ledger, "forget_replay", False),
    ],
)
def test_letters_whose_replay_is_killed_are_appended_once(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str, owner: type, method: str, after: bool
) -> None:
    trial = make(bigquery_double, mode)
    seal = repaired_with_letters(trial, [2, 3])
    with killed_at(owner, method, after=after), pytest.raises(KilledError):
        replay(trial)
    replay(trial)
    assert (letters_of(trial), ids_of(trial)) == ({}, [2, 3])
    seal([4])
    trial.run()
    assert ids_of(trial) == [2, 3, 4]


def test_letters_that_are_refused_again_stay_with_their_reason_though_the_replay_is_killed(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    altered(seal)
    trial.run()
    remake(trial, typed("Name", ""))
    with killed_at(BigQueryWriter, "commit", after=True), pytest.raises(KilledError):
        replay(trial)
    done = replay(trial)
    assert (done.sent, letters_of(trial)) == (1, {"Singers": 1}), "a text is no bytes"
    assert ["column Name" in reason for reason in reasons_of(trial)] == [True]
    assert ids_of(trial) == [3]


def altered(seal: Sealing) -> None:
    """Rows of the column's old type and then of its new one, in one epoch."""
    seal.epoch(
        seal.records([2], "Singers", "Other", mod_type="UPDATE", values={"Name": "abcd"}),
        seal.records([3], columns=(KEY, BYTES), values={"Name": "aGk="}),
        seal.records([4], "Other"),
    )


@pytest.mark.parametrize("mode", STREAMED)
def test_a_type_that_the_source_changes_stops_that_table_only_and_after_the_repair_it_goes_on(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1, 2], "Singers", "Other")
    trial.run()
    altered(seal)
    (said,) = trial.run()
    why = f"table Singers is stopped: column Name is STRING in BigQuery, and would be BYTES: {rename_of(trial, 'Name')}"
    assert said == f"2 rows to 2 tables, 2 to the dead letters at {trial.letters}; {why}, and replay its dead letters"
    assert reasons_of(trial) == {why}
    remake(trial, typed("Name", ""))  # and with it what rows had there
    done = replay(trial)
    assert (done.sent, letters_of(trial)) == (1, {"Singers": 1}), "a text is no bytes"
    assert ["column Name" in reason for reason in reasons_of(trial)] == [True]
    seal([5], columns=(KEY, BYTES), values={"Name": "aGk="})
    trial.run()
    assert names_of(trial) == {3: b"hi", 5: b"hi"}
    assert set(ids_of(trial, "Other")) == {1, 2, 4}


def test_a_changed_type_that_is_repaired_by_sql_goes_on_with_what_rows_had_before(
    local_bigquery: LocalBigQuery, make: MakeTrial
) -> None:
    trial = make(local_bigquery, "merge-load")
    seal = Sealing(trial)
    seal([1, 2], values={"Name": "old"})
    trial.run()
    seal([1, 3], columns=(KEY, BYTES), values={"Name": "aGk="}, mod_type="UPDATE")
    trial.run()
    assert letters_of(trial) == {"Singers": 2}
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    assert replay(trial) == Replayed(sent=2)
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert trial.run() == ["1 rows to 1 tables"]
    assert names_of(trial) == {1: b"hi", 2: None, 3: b"hi", 4: b"hi"}
    assert names_of(trial, "Name_before") == {1: "old", 2: "old", 3: None, 4: None}


def test_rows_of_a_columns_old_and_new_type_in_a_new_tables_first_micro_batch_are_not_misread(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal.epoch(
        seal.records([1], values={"Name": "abcd"}),  # which could be read as bytes
        seal.records([2], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    trial.run()
    assert names_of(trial) == {2: b"hi"}
    assert letters_of(trial) == {"Singers": 1}


@pytest.mark.parametrize(
    ("killed", "left"),
    [
        (1, 6),  # two files of those before, and two rows that came
        (2, 2),  # the last file, which is merged already
    ],
)
def test_what_comes_does_not_pass_the_letters_that_a_killed_replay_has_left(
    local_bigquery: LocalBigQuery, make: MakeTrial, killed: int, left: int
) -> None:
    """Where columns are merged one by one, an older change that comes late does nothing."""
    trial = make(local_bigquery, "merge-load")
    seal = Sealing(trial)
    columns = (KEY, NAME, BORN)
    seal([1, 2], columns=columns, values={"Name": "a", "Born": "1"})
    trial.run()
    for changed in ({"Name": "aGk="}, {"Born": "2"}):
        seal([1, 2], columns=(KEY, BYTES, BORN), values=changed, mod_type="UPDATE")
        trial.run()
    trial.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    with killed_at(DeadLetters, "replace", call=killed), pytest.raises(KilledError):
        replay(trial)
    seal([1], columns=(KEY, BYTES, BORN), values={"Name": None}, mod_type="UPDATE")
    seal([2], columns=(KEY, BYTES, BORN), values={}, mod_type="DELETE")
    trial.run()
    assert letters_of(trial) == {"Singers": left}
    assert replay(trial) == Replayed(sent=left)
    assert [(row["Id"], row["Name"], row["Born"]) for row in trial.rows("Singers")] == [(1, None, 2)]


@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_hold_nothing_in_the_column_whose_type_changed_are_written_and_a_delete_is_merged_by_its_key(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal.epoch(
        seal.records([1], values={"Name": None}),
        seal.records([2], values={}),
        seal.records([2], values={"Name": "abcd"}, mod_type="DELETE"),
        seal.records([3], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    trial.run()
    if mode == "merge":
        assert (names_of(trial), letters_of(trial)) == ({1: None, 3: b"hi"}, {})
    else:
        assert (names_of(trial), letters_of(trial)) == ({1: None, 2: None, 3: b"hi"}, {"Singers": 1})
        assert reasons_of(trial) == {"column Name was STRING when the row was changed, and is BYTES since"}


# Tables that cannot be


def test_a_table_without_a_key_is_stopped_where_it_would_be_merged(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "merge")
    seal = Sealing(trial)
    keyless = ColumnType("Id", '{"code":"INT64"}', False, 1)
    seal([1], "Keyless", columns=(keyless, NAME))
    seal([1])
    trial.run()
    assert (letters_of(trial), ids_of(trial)) == ({"Keyless": 1}, [1])
    assert {reason.partition(":")[0] for reason in reasons_of(trial)} == {"table Keyless is stopped"}


def test_fields_are_compared_without_their_case(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    remake(trial, typed("Name", "STRING", called="NAME"))
    seal([2])
    trial.run()
    assert [row["NAME"] for row in trial.rows("Singers")] == ["n"]
