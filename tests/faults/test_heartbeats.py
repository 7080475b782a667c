"""Heartbeats below the second that Spanner's documentation names."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from connector.check.findings import findings_of
from connector.check.needs import NEEDS
from connector.config.loading import load
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.read import read
from connector.reader.stopping import StopRequest
from connector.telemetry.metrics import ReaderMetrics
from emulator import Scenario, ScriptedServer
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, run


def read_with(heartbeat: str, folder: Path) -> ReaderMetrics:
    """Reads some seconds as they pass; returns the metrics."""
    scenario = Scenario.generate(3, origin=time.time_ns(), seconds=5)
    bounds = {"start": format_rfc3339(scenario.history.origin), "end": format_rfc3339(scenario.history.horizon)}
    metrics = ReaderMetrics()
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        source = {**bounds, "heartbeat": heartbeat, "workers": 1}
        config = load(configuration(folder, sample_of(server), source=source))
        asyncio.run(read(config, StopRequest(drain_timeout=60 * SECOND), metrics=metrics))
    return metrics


def test_no_query_is_ended_because_of_a_heartbeat(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    slow, fast = read_with("1s", tmp_path / "slow"), read_with("100ms", tmp_path)
    assert fast.heartbeats > slow.heartbeats + 30
    assert fast.queries < slow.queries + 15


def test_a_service_that_refuses_a_short_heartbeat_ends_the_reader_with_one_line(tmp_path: Path) -> None:
    scenario = replace(Scenario.generate(3, origin=time.time_ns(), seconds=5), shortest_heartbeat=SECOND)
    with ScriptedServer.started(scenario) as server:
        config = configuration(tmp_path, sample_of(server), source={"heartbeat": "100ms"})
        found = asyncio.run(findings_of(load(config), needs=NEEDS["read"]))
        (warning,) = found.warnings
        assert warning.startswith("source.heartbeat: 0.1s is shorter than the 1s that Spanner's documentation names")
        done = run("read", config)
    assert done.code == 2
    assert "heartbeat_milliseconds must be within min 1000 and max 300000" in done.complaint
    assert done.complaint.endswith("Set source.heartbeat: 1s; up to 300s is taken")
