"""Backfills of the official emulator's tables into files, with the commands and their processes."""

import json
from collections import Counter
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.reading import Spool
from emulator import Workload
from tests.integration.commands import Background, configuration, run
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load
from tests.soak.process_tree import kill, process_tree
from tests.spark_sink.backfill.state import differences, events, key_of, state_of_database, state_of_files

pytestmark = [pytest.mark.emulator, pytest.mark.spark]

SPARK = {"master": "local[2]", "trigger": "500ms", "config": {"spark.driver.memory": "768m"}}


def config_of(folder: Path, sample: object, **source: object) -> Path:
    spark = {**SPARK, "checkpoint": str(folder / "checkpoint")}
    sink = {"path": str(folder / "events"), "rotate_interval": "0s", "dead_letters": str(folder / "dead")}
    return configuration(folder, sample, source=source, spark=spark, sink=sink)  # type: ignore[arg-type]


def test_a_backfill_and_the_stream_after_it_give_the_databases_rows(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=151)
    workload.run(mods=150)
    config = config_of(tmp_path, sample)
    before = state_of_database(sample, workload)
    done = run("backfill", config, timeout=240)
    assert done.code == 0, done.err
    assert state_of_files(tmp_path / "events") == before, differences(before, state_of_files(tmp_path / "events"))
    spool = Spool.at(tmp_path / "spool")
    at = spool.header().start - 1
    for event in events(tmp_path / "events"):
        assert (event["read_method"], event["source_metadata"]["snapshot"]) == ("spanner-backfill", True)
        assert (event["source_metadata"]["mod_type"], event["sort_keys"][1]) == ("INSERT", at)

    workload.run(mods=100)
    end = last_commit(workload)
    done = run("run", config_of(tmp_path, sample, end=end), timeout=240)
    assert done.code == 0, done.err
    after = state_of_database(sample, workload)
    assert state_of_files(tmp_path / "events") == after, differences(after, state_of_files(tmp_path / "events"))
    report = json.loads(run("spool", tmp_path / "spool", "--json").out)
    (one,) = report["backfills"]
    assert (one["done"], parse(one["timestamp"])) == (True, at)
    assert {table["state"] for table in one["tables"]} == {"done"}
    assert sum(table["rows"] for table in one["tables"]) == len(before)


@pytest.mark.timeout(600)
def test_a_service_that_is_killed_within_its_backfill_ends_with_the_databases_rows(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect="postgresql")
    workload = Workload(sample, seed=152)
    workload.run(mods=200)
    config = config_of(tmp_path, sample, backfill=True)
    sealed = tmp_path / "spool/backfills/1/manifests"
    with load(workload, rate=10), Background("run", config, log=tmp_path / "first.log") as service:
        service.until(lambda: sealed.exists() and any(sealed.iterdir()), "a partition is sealed", timeout=280)
        kill(process_tree(service.process.pid))
        service.process.wait()
    end = last_commit(workload)
    done = run("run", config_of(tmp_path, sample, backfill=True, end=end), timeout=280)
    assert done.code == 0, done.err
    expected, found = state_of_database(sample, workload), state_of_files(tmp_path / "events")
    assert found == expected, differences(expected, found)
    snapshots = [event for event in events(tmp_path / "events") if event["source_metadata"]["snapshot"]]
    assert len({event["sort_keys"][1] for event in snapshots}) == 1
    assert max(Counter(map(key_of, snapshots)).values()) == 1, "a row was delivered twice"
    assert format_rfc3339(snapshots[0]["sort_keys"][1] + 1) == format_rfc3339(
        Spool.at(tmp_path / "spool").header().start
    )
