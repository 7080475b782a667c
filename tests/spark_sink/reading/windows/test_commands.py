"""The commands, with executors that read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Scenario, ScriptedServer
from tests.emulator.subjects import sample_of
from tests.integration.commands import Background, configuration, manifests, run
from tests.integration.delivered import assert_delivered

EXECUTORS = {"reader": "executors"}
SPARK = {"master": "local[2]", "config": {"spark.driver.memory": "768m"}}


@contextmanager
def served(seconds: float = 15) -> Iterator[tuple[Scenario, SampleDatabase]]:
    origin = time.time_ns() - int((seconds + 30) * SECOND)
    scenario = Scenario.generate(
        5,
        origin=origin,
        seconds=seconds,
        dialect="googlesql",
        mode="IMMUTABLE_KEY_RANGE",
        value_capture_type="NEW_ROW",
        schema_change=False,
    )
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        yield scenario, sample_of(server)


def bounds(scenario: Scenario) -> dict[str, str]:
    return {"start": format_rfc3339(scenario.history.origin), "end": format_rfc3339(scenario.history.horizon)}


@pytest.mark.long
def test_run_reads_and_writes_in_one_spark_application(tmp_path: Path) -> None:
    with served() as (scenario, sample):
        spark = {**SPARK, "checkpoint": str(tmp_path / "checkpoint")}
        config = configuration(tmp_path, sample, source={**bounds(scenario), **EXECUTORS}, spark=spark)
        done = run("run", config)
        assert done.code == 0, done.err
    assert_delivered(tmp_path / "spool", scenario.committed, value_capture_type="NEW_ROW")
    lines = sum(
        len(path.read_bytes().splitlines()) for path in (tmp_path / "events").rglob("*.jsonl") if path.is_file()
    )
    assert lines == len(scenario.committed)


@pytest.mark.long
def test_read_drains_when_it_is_terminated_and_continues_where_it_was(tmp_path: Path) -> None:
    with served() as (scenario, sample):
        source = {**bounds(scenario), **EXECUTORS}
        endless = configuration(tmp_path, sample, source={**source, "end": None}, spark=SPARK)
        with Background("read", endless, log=tmp_path / "log") as daemon:
            daemon.until(lambda: len(manifests(tmp_path / "spool")) > 0, "the first epoch")
            daemon.signal(SIGTERM)
            done = daemon.wait()
        assert done.code == 0, done.err
        assert " done " in done.err
        config = configuration(tmp_path, sample, source=bounds(scenario))
        assert run("read", config).code == 0  # in one process, from where the executors were
    assert_delivered(tmp_path / "spool", scenario.committed, value_capture_type="NEW_ROW")
