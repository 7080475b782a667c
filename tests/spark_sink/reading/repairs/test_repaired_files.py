"""`verify --repair` makes files of the sink equal to the official emulator's tables again, and does it once."""

import json
from pathlib import Path

import orjson
import pytest
import yaml

from connector.core.timestamps import parse
from connector.spool.backfill.equal_tables import equal_tables
from connector.spool.backfill.records import backfills
from connector.spool.reading import Spool
from emulator import SampleDatabase, Workload
from tests.connector.proof.verify.altering import last_events, rewritten
from tests.connector.proof.verify.delivering import delivered, files
from tests.integration.commands import Done, run
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.samples import SPARK

pytestmark = pytest.mark.emulator


def replicated(sample: SampleDatabase, folder: Path, *, seed: int) -> Path:
    """Writes the files of a workload; returns a configuration that can run the sink."""
    workload = Workload(sample, seed=seed)
    workload.run(mods=300)
    mods = workload.committed
    config = delivered(folder, sample, mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns)
    node = yaml.safe_load(config.read_text())
    node["spark"] = {**SPARK, "checkpoint": str(folder / "checkpoint")}
    config.write_text(yaml.safe_dump(node))
    return config


def damaged(folder: Path) -> list[tuple[str, str]]:
    """Alters a row, loses one, and loses the delete of one; returns the tables with the kinds of the differences."""
    rows = last_events(folder)
    whole = [row for row, (_, _, event) in sorted(rows.items()) if event["source_metadata"]["mod_type"] == "INSERT"]
    path, number, event = rows[whole[0]]
    column = next(name for name in event["payload"] if name not in event["source_metadata"]["primary_keys"])  # type: ignore[operator]
    rewritten(path, number, {**event, "payload": {**event["payload"], column: "another value"}})
    path, number, _ = last_events(folder)[whole[1]]
    rewritten(path, number, None)
    path, number, event = next(
        (path, number, event)
        for path in files(folder)
        for number, event in enumerate(map(orjson.loads, path.read_bytes().splitlines()))
        if event["source_metadata"]["is_deleted"]
    )
    rewritten(path, number, None)
    return sorted([(whole[0][0], "different"), (whole[1][0], "missing"), (str(event["object"]), "extra")])


def repaired(config: Path, *more: str) -> Done:
    return run("verify", config, "--repair", "--json", *more, timeout=600)


@pytest.mark.spark
def test_rows_that_were_damaged_in_files_are_repaired_once(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database(value_capture_type="NEW_ROW")
    config = replicated(sample, tmp_path, seed=7)
    expected = damaged(tmp_path)
    written = files(tmp_path)

    done = repaired(config, "--dry-run")
    report = json.loads(done.out)
    assert (done.code, report["repair"]["delivered"], report["repair"]["rows"]) == (1, False, 3), done.err
    found = [
        (one["table"], kind)
        for one in report["repair"]["tables"]
        for kind in ("missing", "different", "extra")
        for _ in range(one[kind])
    ]
    assert sorted(found) == expected
    assert "first_rows" not in report
    assert files(tmp_path) == written
    spool = Spool.at(tmp_path / "spool")
    assert (backfills(spool), equal_tables(spool, "files")) == ([], {})

    done = repaired(config)
    report = json.loads(done.out)
    assert (done.code, report["repair"]["delivered"]) == (0, True), done.err
    equal = dict.fromkeys((one["table"] for one in report["tables"]), parse(report["at"]))
    assert equal_tables(spool, "files") == equal, "all tables are complete as of then, also where nothing differed"
    events = [orjson.loads(line) for path in set(files(tmp_path)) - set(written) for line in path.read_bytes().split()]
    assert len(events) == 3
    assert {event["read_method"] for event in events} == {"spanner-repair"}
    assert {event["source_timestamp"] for event in events} != set()
    assert sorted(event["source_metadata"]["mod_type"] for event in events) == ["DELETE", "INSERT", "INSERT"]

    written = files(tmp_path)
    done = repaired(config)
    assert (done.code, json.loads(done.out)["differing_rows"]) == (0, 0), done.out.decode() + done.err
    assert files(tmp_path) == written
    assert len(backfills(spool)) == 1


def test_options_of_a_repair_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    done = run("verify", config, "--dry-run")
    assert (done.code, "--dry-run: it counts what --repair would deliver" in done.err) == (2, True), done.err
    done = run("verify", config, "--repair", "--at", "now", "--against", "projects/p/instances/i/databases/d")
    assert done.code == 2
    assert "leave --against out" in done.err
    assert "leave --at out" in done.err
