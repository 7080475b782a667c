"""The reader inside a job, against the emulator: a query that is killed, daemon and all left to themselves, goes on."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.core.timestamps import format_rfc3339
from emulator import Emulator, SampleDatabase, Workload, find_or_start
from tests.integration.delivered import unless_skipped
from tests.spark_sink.processes import eventually, program
from tests.spark_sink.queries import Query

pytestmark = [pytest.mark.spark, pytest.mark.emulator]


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with find_or_start(churn_seconds=3) as running:
        yield running


def delivered(folder: Path) -> list[str]:
    return [event[0] for file in sorted(folder.glob("q-out/*.json")) for event in json.loads(file.read_text())]


@pytest.mark.long
def test_a_restarted_query_takes_over_from_the_orphaned_daemon_and_nothing_is_lost_or_twice(
    spark: SparkSession, emulator: Emulator, tmp_path: Path
) -> None:
    sample = SampleDatabase.create(emulator.host)
    begun = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=7)
    options = {
        "spool": str(tmp_path / "spool"),
        **_read_here(sample),
        "startTimestamp": begun,
    }
    for _ in range(10):
        workload.commit_one()
    with program(
        tmp_path / "log",
        "-m",
        "tests.spark_sink.sources.changes.programs.endless_query",
        str(tmp_path),
        json.dumps(options),
    ) as killed:
        eventually(lambda: delivered(tmp_path) or killed.has_ended(), "events are delivered")
        workload.commit_one()
        killed.kill()
    assert delivered(tmp_path), killed.said()
    for _ in range(10):
        workload.commit_one()
    query = Query(spark, tmp_path, **options)
    running = query.start()
    committed = len(workload.committed)
    with unless_skipped(sample, lambda: workload.committed, tmp_path / "spool"):
        eventually(lambda: len(delivered(tmp_path)) >= committed or not running.isActive, "everything is delivered")
    running.stop()
    keys = delivered(tmp_path)
    assert sorted(set(keys)) == sorted(keys)
    assert len(keys) == committed
    sample.drop()


def _read_here(sample: SampleDatabase) -> dict[str, str]:
    """The options of a source that runs the reader of the database's stream in its job."""
    return {
        "projectId": sample.project,
        "instanceId": sample.instance,
        "databaseId": sample.database_id,
        "changeStream": sample.change_stream,
        "emulatorHost": sample.host,
    }


@pytest.mark.long
def test_the_end_ends_the_daemon_and_the_query_continues_without_it(
    spark: SparkSession, emulator: Emulator, tmp_path: Path
) -> None:
    sample = SampleDatabase.create(emulator.host)
    begun = format_rfc3339(time.time_ns())
    Workload(sample, seed=8).commit_one()
    query = Query(
        spark,
        tmp_path,
        spool=str(tmp_path / "spool"),
        **_read_here(sample),
        startTimestamp=begun,
        endTimestamp=format_rfc3339(time.time_ns()),
    )
    running = query.start()
    locked = tmp_path / "spool/writer.lock"
    eventually(lambda: delivered(tmp_path) or not running.isActive, "the event is delivered")
    eventually(lambda: locked.exists() and not alive(int(locked.read_text())), "the daemon ends")
    assert running.isActive
    running.stop()
    sample.drop()


@pytest.mark.long
def test_available_now_takes_everything_up_to_spanners_clock_and_without_news_ends_without_a_micro_batch(
    spark: SparkSession, emulator: Emulator, tmp_path: Path
) -> None:
    sample = SampleDatabase.create(emulator.host)
    workload = Workload(sample, seed=9)
    query = Query(
        spark,
        tmp_path,
        spool=str(tmp_path / "spool"),
        **_read_here(sample),
        startTimestamp="-15m",
    )
    for runs in (1, 2):
        for _ in range(5):
            workload.commit_one()
        with unless_skipped(sample, lambda: workload.committed, tmp_path / "spool"):
            query.run()
            assert len(delivered(tmp_path)) == len(set(delivered(tmp_path))) == len(workload.committed), runs
    files = sorted(query.out.glob("*.json"))
    query.run()
    assert sorted(query.out.glob("*.json")) == files
    sample.drop()


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").read_text().split(") ")[1].startswith("Z")
