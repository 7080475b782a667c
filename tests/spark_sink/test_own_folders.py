"""A user's own folders, where a command is run, are never taken for ours: not by any process that it starts."""

import time
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import Scenario, ScriptedServer
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, run

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.parametrize(
    "reader",
    [
        pytest.param({"workers": 2}, id="process"),
        pytest.param({"reader": "executors"}, id="executors", marks=pytest.mark.slow),
    ],
)
def test_run_works_beside_folders_of_our_names(tmp_path: Path, reader: dict[str, object]) -> None:
    for name in ("connector", "spark_sink", "emulator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(f'{__file__} was imported')")
    origin = time.time_ns() - 40 * SECOND
    scenario = Scenario.generate(
        7,
        origin=origin,
        seconds=5,
        dialect="googlesql",
        mode="IMMUTABLE_KEY_RANGE",
        value_capture_type="NEW_ROW",
        schema_change=False,
    )
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        bounds = {"start": format_rfc3339(scenario.history.origin), "end": format_rfc3339(scenario.history.horizon)}
        spark = {"master": "local[2]", "checkpoint": "checkpoint", "config": {"spark.driver.memory": "768m"}}
        config = configuration(tmp_path, sample_of(server), source={**bounds, **reader}, spark=spark)
        done = run("run", config, folder=tmp_path)
    assert done.code == 0, done.err
    lines = [line for path in (tmp_path / "events").rglob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert len(lines) == len(scenario.committed)
