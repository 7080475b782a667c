"""Two databases of the official emulator are compared table by table; what cannot be compared is refused."""

import json
from pathlib import Path

import pytest
from google.cloud.spanner_v1.keyset import KeySet

from connector.config import SourceConfig
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.proof.verify.database import database_at
from emulator import SampleDatabase, Workload
from tests.integration.commands import Done, configuration, run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

GOOGLESQL = "CREATE TABLE Visits (Id INT64 NOT NULL, Name STRING(MAX), Worth NUMERIC) PRIMARY KEY (Id)"
POSTGRESQL = 'CREATE TABLE "Visits" ("Id" bigint PRIMARY KEY, "Name" varchar, "Worth" numeric)'


def against(folder: Path, one: SampleDatabase, other: SampleDatabase, *more: str) -> Done:
    """Compares two databases; with `--visits` their tables Visits alone."""
    only = {"tables": {"include": ["Visits"]}} if "--visits" in more else {}
    options = [option for option in more if option != "--visits"]
    return run("verify", configuration(folder, one, source=only), "--against", other.path, *options)


def commit(sample: SampleDatabase, *rows: tuple[object, ...]) -> int:
    """Writes visits; returns when, in nanoseconds."""
    with sample.database.batch() as batch:
        batch.insert_or_update("Visits", ("Id", "Name", "Worth"), rows)
    return int(batch.committed.timestamp() * 1_000_000) * 1000


def test_databases_with_equal_rows_do_not_differ_and_one_row_that_does_is_found(
    database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = database(), database()
    for sample in (one, other):
        sample.run_ddl(GOOGLESQL)
        Workload(sample, seed=8).run(mods=100)
        commit(sample, (1, "a", "1.5"), (2, None, None))
    with one.database.snapshot() as snapshot:
        rows = list(snapshot.read("AllTypes", ("Id",), KeySet(all_=True)))
    done = against(tmp_path, one, other, "--json")
    report = json.loads(done.out)
    tables = {table["table"]: (table["rows"], table["destination_rows"]) for table in report["tables"]}
    assert (tables["Visits"], tables["AllTypes"]) == ((2, 2), (len(rows), len(rows)))
    differing = {row["table"] for row in report["differences"]}
    assert not differing, report["differences"]

    at = commit(other, (2, "changed", None), (3, "added", None))
    done = against(tmp_path, one, other, "--visits", "--json", "--show-keys")
    found = [(row["kind"], row["columns"], row["key"]) for row in json.loads(done.out)["first_rows"]]
    assert (done.code, sorted(found)) == (1, [("different", ["Name"], "[2]"), ("extra", [], "[3]")])
    assert "may not have reached the other database" in done.out.decode()
    before = format_rfc3339(at - SECOND // 1_000_000)
    assert against(tmp_path, one, other, "--visits", "--at", before).code == 0


def test_a_comparison_of_no_table_is_refused(database: MakeDatabase, tmp_path: Path) -> None:
    one = database()
    done = against(tmp_path, one, one, "--visits")
    assert (done.code, "there is no table to compare" in done.err) == (2, True), done.err


@pytest.mark.long
def test_databases_of_both_dialects_are_compared_by_value(database: MakeDatabase, tmp_path: Path) -> None:
    one, other = database(), database(dialect="postgresql")
    one.run_ddl(GOOGLESQL)
    other.run_ddl(POSTGRESQL)
    commit(one, (1, "a", "1.50"), (2, None, None))
    commit(other, (1, "a", "1.5"), (2, None, None))
    done = against(tmp_path, one, other, "--visits")
    assert done.code == 0, done.err
    assert "2 rows in Spanner, 2 in the destination; no differences" in done.out.decode()
    commit(other, (1, "a", "1.51"))
    done = against(tmp_path, other, one, "--visits")
    assert (done.code, "different: Visits: 1 rows in Worth" in done.out.decode()) == (1, True), done.err


def test_hidden_columns_are_compared(database: MakeDatabase, tmp_path: Path) -> None:
    one, other = database(), database()
    for each in (one, other):
        each.run_ddl(GOOGLESQL.replace("Worth NUMERIC", "Worth NUMERIC HIDDEN"))
        commit(each, (1, "a", "1.50"))
    done = against(tmp_path, one, other, "--visits")
    assert "1 rows in Spanner, 1 in the destination; no differences" in done.out.decode(), done.err
    commit(other, (1, "a", "1.51"))
    done = against(tmp_path, one, other, "--visits")
    assert (done.code, "different: Visits: 1 rows in Worth" in done.out.decode()) == (1, True), done.err


def test_every_table_that_cannot_be_compared_is_named(database: MakeDatabase, tmp_path: Path) -> None:
    one, other = database(), database()
    tables = [GOOGLESQL.replace("Visits", name) for name in ("Visits", "Visits2", "Visits3", "Visits4")]
    one.run_ddl(*tables)
    other.run_ddl(
        tables[1].replace("(Id)", "(Id, Name)"),
        tables[2].replace("NUMERIC", "STRING(MAX)"),
        tables[3].replace("Worth NUMERIC", "Other INT64"),
    )
    done = against(tmp_path, one, other)
    assert done.code == 2
    for complaint in (
        "there is no table Visits",
        "table Visits2: its key there is Id, Name, not Id",
        "table Visits3: column Worth is STRING there, not NUMERIC",
        "table Visits4: there is no column Worth",
    ):
        assert complaint in done.err, done.err


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("other-database", "is not projects/PROJECT/instances"),
        ("projects/p/instances/instance/databases/d", "is the source itself"),
    ],
)
def test_the_other_database_is_named_by_its_path_and_is_another(path: str, complaint: str) -> None:
    source = SourceConfig(project="p", instance="instance", database="d", change_stream="Everything")
    with pytest.raises(ConfigurationError, match=complaint):
        database_at(path, source)
