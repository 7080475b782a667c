"""Files of the sink hold what the official emulator's tables hold, and `verify` finds each row that was altered."""

import json
from pathlib import Path

import orjson
import pytest

from emulator import Workload
from tests.connector.verify.delivering import delivered, files
from tests.integration.commands import run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

Event = dict[str, dict[str, object]]


def last_events(folder: Path) -> dict[tuple[str, str], tuple[Path, int, Event]]:
    """The last event of each row that still exists: its file, its line, and itself."""
    last: dict[tuple[str, str], tuple[list[object], Path, int, Event]] = {}
    for path in files(folder):
        for number, line in enumerate(path.read_bytes().splitlines()):
            event = orjson.loads(line)
            keys = [event["payload"][name] for name in sorted(event["source_metadata"]["primary_keys"])]
            row = event["object"], json.dumps(keys)
            _, at, sequence, index = event["sort_keys"]
            order = [at, int(sequence), index]
            if row not in last or last[row][0] < order:
                last[row] = order, path, number, event
    return {row: found[1:] for row, found in last.items() if not found[3]["source_metadata"]["is_deleted"]}


def rewritten(path: Path, number: int, event: Event | None) -> None:
    """Replaces a line of a file, or removes it."""
    lines = path.read_bytes().splitlines()
    lines[number : number + 1] = [] if event is None else [orjson.dumps(event)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_verify_compares_every_row_and_prints_keys_only_on_request(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
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
