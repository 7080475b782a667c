"""BigQuery's tables are compared with the official emulator's: counts and checksums first, then rows."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.spanner_v1.keyset import KeySet

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Workload
from tests.connector.proof.verify.delivering import into_bigquery, read
from tests.integration.commands import Done, run
from tests.integration.servers import MakeDatabase
from tests.local_bigquery import LocalBigQuery
from tests.local_bigquery import local_bigquery as local_bigquery
from tests.local_bigquery import local_bigquery_server as local_bigquery_server

pytestmark = pytest.mark.emulator

MARGIN = SECOND // 1000
MODES = ("merge-load", "append-only", "merge")
EXCLUDED = {"merge-load": ["Readings"], "merge": ["Readings"], "append-only": ["AllTypes"]}
"""Readings has a key of BYTES, which cannot be merged by; local-bigquery leaves appended arrays of JSON encoded."""

VISITS = (
    "CREATE TABLE Visits (Place STRING(MAX) NOT NULL, Began TIMESTAMP NOT NULL, Day DATE, Valid BOOL, Note STRING(MAX),"
    " Photo BYTES(MAX), Marks INT64) PRIMARY KEY (Place, Began)"
)
COLUMNS = ("Place", "Began", "Day", "Valid", "Note", "Photo", "Marks")


def visit(number: int) -> tuple[object, ...]:
    """A row whose values are hard to write alike: NULL, an empty text, text beyond ASCII, a negative number."""
    return (
        f"plàce-{number % 7}",
        f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",  # the emulator's change streams have no fractions
        None if number % 3 else "1969-12-31",
        number % 2 == 0,
        ("", None, "n", "v1:n", '日本 \n"quoted"')[number % 5],
        None if number % 4 == 0 else b64encode(bytes([number % 256, 0, 255])),
        -number if number % 5 else None,
    )


class Replicated:
    """A sample database, its rows in BigQuery, and the comparison of both.

    local-bigquery does not merge by change data capture: for the mode merge, rows that were loaded get its columns.
    """

    def __init__(self, sample: SampleDatabase, server: LocalBigQuery, folder: Path, mode: str) -> None:
        self.sample, self.server, self.folder, self.mode = sample, server, folder, mode
        self.dataset = sample.database_id.replace("-", "_")
        self.client = bigquery.Client(
            project=server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": server.endpoint},
        )

    def deliver(self, first: int, last: int) -> None:
        """Delivers what was committed from ``first`` to ``last``, in nanoseconds."""
        mode = "merge-load" if self.mode == "merge" else self.mode
        config = read(self.folder, self.sample, first, last, self._sink(mode), *EXCLUDED[self.mode])
        into_bigquery(config)
        if self.mode == "merge":
            for table in self.client.list_tables(self.dataset):
                name = f"`{self.server.project}.{self.dataset}.{table.table_id}`"
                old = "datastream_metadata"
                self.query(
                    f"CREATE OR REPLACE TABLE {name} AS SELECT * REPLACE"
                    f" (STRUCT({old}.uuid AS uuid, {old}.source_timestamp AS source_timestamp) AS {old}) FROM {name}"
                )
            self.config = self.folder / "merge.yaml"
            self.config.write_text(config.read_text().replace("mode: merge-load", "mode: merge"))
        else:
            self.config = config

    def query(self, sql: str) -> None:
        """Runs a statement; ``{}`` is a table of the dataset."""
        self.client.query(sql.replace("{}", f"`{self.server.project}.{self.dataset}.Visits`")).result()

    def verified(self, *more: str) -> tuple[Done, dict[str, Any]]:
        """Runs `verify`; returns what it printed."""
        done = run("verify", self.config, "--json", "--show-keys", *more, timeout=900)
        assert done.out, done.err
        return done, json.loads(done.out)

    def _sink(self, mode: str) -> dict[str, object]:
        return {
            "type": "bigquery",
            "mode": mode,
            "project": self.server.project,
            "dataset": self.dataset,
            "location": "US",
            "max_staleness": "0s",
            "endpoint": self.server.endpoint,
            "grpc_endpoint": self.server.grpc_endpoint,
            "dead_letters": str(self.folder / "dead-letters"),
        }


def committed(sample: SampleDatabase, *numbers: int) -> int:
    """Commits visits; returns when, in nanoseconds."""
    with sample.database.batch() as batch:
        batch.insert("Visits", COLUMNS, [visit(number) for number in numbers])
    return int(batch.committed.timestamp() * 1_000_000) * 1000


@pytest.mark.long
@pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])])
def test_rows_altered_by_hand_are_found_and_those_that_changed_since_do_not_differ(
    mode: str, database: MakeDatabase, local_bigquery: LocalBigQuery, tmp_path: Path
) -> None:
    sample = database(value_capture_type="NEW_ROW")
    sample.run_ddl(VISITS)
    first = committed(sample, *range(120))
    workload = Workload(sample, seed=5)
    workload.run(mods=60)
    last = workload.committed[-1].commit_timestamp_ns
    with sample.database.batch() as batch:
        batch.insert("Visits", COLUMNS, [visit(1000)])
        batch.update("Visits", COLUMNS[:5], [(*visit(3)[:4], "changed since")])
        batch.delete("Visits", KeySet(keys=[visit(4)[:2]]))
    replicated = Replicated(sample, local_bigquery, tmp_path, mode)
    replicated.deliver(first, int(batch.committed.timestamp() * 1_000_000) * 1000 + MARGIN)

    at = format_rfc3339(last + MARGIN)
    done, report = replicated.verified("--at", at)
    assert not report["differences"], json.dumps(report["differences"])
    (visits,) = (table for table in report["tables"] if table["table"] == "Visits")
    changed = 0 if mode == "append-only" else 3  # a history is known as of any timestamp
    assert (done.code, visits["rows"], visits["changed_since"]) == (0, 120, changed), done.err

    done, report = replicated.verified()
    assert not report["differences"], json.dumps(report["differences"])
    assert done.code == 0
    (visits,) = (table for table in report["tables"] if table["table"] == "Visits")
    counts = {"rows": 120, "destination_rows": 120, "changed_since": 0, "omitted_by_backfill": 0}
    assert visits == {"table": "Visits", **counts}
    assert "table=Visits buckets=256 differing=0" in done.err

    replicated.query("UPDATE {} SET Note = 'another' WHERE Marks = -7")
    replicated.query("UPDATE {} SET Photo = NULL WHERE Marks = -11")
    replicated.query("DELETE FROM {} WHERE Marks = -13")
    replicated.query("UPDATE {} SET Place = 'elsewhere' WHERE Marks = -14")
    replicated.query("INSERT INTO {} SELECT * FROM {} WHERE Marks = -18")
    done, report = replicated.verified()
    assert done.code == 1
    found = sorted((row["kind"], tuple(row["columns"]), json.loads(row["key"])[0]) for row in report["first_rows"])
    repeated = [] if mode == "append-only" else [("repeated", (), "plàce-4")]  # there an event counts once
    assert found == [
        ("different", ("Note",), "plàce-0"),
        ("different", ("Photo",), "plàce-4"),
        ("extra", (), "elsewhere"),
        ("missing", (), "plàce-0"),
        ("missing", (), "plàce-6"),
        *repeated,
    ]


ROWS = 500_000
ALTERED = 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", MODES)
def test_campaign_of_half_a_million_rows(
    mode: str, database: MakeDatabase, local_bigquery: LocalBigQuery, tmp_path: Path
) -> None:
    sample = database(value_capture_type="NEW_ROW")
    sample.run_ddl("CREATE TABLE Visits (Id INT64 NOT NULL, Name STRING(MAX), Began TIMESTAMP) PRIMARY KEY (Id)")
    commits = []
    for first in range(0, ROWS, 5000):
        with sample.database.batch() as batch:
            rows = [(number, f"name-{number}", "2026-01-01T00:00:00Z") for number in range(first, first + 5000)]
            batch.insert("Visits", ("Id", "Name", "Began"), rows)
        commits.append(int(batch.committed.timestamp() * 1_000_000) * 1000)
    replicated = Replicated(sample, local_bigquery, tmp_path, mode)
    replicated.deliver(commits[0], commits[-1] + MARGIN)
    done, report = replicated.verified()
    assert not report["differences"], json.dumps(report["differences"])
    assert (done.code, sum(table["destination_rows"] for table in report["tables"])) == (0, ROWS)

    step = ROWS // ALTERED
    replicated.query(f"UPDATE {{}} SET Name = CONCAT(Name, '!') WHERE MOD(Id, {step}) = 17")
    done, report = replicated.verified()
    found = {json.loads(row["key"])[0] for row in report["first_rows"]}
    assert (done.code, found) == (1, set(range(17, ROWS, step)))
