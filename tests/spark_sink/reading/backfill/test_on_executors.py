"""A backfill beside a stream that Spark's executors read: into files; CI shows it with another Spanner database."""

from pathlib import Path

import pytest

from connector.spool.reading import Spool
from emulator import Workload
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit
from tests.spark_sink.reading.backfill.state import differences, events, state_of_database, state_of_files

pytestmark = [pytest.mark.emulator, pytest.mark.spark, pytest.mark.slow]

SPARK = {"master": "local[2]", "trigger": "500ms", "config": {"spark.driver.memory": "768m"}}


def config_of(folder: Path, sample: object, **source: object) -> Path:
    spark = {**SPARK, "checkpoint": str(folder / "checkpoint")}
    sink = {"path": str(folder / "events"), "rotate_interval": "0s"}
    source = {"reader": "executors", "backfill": True, **source}
    return configuration(folder, sample, source=source, spark=spark, sink=sink)  # type: ignore[arg-type]


def test_every_row_is_delivered_and_then_every_change(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=161)
    workload.run(mods=80)
    before = len(state_of_database(sample, workload))
    done = run("run", config_of(tmp_path, sample, end="now"))
    assert done.code == 0, done.err
    assert "the backfill has ended with an error" not in done.err
    snapshots = [event for event in events(tmp_path / "events") if event["source_metadata"]["snapshot"]]
    assert len(snapshots) == before
    assert {event["sort_keys"][1] for event in snapshots} == {Spool.at(tmp_path / "spool").header().start - 1}

    workload.run(mods=30)
    done = run("run", config_of(tmp_path, sample, end=last_commit(workload)))
    assert done.code == 0, done.err
    expected, found = state_of_database(sample, workload), state_of_files(tmp_path / "events")
    assert found == expected, differences(expected, found)
