"""`spanner-cdc read` with workers: what it seals, kills of workers and of the daemon, and its reports."""

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import Fault, FaultKind, FaultPlan, SampleDatabase, Scenario, ScriptedServer
from emulator.scenario.history import PartitionMode
from emulator.scripted.fault_plan import RECOVERABLE
from tests.emulator.subjects import sample_of
from tests.integration.commands import Background, configuration, manifests, reading, run, tail, until
from tests.integration.contract import Event
from tests.integration.delivered import assert_delivered, rows
from tests.soak.process_tree import command, process_tree

MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")
QUICK = RECOVERABLE - {FaultKind.SILENCE, FaultKind.SLOWNESS}
with_placements = pytest.mark.parametrize(
    ("mode", "placements"),
    [
        pytest.param(MODES[0], 0, id="immutable"),
        pytest.param(MODES[1], 0, id="mutable", marks=pytest.mark.slow),
        pytest.param(MODES[1], 2, id="placements"),
    ],
)


def churning(
    mode: PartitionMode, *, seconds: float, passed: float = 0.0, transactions: int = 400, placements: int = 0
) -> Scenario:
    """Returns a scenario of so many seconds, of which some have passed."""
    origin = time.time_ns() - int(passed * SECOND)
    return Scenario.generate(
        9,
        origin=origin,
        seconds=seconds,
        dialect="googlesql",
        mode=mode,
        churn=30,
        transactions=transactions,
        placements=placements,
    )


@contextmanager
def served(scenario: Scenario, faults: FaultPlan | None = None) -> Iterator[SampleDatabase]:
    with ScriptedServer.started(scenario, begins=time.time_ns(), faults=faults) as server:
        yield sample_of(server)


def config(folder: Path, sample: SampleDatabase, scenario: Scenario, *, workers: int) -> Path:
    history = scenario.history
    folder.mkdir(exist_ok=True)
    bounds = {"start": format_rfc3339(history.origin), "end": format_rfc3339(history.horizon)}
    return configuration(folder, sample, source={**bounds, "workers": workers})


_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def workers_of(daemon: Background) -> list[int]:
    return [
        process
        for process in process_tree(daemon.process.pid)
        if "connector.spanner.workers.worker" in command(process)
    ]


def without_read_timestamp_and_epoch(folder: Path) -> list[Event]:
    found = [row for manifest in manifests(folder / "spool") for row in rows(folder / "spool", manifest)]
    return [{**row, "read_timestamp": None, "epoch": None} for row in found]


@pytest.mark.long
@with_placements
def test_two_workers_seal_what_one_process_seals_in_the_same_order(
    mode: PartitionMode, placements: int, tmp_path: Path
) -> None:
    scenario = churning(mode, seconds=60, passed=90, placements=placements)
    found = []
    for workers in (1, 2):
        with served(scenario, FaultPlan(workers, share=0.3, kinds=QUICK)) as sample:
            done = run("read", config(tmp_path / str(workers), sample, scenario, workers=workers))
        assert done.code == 0, done.err
        assert ("workers have started" in done.err) is (workers > 1)
        assert_delivered(tmp_path / str(workers) / "spool", scenario.committed)
        found.append(without_read_timestamp_and_epoch(tmp_path / str(workers)))
    assert found[0] == found[1]


@pytest.mark.long
@with_placements
def test_killed_workers_are_replaced_without_loss(mode: PartitionMode, placements: int, tmp_path: Path) -> None:
    # It ends after the kills, however long they take.
    scenario = churning(mode, seconds=300, transactions=10_000, placements=placements)
    random = Random(3)
    with served(scenario) as sample, reading(config(tmp_path, sample, scenario, workers=2)) as daemon:
        for kill in range(1, 3):
            sealed = len(manifests(tmp_path / "spool"))
            daemon.until(lambda sealed=sealed: len(manifests(tmp_path / "spool")) > sealed + 1, "seals")  # type: ignore[misc]
            os.kill(random.choice(workers_of(daemon)), SIGKILL)
            daemon.until(lambda kill=kill: daemon.said.count("has died and is replaced") == kill, "a replacement")  # type: ignore[misc]
            daemon.until(lambda: len(workers_of(daemon)) == 2, "two workers")
        sealed = len(manifests(tmp_path / "spool"))
        daemon.until(lambda: len(manifests(tmp_path / "spool")) > sealed, "a seal after the last kill")
        done = daemon.stop()
    assert done.code == 0, done.err
    assert " ERROR " not in done.err
    assert "was ended by SIGKILL" in done.err
    watermark = manifests(tmp_path / "spool")[-1].watermark_high
    assert_delivered(tmp_path / "spool", [mod for mod in scenario.committed if mod.commit_timestamp_ns <= watermark])


@pytest.mark.long
@pytest.mark.parametrize("number", [SIGTERM, SIGINT, SIGKILL])
def test_no_worker_outlives_its_daemon(number: Signals, tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=3600, transactions=40)
    with served(scenario) as sample, reading(config(tmp_path, sample, scenario, workers=2)) as daemon:
        daemon.until(lambda: bool(manifests(tmp_path / "spool")), "a seal")
        workers = workers_of(daemon)
        assert len(workers) == 2
        done = daemon.stop(number)
    assert done.code == {SIGTERM: 0, SIGINT: 130, SIGKILL: -SIGKILL}[number]
    until(lambda: not any("connector.spanner.workers.worker" in command(worker) for worker in workers), "no worker")
    assert "has died" not in done.err
    assert "Traceback" not in done.err


def test_one_worker_runs_in_the_daemons_process(tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=3600, transactions=40)
    with served(scenario) as sample, reading(config(tmp_path, sample, scenario, workers=1)) as daemon:
        daemon.until(lambda: bool(manifests(tmp_path / "spool")), "a seal")
        assert process_tree(daemon.process.pid) == [daemon.process.pid]


def test_against_an_emulator_no_worker_process_is_started_by_default(tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=3600, transactions=40)
    path = tmp_path / "config.yaml"
    with served(scenario) as sample:
        configuration(tmp_path, sample, source={"start": format_rfc3339(scenario.history.origin)})
        with reading(path) as daemon:
            assert process_tree(daemon.process.pid) == [daemon.process.pid]


@pytest.mark.long
def test_workers_report_an_error_of_spanner_in_the_same_line(tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=60, passed=90)
    lines = []
    for workers in (1, 2):
        token = min(scenario.history.partitions)
        faults = FaultPlan().rule(Fault(FaultKind.EXPIRED_PARTITION), token=token, times=9)
        with served(scenario, faults) as sample:
            done = run("read", config(tmp_path / str(workers), sample, scenario, workers=workers))
        assert done.code == 3
        # The progress of a reader when the error occurs differs from run to run.
        lines.append(_TIMESTAMP.sub("T", done.complaint.replace(str(tmp_path / str(workers)), "")))
    assert "no longer retained" in lines[0]
    assert lines[1] == lines[0]


@pytest.mark.long
def test_tail_may_have_workers_too(tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=30, passed=60)
    history = scenario.history
    bounds = ("--start", format_rfc3339(history.origin), "--end", format_rfc3339(history.horizon))
    with served(scenario) as sample:
        found = [tail(sample, *bounds, *more) for more in ((), ("--workers", "2"))]
    events = [[{**event, "read_timestamp": None} for event in done.events] for done in found]
    assert events[0] == events[1]
    assert len(events[0]) == len(scenario.committed)
    assert ["workers have started" in done.err for done in found] == [False, True]


@pytest.mark.long
def test_the_status_page_reports_workers_and_replacements(tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=3600, transactions=40)
    with served(scenario) as sample, reading(config(tmp_path, sample, scenario, workers=2)) as daemon:
        url = daemon.said.partition("url=")[2].split()[0] + "api/status"

        def counted() -> tuple[object, object]:
            with urllib.request.urlopen(url, timeout=300) as answer:
                node = json.load(answer)["figures"]
            return node["workers"], node["worker_restarts"]

        assert counted() == (2, 0)
        os.kill(workers_of(daemon)[0], SIGKILL)
        daemon.until(lambda: counted() == (2, 1), "the replacement is counted")


@pytest.mark.parametrize("log_format", [pytest.param("text", marks=pytest.mark.slow), "json"])
def test_workers_log_in_the_format_of_the_daemon(log_format: str, tmp_path: Path) -> None:
    scenario = churning("IMMUTABLE_KEY_RANGE", seconds=20, passed=60)
    with served(scenario) as sample:
        done = run("read", config(tmp_path, sample, scenario, workers=2), "--log-format", log_format, "--verbose")
    lines = [line for line in done.err.splitlines() if "a worker reads" in line]
    assert len(lines) == 2
    assert all(line.startswith("{") is (log_format == "json") for line in lines)
