"""Files of the sink hold what the official emulator's tables hold, and `verify` finds each row that was altered."""

import json
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import SECOND
from emulator import Workload
from tests.connector.proof.verify.altering import last_events, rewritten
from tests.connector.proof.verify.delivering import delivered, files
from tests.integration.commands import run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

MARGIN = SECOND // 1000


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("dialect", "capture_type"), [("googlesql", "NEW_ROW"), ("postgresql", "OLD_AND_NEW_VALUES")])
def test_verify_compares_every_row_and_prints_keys_only_on_request(
    dialect: str, capture_type: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect, value_capture_type=capture_type)
    workload = Workload(sample, seed=3)
    workload.run(mods=400)
    mods = workload.committed
    config = delivered(tmp_path, sample, mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns)
    done = run("verify", config)
    assert (done.code, "no differences" in done.out.decode()) == (0, True), done.out.decode() + done.err
    rows = last_events(tmp_path)
    assert f": {len(sample.tables)} tables, {len(rows)} rows in Spanner, {len(rows)} in the" in done.out.decode()

    altered = [row for row, (_, _, event) in sorted(rows.items()) if event["source_metadata"]["mod_type"] == "INSERT"][
        :3
    ]
    path, number, event = rows[altered[0]]
    column = next(name for name in event["payload"] if name not in event["source_metadata"]["primary_keys"])  # type: ignore[operator]
    rewritten(path, number, {**event, "payload": {**event["payload"], column: "another value"}})
    done = run("verify", config, "--json")
    report = json.loads(done.out)
    assert (done.code, report["differing_rows"]) == (1, 1), report
    expected = {"table": altered[0][0], "kind": "different", "columns": [column], "rows": 1}
    assert report["differences"] == [expected]
    assert "first_rows" not in report
    (row,) = json.loads(run("verify", config, "--json", "--show-keys").out)["first_rows"]
    assert sorted(map(str, json.loads(row["key"]))) == sorted(map(str, json.loads(altered[0][1])))

    path, number, event = rows[altered[1]]
    rewritten(path, number, None)
    done = run("verify", config)
    assert done.code == 1
    assert f"missing: {altered[1][0]}: 1 rows" in done.out.decode(), done.out.decode()


def test_a_timestamp_that_is_not_delivered_yet_is_refused(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=4)
    workload.run(mods=60)
    mods = workload.committed
    config = delivered(tmp_path, sample, mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns)
    done = run("verify", config, "--at", "now")
    assert done.code == 2
    assert "the sink has delivered what was committed up to" in done.complaint


def test_a_table_that_was_created_after_the_delivered_timestamp_is_left_out_and_named(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=4)
    workload.run(mods=60)
    mods = workload.committed
    config = delivered(tmp_path, sample, mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns)
    sample.run_ddl("CREATE TABLE Newer (Id INT64) PRIMARY KEY (Id)")
    done = run("verify", config)
    assert (done.code, "no differences" in done.out.decode()) == (0, True), done.out.decode() + done.err
    assert "not compared, because they were created after" in done.out.decode()
    report = json.loads(run("verify", config, "--json").out)
    assert report["created_since"] == ["Newer"]
    assert "Newer" not in [one["table"] for one in report["tables"]]


ROWS = 500_000
ALTERED = 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_campaign_of_half_a_million_rows(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE Measures (Id INT64 NOT NULL, Name STRING(MAX), Value FLOAT64) PRIMARY KEY (Id)")
    commits = []
    for first in range(0, ROWS, 5000):
        with sample.database.batch() as batch:
            rows = [(number, f"name-{number}", number / 7) for number in range(first, first + 5000)]
            batch.insert("Measures", ("Id", "Name", "Value"), rows)
        commits.append(int(batch.committed.timestamp() * 1_000_000) * 1000)
    config = delivered(tmp_path, sample, commits[0] - SECOND, commits[-1] + MARGIN)
    done = run("verify", config, timeout=900)
    assert (done.code, f"{ROWS} rows in Spanner, {ROWS} in the" in done.out.decode()) == (0, True), done.err

    altered: set[int] = set()
    for path in files(tmp_path)[:: max(1, len(files(tmp_path)) // ALTERED)]:
        lines = path.read_bytes().splitlines()
        for number in range(0, len(lines), max(1, len(lines) // ALTERED)):
            if len(altered) == ALTERED:
                break
            event = orjson.loads(lines[number])
            event["payload"]["Name"] += "!"
            altered.add(event["payload"]["Id"])
            lines[number] = orjson.dumps(event)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    done = run("verify", config, "--json", "--show-keys", timeout=900)
    found = {json.loads(row["key"])[0] for row in json.loads(done.out)["first_rows"]}
    assert (done.code, len(found), found) == (1, ALTERED, altered)
