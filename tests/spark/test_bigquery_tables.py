"""What somebody else does to BigQuery's tables, what the source does to its own, and what BigQuery refuses for a while.

One clear line, nothing lost, and after the repair it goes on: on the double, and on local-bigquery where it takes SQL.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import bigquery

from connector.bigquery_client import BigQueryClient, reason_of
from connector.records import ColumnType
from connector.timestamps import SECOND
from emulator.bigquery_double import BigQueryDouble
from spark_sink.bigquery_replay import replay_into
from spark_sink.bigquery_writer import BigQueryWriter
from spark_sink.dead_letters import DeadLetters
from spark_sink.errors import SinkError
from spark_sink.letters_command import Replayed, replayed
from tests.local_bigquery import LocalBigQuery
from tests.spark.bigquery_histories import History
from tests.spark.bigquery_trials import KilledError, Trial, at, killed_at, sized
from tests.spark.spools import KEY, NAME, START, record

STREAMED = ("append-only", "changelog", "merge")
BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)
NUMBERS = ColumnType("Numbers", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}', False, 4)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Trial]:
    def trial(server: LocalBigQuery | BigQueryDouble, mode: str, **options: object) -> Trial:
        return Trial(server, tmp_path, mode, History(Random(0)), options)

    return trial


MakeTrial = Callable[..., Trial]


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between attempts."""
    at_once = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr("tenacity.nap.time", at_once)
    monkeypatch.setattr("google.api_core.retry.retry_unary.time", at_once)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is not waited for."""
    for owner in (BigQueryWriter, BigQueryClient):
        defaults = owner.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "patience", 0.0)


class Sealing:
    """Seals epochs a second apart, of a table's rows with these ids."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._at = START

    def __call__(self, ids: Any, *tables: str, **changed: Any) -> None:
        self._at += SECOND
        records = [record(self._at, ids, table=table, **changed) for table in tables or ("Singers",)]
        self._trial.maker.seal(*records)


def ids_of(trial: Trial, table: str = "Singers") -> list[int]:
    return sorted(row["Id"] for row in trial.rows(table))


def names_of(trial: Trial, column: str = "Name") -> dict[int, object]:
    return {row["Id"]: row.get(column) for row in trial.rows("Singers")}


def line_of(trial: Trial) -> str:
    """What a run says that ends."""
    with trial.life() as life, pytest.raises(SinkError) as raised:
        life.run()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def letters_of(trial: Trial) -> dict[str, int]:
    """How many letters there are of each table."""
    counted: dict[str, int] = {}
    for file in DeadLetters(str(trial.letters)).files():
        counted[file.table] = counted.get(file.table, 0) + file.letters
    return counted


def reasons_of(trial: Trial) -> set[str]:
    return {reason for file in DeadLetters(str(trial.letters)).files() for reason in file.reasons}


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
    assert said == f"2 rows to 2 tables, 2 to the dead letters at {trial.letters}"
    told = "table Singers is stopped: column Name is INT64 in BigQuery, and would be STRING: drop or rename it there"
    assert reasons_of(trial) == {told}
    assert (ids_of(trial), ids_of(trial, "Other")) == ([], [1, 2, 3])

    seal([4], "Singers", "Other")
    trial.run()
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


def test_a_key_that_somebody_changed_stops_that_table_only(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "merge")
    seal = Sealing(trial)
    seal([1], "Singers", "Other")
    trial.run()
    remake(trial, keyless)
    seal([2], "Singers", "Other")
    trial.run()
    assert reasons_of(trial) == {
        "table Singers is stopped: its key is () in BigQuery, and would be (Id): drop or rename the table there"
    }
    bigquery_double.drop(*trial.place("Singers"))
    assert replay(trial) == Replayed(sent=1)
    seal([3], "Singers", "Other")
    trial.run()
    assert (ids_of(trial), ids_of(trial, "Other")) == ([2, 3], [1, 2, 3])


def altered(seal: Sealing) -> None:
    """Rows of the column's old type and then of its new one, in one micro-batch."""
    seal([2], "Singers", "Other", mod_type="UPDATE", values={"Name": "abcd"})
    seal([3], columns=(KEY, BYTES), values={"Name": "aGk="})
    seal([4], "Other")


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
    assert said == f"2 rows to 2 tables, 2 to the dead letters at {trial.letters}"
    assert reasons_of(trial) == {
        "table Singers is stopped: column Name is STRING in BigQuery, and would be BYTES: drop or rename it there"
    }
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
    seal([1], values={"Name": "abcd"})  # which could be read as bytes
    seal([2], columns=(KEY, BYTES), values={"Name": "aGk="})
    trial.run()
    assert names_of(trial) == {2: b"hi"}
    assert letters_of(trial) == {"Singers": 1}


def test_what_comes_does_not_pass_the_letters_that_a_killed_replay_has_left(
    local_bigquery: LocalBigQuery, make: MakeTrial
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
    with killed_at(DeadLetters, "replace", call=2), pytest.raises(KilledError):
        replay(trial)
    seal([1], columns=(KEY, BYTES, BORN), values={"Name": None}, mod_type="UPDATE")
    seal([2], columns=(KEY, BYTES, BORN), values={}, mod_type="DELETE")
    trial.run()
    assert letters_of(trial) == {"Singers": 4}, "the last file of those before, and two that came"
    assert replay(trial) == Replayed(sent=4)
    assert [(row["Id"], row["Name"], row["Born"]) for row in trial.rows("Singers")] == [(1, None, 2)]


@pytest.mark.parametrize("mode", STREAMED)
def test_rows_that_hold_nothing_in_the_column_whose_type_changed_are_written_and_a_delete_is_merged_by_its_key(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1], values={"Name": None})
    seal([2], values={})
    seal([2], values={"Name": "abcd"}, mod_type="DELETE")
    seal([3], columns=(KEY, BYTES), values={"Name": "aGk="})
    trial.run()
    if mode == "merge":
        assert (names_of(trial), letters_of(trial)) == ({1: None, 3: b"hi"}, {})
    else:
        assert (names_of(trial), letters_of(trial)) == ({1: None, 2: None, 3: b"hi"}, {"Singers": 1})
        assert reasons_of(trial) == {"column Name was STRING when the row was changed, and is BYTES since"}


# Tables that cannot be


@pytest.mark.parametrize("mode", STREAMED)
def test_of_two_tables_that_would_be_one_only_the_second_is_stopped(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1], "a.b")
    trial.run()
    for number in (2, 3):
        seal([number], "a_b", "a.b")
        trial.run()
    name = trial.place("a.b")[1]
    assert ids_of(trial, "a.b") == [1, 2, 3]
    assert letters_of(trial) == {"a_b": 2}
    (reason,) = reasons_of(trial)
    assert reason.startswith("table a_b is stopped: the tables a.b and a_b would both be ")
    assert name in reason


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


# Datasets and permissions


@pytest.mark.parametrize("mode", STREAMED)
def test_a_dataset_that_is_missing_is_told_of_or_made_where_a_location_is_given(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode, location=None)
    seal = Sealing(trial)
    seal([1])
    for _ in range(2):
        line = line_of(trial)
        assert line.startswith(f"there is no dataset {trial.dataset} in BigQuery")
        assert f"bq mk --location=LOCATION --dataset {trial.dataset}" in line
    trial.options["location"] = "EU"
    trial.run()
    assert ids_of(trial) == [1]
    assert trial.client.get_dataset(trial.dataset).location == "EU"


@pytest.mark.parametrize("mode", STREAMED)
def test_a_permission_that_is_revoked_is_one_line_and_once_it_is_given_again_every_row_comes_once(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2])
    name = trial.place("Singers")[1]
    bigquery_double.deny(trial.dataset)  # before it begins
    line = line_of(trial)
    assert line.startswith(f"cannot use BigQuery's table {trial.dataset}.{name}: permission denied. Give this account")
    bigquery_double.allow(trial.dataset)
    for commits in {False, mode != "merge"}:  # while it writes, and before it commits
        with trial.life() as life:
            assert life.plan()
            tasks = life.tasks()
            told = [row for task in tasks for row in life.told(task)] if commits else []
            bigquery_double.deny(trial.dataset, name)
            with pytest.raises(SinkError) as raised:
                life.deliver(told) if commits else list(life.told(tasks[0]))
        assert str(raised.value).startswith(f"cannot write table {trial.dataset}.{name} of BigQuery: permission denied")
        bigquery_double.allow(trial.dataset, name)
    trial.run()
    assert ids_of(trial) == [1, 2]


# What may pass


FAILURES = [
    *((kind, "AppendRows") for kind in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "ABORTED", "UNKNOWN")),
    ("DEADLINE_EXCEEDED", "AppendRows"),
    ("CANCELLED", "AppendRows"),
    *(("UNAVAILABLE", method) for method in ("CreateWriteStream", "FinalizeWriteStream", "BatchCommitWriteStreams")),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "method"), FAILURES)
def test_what_may_pass_is_tried_again_whether_or_not_the_work_was_done_and_rows_come_once(
    bigquery_double: BigQueryDouble, make: MakeTrial, kind: str, method: str, after: bool
) -> None:
    modes = ("append-only", "merge") if method == "AppendRows" else ("append-only",)
    for mode in modes:
        trial = make(bigquery_double, mode)
        seal = Sealing(trial)
        seal(range(3))
        seal(range(3, 6))
        bigquery_double.fail_next(kind, 2, method=method, after=after)
        with sized(piece=1):
            trial.run()
        assert (ids_of(trial), bigquery_double.failures_left()) == (list(range(6)), 0)


@pytest.mark.parametrize("kind", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "SCHEMA_MISMATCH_EXTRA_FIELDS"])
@pytest.mark.parametrize("mode", STREAMED)
def test_what_an_answer_tells_that_may_pass_is_tried_again(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str, kind: str
) -> None:
    """A column that was just added is not known to the Storage Write API for minutes."""
    trial = make(bigquery_double, mode)
    Sealing(trial)(range(3))
    bigquery_double.fail_next(kind, 2, in_band=True)
    trial.run()
    assert (ids_of(trial), bigquery_double.failures_left()) == ([0, 1, 2], 0)


@pytest.mark.parametrize(
    ("status", "method"),
    [
        *((status, "tables.get") for status in (429, 500, 502)),
        *((503, f"tables.{verb}") for verb in ("get", "insert", "patch")),
        *((503, f"datasets.{verb}") for verb in ("get", "insert")),
    ],
)
def test_rest_is_asked_again_where_it_may_pass(
    bigquery_double: BigQueryDouble, make: MakeTrial, status: int, method: str
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    if method != "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([1])
    trial.run()
    if method == "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([2], columns=(KEY, NAME, BORN), values={"Name": "n", "Born": "1"})
    trial.run()
    assert bigquery_double.failures_left() == 0
    assert names_of(trial, "Born") == {1: None, 2: 1}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["jobs.insert", "jobs.query", "jobs.get"])
def test_a_statement_is_run_again_where_it_may_pass(
    bigquery_double: BigQueryDouble, make: MakeTrial, method: str, after: bool
) -> None:
    trial = make(bigquery_double, "merge")
    Sealing(trial)([1])
    bigquery_double.fail_next(503, method=method, after=after)
    trial.run()
    assert ids_of(trial) == [1]
    assert bigquery_double.table(*trial.place("Singers")).max_staleness is not None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (exceptions.ServiceUnavailable, "backendError"),
        (exceptions.InternalServerError, "internalError"),
        (exceptions.Forbidden, "jobRateLimitExceeded"),
        (exceptions.Forbidden, "quotaExceeded"),
    ],
)
def test_a_job_that_failed_of_what_may_pass_is_run_again(
    bigquery_double: BigQueryDouble,
    make: MakeTrial,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[exceptions.GoogleAPICallError],
    reason: str,
) -> None:
    failures = [kind("no", errors=[{"reason": reason}]) for _ in range(3)]
    result = bigquery.QueryJob.result

    def failing(job: bigquery.QueryJob, *args: Any, **kwargs: Any) -> object:
        if failures:
            raise failures.pop()
        return result(job, *args, **kwargs)

    monkeypatch.setattr(bigquery.QueryJob, "result", failing)
    trial = make(bigquery_double, "merge")
    Sealing(trial)([1])
    trial.run()
    assert (ids_of(trial), failures) == ([1], [])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("kind", "told"), [("UNAVAILABLE", 503), ("RESOURCE_EXHAUSTED", 429), (503, 503), (429, 429)])
def test_what_does_not_pass_is_one_line_after_a_while_and_nothing_is_lost(
    bigquery_double: BigQueryDouble, make: MakeTrial, kind: str | int, told: int
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2])
    bigquery_double.fail_next(kind, 1000, method=None if isinstance(kind, str) else "tables.get")
    line = line_of(trial)
    assert line.startswith("cannot ")
    assert "Singers" in line
    assert f"it answers {told}. Run it again when it is well: nothing is lost." in line or "a quota is used up" in line
    bigquery_double._traffic._failures.clear()
    trial.run()
    assert ids_of(trial) == [1, 2]


def test_a_server_that_is_not_there_is_one_line(
    bigquery_double: BigQueryDouble, make: MakeTrial, impatient: None
) -> None:
    trial = make(bigquery_double, "append-only", endpoint="http://127.0.0.1:9")
    Sealing(trial)([1])
    assert "it cannot be reached. Look after the network and run it again: nothing is lost." in line_of(trial)


@pytest.mark.parametrize("forgotten", [False, True])
def test_streams_that_expired_before_they_were_committed_are_told_of_and_written_again_as_the_line_says(
    bigquery_double: BigQueryDouble, make: MakeTrial, forgotten: bool
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2, 3])
    with trial.life() as life:
        at(BigQueryWriter, "commit")(life)
    (expired,) = bigquery_double.pending_streams()
    bigquery_double.expire(expired, forgotten=forgotten)
    line = line_of(trial)
    assert line.startswith(f"streams of table {trial.dataset}.Singers cannot be committed")
    assert "remove its document in the folder bigquery of the spool" in line
    assert ids_of(trial) == [1]
    (document,) = Path(trial.maker.path, "bigquery").glob(f"{2:020d}.*.json")
    document.unlink()
    trial.run()
    assert ids_of(trial) == [1, 2, 3]


def test_streams_that_were_committed_and_have_expired_are_not_committed_again(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    Sealing(trial)([1])
    with trial.life() as life:
        at(BigQueryWriter, "commit", after=True)(life)
    assert ids_of(trial) == [1]
    trial.run()
    assert ids_of(trial) == [1]


# Lines


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (exceptions.Forbidden("x"), "permission denied"),
        (exceptions.PermissionDenied("x"), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "accessDenied"}]), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "quotaExceeded"}]), "a quota is used up"),
        (exceptions.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]), "a quota is used up"),
        (exceptions.RetryError("x", cause=exceptions.ServiceUnavailable("y")), "it answers 503"),
        (exceptions.RetryError("x", cause=exceptions.Forbidden("y")), "permission denied"),
        (exceptions.RetryError("x", cause=None), "it cannot be reached"),
        (exceptions.NotFound("x"), "it is not there"),
        (exceptions.Unauthorized("x"), "the Google credentials are not accepted"),
        (exceptions.BadRequest("a\nb"), "it refuses the request (a)"),
        (exceptions.BadRequest(""), "it refuses the request (it does not say why)"),
        (exceptions.InternalServerError("x"), "it answers 500"),
        (exceptions.ResourceExhausted("x"), "it answers 429"),
        (auth_exceptions.DefaultCredentialsError("x"), "no Google credentials are found"),
        (auth_exceptions.RefreshError("x"), "the Google credentials are not accepted"),
        (auth_exceptions.TransportError("x"), "Google's credentials cannot be fetched"),
        (requests.exceptions.ConnectionError("x"), "it cannot be reached"),
    ],
)
def test_an_error_is_told_in_words_with_what_to_do(error: Exception, why: str) -> None:
    told, hint = reason_of(error)
    assert (told, hint.endswith(".")) == (why, True)
    assert "(" not in reason_of(error, tells=False)[0]


def test_fields_are_compared_without_their_case(bigquery_double: BigQueryDouble, make: MakeTrial) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    remake(trial, typed("Name", "STRING", called="NAME"))
    seal([2])
    trial.run()
    assert [row["NAME"] for row in trial.rows("Singers")] == ["n"]
