"""The database of the Spanner sink is compared as of what the sink has delivered; later changes do not differ."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.core.timestamps import SECOND, parse
from connector.spool.consumers import record
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.connector.proof.verify.delivering import read
from tests.integration.commands import run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

MARGIN = SECOND // 1000

VISITS = "CREATE TABLE Visits (Id INT64 NOT NULL, Name STRING(MAX), Worth NUMERIC) PRIMARY KEY (Id)"
COPY = "CREATE TABLE COPIES (NUMBER INT64 NOT NULL, Title STRING(MAX), WORTH NUMERIC) PRIMARY KEY (NUMBER)"
ALL = ("Id", "Name", "Worth")


def commit(sample: SampleDatabase, table: str, columns: tuple[str, ...], *rows: tuple[object, ...]) -> int:
    """Writes rows; returns when, in nanoseconds."""
    with sample.database.batch() as batch:
        batch.insert_or_update(table, columns, rows)
    return int(batch.committed.timestamp() * 1_000_000) * 1000


def verified(config: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = run("verify", config, "--json", "--show-keys", *more)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def test_tables_and_columns_of_other_names_are_compared_and_rows_that_changed_since_are_not(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample, copy = database(value_capture_type="NEW_ROW"), database()
    sample.run_ddl(VISITS)
    copy.run_ddl(COPY)
    at = commit(sample, "Visits", ALL, *((number, f"n{number}", "1.5") for number in range(10)))
    sink = {
        "type": "spanner",
        "database": copy.database_id,
        "tables": {"Visits": "Copies"},
        "columns": {"Visits.Id": "Number", "Visits.Name": "Title"},
    }
    config = read(tmp_path, sample, at, at + MARGIN - 1, sink)  # with nanoseconds, as most watermarks have
    node = yaml.safe_load(config.read_text())
    node["source"]["tables"] = {"include": ["Visits"]}
    config.write_text(yaml.safe_dump(node))
    spool = Spool.at(tmp_path / "spool")
    record(spool, "spanner", spool.latest(), now=time.time_ns(), at=spool.manifest(spool.latest()).identity)

    there = ("Number", "Title", "Worth")
    commit(copy, "Copies", there, *((number, f"n{number}", "1.50") for number in range(10)))
    code, report = verified(config)
    assert (code, report["differing_rows"]) == (0, 0), report
    assert parse(report["at"]) <= at + MARGIN

    commit(copy, "Copies", there, (2, "damaged", None), (100, "extra", None))
    commit(copy, "Copies", there, (3, "later", "1.5"), (101, "new", None))
    commit(sample, "Visits", ALL, (3, "later", "1.5"), (101, "new", None))
    code, report = verified(config)
    found = sorted((row["kind"], row["columns"], row["key"]) for row in report["first_rows"])
    assert (code, found) == (1, [("different", ["Name", "Worth"], "[2]"), ("extra", [], "[100]")])
    assert [table["changed_since"] for table in report["tables"]] == [2]


def test_only_the_named_tables_are_compared_and_a_pattern_that_matches_none_is_refused(
    database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = database(), database()
    for sample in (one, other):
        sample.run_ddl(VISITS)
    at = commit(one, "Visits", ALL, (1, "a", None))
    config = read(tmp_path, one, at, at + MARGIN, {"path": str(tmp_path / "events")})
    done = run("verify", config, "--against", other.path, "--json", "--tables", "Sing*,Albums", "--tables", "AllTypes")
    assert [table["table"] for table in json.loads(done.out)["tables"]] == ["Albums", "AllTypes", "Singers"]
    done = run("verify", config, "--against", other.path, "--tables", "Nothing")
    assert (done.code, "--tables: 'Nothing' matches no table" in done.err) == (2, True), done.err
