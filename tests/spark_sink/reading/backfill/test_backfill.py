"""Backfills of the official emulator's tables into files, with the commands and their processes."""

import json
from collections import Counter
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.backfill.records import find
from connector.spool.reading import Spool
from emulator import Workload
from tests.integration.commands import Background, configuration, run
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load
from tests.soak.process_tree import command, kill, process_tree
from tests.spark_sink.reading.backfill.state import differences, events, key_of, state_of_database, state_of_files

pytestmark = [pytest.mark.emulator, pytest.mark.spark]

SPARK = {"master": "local[2]", "trigger": "500ms", "config": {"spark.driver.memory": "768m"}}


def config_of(folder: Path, sample: object, **source: object) -> Path:
    spark = {**SPARK, "checkpoint": str(folder / "checkpoint")}
    sink = {"path": str(folder / "events"), "rotate_interval": "0s", "dead_letters": str(folder / "dead")}
    return configuration(folder, sample, source=source, spark=spark, sink=sink)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_backfill_has_every_row_and_the_stream_begins_right_after_it(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=151)
    workload.run(mods=100)
    before, first = state_of_database(sample, workload), len(workload.committed)
    done = run("backfill", config_of(tmp_path, sample))
    assert done.code == 0, done.err
    found = state_of_files(tmp_path / "events")
    assert found == before, differences(before, found)
    at = Spool.at(tmp_path / "spool").header().start - 1
    for event in events(tmp_path / "events"):
        assert (event["read_method"], event["source_metadata"]["snapshot"]) == ("spanner-backfill", True)
        assert (event["source_metadata"]["mod_type"], event["sort_keys"][1]) == ("INSERT", at)
    report = json.loads(run("spool", tmp_path / "spool", "--json").out)
    (one,) = report["backfills"]
    assert (one["done"], parse(one["timestamp"])) == (True, at)
    assert {table["state"] for table in one["tables"]} == {"done"}
    assert sum(table["rows"] for table in one["tables"]) == len(before)

    workload.run(mods=30)
    assert run("read", config_of(tmp_path, sample, end=last_commit(workload))).code == 0
    kept = assert_delivered(tmp_path / "spool", workload.committed_since(first), official=sample)
    assert kept[0].watermark_low == at


@pytest.mark.long
def test_a_backfill_whose_driver_and_service_are_killed_ends_with_the_databases_rows(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect="postgresql")
    workload = Workload(sample, seed=152)
    workload.run(mods=100)
    config = config_of(tmp_path, sample, backfill=True)
    sealed = tmp_path / "spool/backfills/1/manifests"
    with load(workload, rate=3), Background("run", config, log=tmp_path / "first.log") as service:
        service.until(lambda: sealed.exists() and any(sealed.iterdir()), "a partition is sealed")
        driver = next(each for each in process_tree(service.process.pid) if "--backfill" in command(each))
        kill(process_tree(driver))
        service.await_log("the process of the backfill has ended with a transient error")
        kill(process_tree(service.process.pid))
        service.process.wait()
    end = last_commit(workload)
    done = run("run", config_of(tmp_path, sample, backfill=True, end=end))
    assert done.code == 0, done.err
    expected, found = state_of_database(sample, workload), state_of_files(tmp_path / "events")
    assert found == expected, differences(expected, found)
    snapshots = [event for event in events(tmp_path / "events") if event["source_metadata"]["snapshot"]]
    assert len({event["sort_keys"][1] for event in snapshots}) == 1
    assert max(Counter(map(key_of, snapshots)).values()) == 1, "a row was delivered twice"
    assert format_rfc3339(snapshots[0]["sort_keys"][1] + 1) == format_rfc3339(
        Spool.at(tmp_path / "spool").header().start
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reader", ["process", "executors"])
def test_a_table_that_comes_later_is_backfilled_beside_the_stream_and_rows_that_rules_omit_are_not(
    reader: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    with sample.database.batch() as batch:
        batch.insert("Singers", ["SingerId"], [[1], [2], [3]])
        batch.insert("Albums", ["SingerId", "AlbumId"], [[1, 1]])
    rules = {"new_tables": True, "exclude": ["Albums"], "where": {"Singers": "SingerId > 1"}}
    config = config_of(tmp_path, sample, backfill=rules, reader=reader)
    spool = Spool.at(tmp_path / "spool")

    def is_done(number: int) -> bool:
        one = find(spool, number)
        return one is not None and one.progress.is_done

    with Background("run", config, log=tmp_path / "run.log") as service:
        service.until(lambda: is_done(1), "the backfill of the start is done", timeout=300)
        sample.run_ddl("CREATE TABLE Later (Id INT64) PRIMARY KEY (Id)")
        with sample.database.batch() as batch:
            batch.insert("Later", ["Id"], [[7]])
        service.until(lambda: is_done(2), "the backfill of the new table is done", timeout=300)
        objects = json.loads(run("status", config, "--objects", "--json").out)["objects"]
        assert service.stop(timeout=120).code == 0, service.said
    states = {one["table"]: one["backfill"]["state"] for one in objects}
    assert (states["Later"], states["Singers"], states["Albums"]) == ("completed", "completed", "not_started")
    snapshots = [event for event in events(tmp_path / "events") if event["source_metadata"]["snapshot"]]
    keys = sorted((event["object"], next(iter(event["payload"].values()))) for event in snapshots)
    assert keys == [("Later", 7), ("Singers", 2), ("Singers", 3)]
