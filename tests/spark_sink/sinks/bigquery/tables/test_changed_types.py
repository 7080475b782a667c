"""Columns and keys whose type changed, in BigQuery or in the source, without Spark.

Only that table is stopped; its rows are dead letters, which are replayed after the repair.
"""

from pathlib import Path
from typing import NoReturn

import pytest

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import Replayed
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.rows.type_changes import FormerTypes
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    KilledError,
    MakeScenario,
    Sealing,
    ids_of,
    killed_at,
)
from tests.spark_sink.sinks.bigquery.tables.edits import (
    BORN,
    BYTES,
    STREAMED,
    dead_letters_of,
    keyless,
    names_of,
    reasons_of,
    recreate,
    rename_of,
    repaired_with_dead_letters,
    replay,
    typed,
)
from tests.spark_sink.spools import KEY, NAME, START, SpoolMaker, record

# What does not fit any more


@pytest.mark.parametrize("mode", STREAMED)
def test_a_type_that_somebody_changed_stops_that_table_only_and_its_dead_letters_are_replayed_after_the_repair(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1], "Singers", "Other")
    recreate(scenario, typed("Name", "INT64"))
    seal([2, 3], "Singers", "Other")
    (said,) = scenario.run()
    reason = (
        "table Singers is stopped: column Name is INT64 in BigQuery, and would be STRING:"
        f" {rename_of(scenario, 'Name')}"
    )
    rows = f"2 rows to 2 tables, 2 to the dead letters at {scenario.dead_letters}"
    assert said == f"{rows}; {reason}, and replay its dead letters"
    assert reasons_of(scenario) == {reason}
    assert (ids_of(scenario), ids_of(scenario, "Other")) == ([], [1, 2, 3])

    seal([4], "Singers", "Other")
    scenario.run()
    assert report_of(scenario.maker.spool, "bigquery").stopped == {"Singers": reason}
    assert replay(scenario) == Replayed(sent=0, rejected=3, left=0)  # nothing is repaired
    assert (dead_letters_of(scenario), ids_of(scenario, "Other")) == ({"Singers": 3}, [1, 2, 3, 4])

    recreate(scenario, typed("Name", ""))
    seal([5], "Singers", "Other")
    scenario.run()
    assert ids_of(scenario) == [], "what comes does not pass what waits"
    assert replay(scenario) == Replayed(sent=4)
    assert (dead_letters_of(scenario), names_of(scenario)) == ({}, {2: "n", 3: "n", 4: "n", 5: "n"})
    seal([6])
    (said,) = scenario.run()
    assert (said, ids_of(scenario)) == ("1 rows to 1 tables", [2, 3, 4, 5, 6])
    report = report_of(scenario.maker.spool, "bigquery")
    assert (report.refused, report.stopped) == (4, {})


def test_a_key_that_somebody_changed_stops_that_table_only(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "merge", [1], "Singers", "Other")
    recreate(scenario, keyless)
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


@pytest.mark.long(but=4)
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
def test_dead_letters_whose_replay_is_killed_are_appended_once(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str, owner: type, method: str, after: bool
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = repaired_with_dead_letters(scenario, [2, 3])
    with killed_at(owner, method, after=after), pytest.raises(KilledError):
        replay(scenario)
    replay(scenario)
    assert (dead_letters_of(scenario), ids_of(scenario)) == ({}, [2, 3])
    seal([4])
    scenario.run()
    assert ids_of(scenario) == [2, 3, 4]


def test_dead_letters_that_are_rejected_again_stay_with_their_reason_though_the_replay_is_killed(
    bigquery_double: BigQueryDouble, delivered: Delivered
) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    altered(seal)
    scenario.run()
    recreate(scenario, typed("Name", ""))
    with killed_at(BigQueryWriter, "commit", after=True), pytest.raises(KilledError):
        replay(scenario)
    done = replay(scenario)
    assert (done.sent, dead_letters_of(scenario)) == (1, {"Singers": 1}), "a text is no bytes"
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
def test_a_type_that_the_source_changes_stops_that_table_only_and_after_the_repair_it_continues(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1, 2], "Singers", "Other")
    altered(seal)
    (said,) = scenario.run()
    why = (
        "table Singers is stopped: column Name is STRING in BigQuery, and would be BYTES:"
        f" {rename_of(scenario, 'Name')}"
    )
    assert (
        said
        == f"2 rows to 2 tables, 2 to the dead letters at {scenario.dead_letters}; {why}, and replay its dead letters"
    )
    assert reasons_of(scenario) == {why}
    recreate(scenario, typed("Name", ""))  # and with it what rows had there
    done = replay(scenario)
    assert (done.sent, dead_letters_of(scenario)) == (1, {"Singers": 1}), "a text is no bytes"
    assert ["column Name" in reason for reason in reasons_of(scenario)] == [True]
    seal([5], columns=(KEY, BYTES), values={"Name": "aGk="})
    scenario.run()
    assert names_of(scenario) == {3: b"hi", 5: b"hi"}
    assert set(ids_of(scenario, "Other")) == {1, 2, 4}


@pytest.mark.long
def test_a_changed_type_that_is_repaired_by_sql_continues_with_what_rows_had_before(
    local_bigquery: LocalBigQuery, delivered: Delivered
) -> None:
    scenario, seal = delivered(local_bigquery, "merge-load", [1, 2], values={"Name": "old"})
    seal([1, 3], columns=(KEY, BYTES), values={"Name": "aGk="}, mod_type="UPDATE")
    scenario.run()
    assert dead_letters_of(scenario) == {"Singers": 2}
    scenario.query("ALTER TABLE `{}.Singers` RENAME COLUMN Name TO Name_before")
    assert replay(scenario) == Replayed(sent=2)
    seal([4], columns=(KEY, BYTES), values={"Name": "aGk="})
    assert scenario.run() == ["1 rows to 1 tables"]
    assert names_of(scenario) == {1: b"hi", 2: None, 3: b"hi", 4: b"hi"}
    assert names_of(scenario, "Name_before") == {1: "old", 2: "old", 3: None, 4: None}


def test_rows_of_a_columns_old_and_new_type_in_a_new_tables_first_micro_batch_are_not_misread(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    seal = Sealing(scenario)
    seal.epoch(
        seal.records([1], values={"Name": "abcd"}),  # which could be read as bytes
        seal.records([2], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    scenario.run()
    assert names_of(scenario) == {2: b"hi"}
    assert dead_letters_of(scenario) == {"Singers": 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("killed", "left"),
    [
        (1, 6),  # two files of those before, and two rows that came
        (2, 2),  # the last file, which is merged already
    ],
)
def test_what_comes_does_not_pass_the_dead_letters_that_a_killed_replay_has_left(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, killed: int, left: int
) -> None:
    """Columns are merged one by one, so an older change that comes late does nothing."""
    scenario = make_scenario(local_bigquery, "merge-load")
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
    assert dead_letters_of(scenario) == {"Singers": left}
    assert replay(scenario) == Replayed(sent=left)
    assert [(row["Id"], row["Name"], row["Born"]) for row in scenario.rows("Singers")] == [(1, None, 2)]


@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_hold_nothing_in_the_column_whose_type_changed_are_written_and_a_delete_is_merged_by_its_key(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode)
    seal = Sealing(scenario)
    seal.epoch(
        seal.records([1], values={"Name": None}),
        seal.records([2], values={}),
        seal.records([2], values={"Name": "abcd"}, mod_type="DELETE"),
        seal.records([3], columns=(KEY, BYTES), values={"Name": "aGk="}),
    )
    scenario.run()
    if mode == "merge":
        assert (names_of(scenario), dead_letters_of(scenario)) == ({1: None, 3: b"hi"}, {})
    else:
        assert (names_of(scenario), dead_letters_of(scenario)) == ({1: None, 2: None, 3: b"hi"}, {"Singers": 1})
        assert reasons_of(scenario) == {"column Name was STRING when the row was changed, and is BYTES since"}


# Tables that cannot be


def test_a_table_without_a_key_is_stopped_where_it_would_be_merged(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "merge")
    seal = Sealing(scenario)
    keyless = ColumnType("Id", '{"code":"INT64"}', False, 1)
    seal([1], "Keyless", columns=(keyless, NAME))
    seal([1])
    scenario.run()
    assert (dead_letters_of(scenario), ids_of(scenario)) == ({"Keyless": 1}, [1])
    assert {reason.partition(":")[0] for reason in reasons_of(scenario)} == {"table Keyless is stopped"}


def test_fields_are_compared_without_their_case(bigquery_double: BigQueryDouble, delivered: Delivered) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    recreate(scenario, typed("Name", "STRING", called="NAME"))
    seal([2])
    scenario.run()
    assert [row["NAME"] for row in scenario.rows("Singers")] == ["n"]


def test_a_schema_that_cannot_be_read_is_not_taken_for_one_without_changed_types(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(record(START + SECOND, [1]))
    (manifest,) = spool.spool.manifests(1, 1)
    (rows,) = spool.spool.batches(manifest.files[0])
    options = BigQueryTableOptions("ds", "append-only")
    types = FormerTypes(bigquery_table(TableSchema.of("Singers", [KEY, BYTES]), options), options, spool.spool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spool, "schema", lambda self, key: raising(SpoolError(f"{self.path}: {key} cannot be read")))
        with pytest.raises(SpoolError, match="cannot be read"):
            types.sift(rows)
    _, kept, rejected = types.sift(rows)
    assert (kept, [index for index, _ in rejected]) == ([], [0])


def raising(error: Exception) -> NoReturn:
    raise error
