"""A short form of the fault campaign (`make soak`), and tests of the campaign itself."""

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND
from emulator import FaultKind
from emulator.scripted.stream_query import WINDOW
from tests.soak.faults.late_server import LateServer
from tests.soak.faults.process_faults import SEAL_POINTS
from tests.soak.incident import LASTING, PAUSES, ROUND, Incident, explains, incident_of, reports_loss
from tests.soak.keyless import TABLE
from tests.soak.plan import EVERY_SPARK_SEED, Plan
from tests.soak.process_runs import SeedError, StallDetector

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_a_seed_of_the_campaign_loses_and_duplicates_nothing_and_keeps_the_order() -> None:
    """Everything is killed five seconds after Spark was ready."""
    command = [sys.executable, "-m", "tests.soak", "--seeds", "1", "--first-seed", "190", "--kills", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-8000:] + done.stdout[-8000:]
    assert "0 lost silently, 0 duplicated, order kept; every run finished or explained why it stopped." in done.stdout
    counts = {name: int(count) for count, name in re.findall(r"^ +(\d+)  (.+)$", done.stdout, re.MULTILINE)}
    assert counts["of those with real processes had the daemon SIGKILLed"] > 0
    assert counts["of them had Spark SIGKILLed too"] > 0
    assert counts["committed"] == counts["delivered"] > 0


def test_a_seed_gives_the_same_plan_whenever_it_is_drawn() -> None:
    for seed in (3, EVERY_SPARK_SEED):
        one, other = Plan.of_seed(seed), Plan.of_seed(seed)
        assert one.scenario == other.scenario
        assert one.runs == other.runs


@pytest.mark.long
def test_some_seed_kills_at_each_point_of_a_seal() -> None:
    drawn = {run.faults.point for seed in range(1, 120) for run in Plan.of_seed(seed).runs}
    assert set(SEAL_POINTS) <= drawn


def test_200_seeds_have_each_incident_at_least_ten_times() -> None:
    turns = Counter(incident_of(seed) for seed in range(1, 201))
    assert set(turns) == {None, *Incident}
    assert min(turns.values()) >= 10


@pytest.mark.long
def test_an_incident_other_than_a_pause_leaves_the_scenario_unchanged() -> None:
    for seed in range(1, 2 * ROUND):
        before, plan = Plan._of_seed(seed), Plan.of_seed(seed)
        if plan.incident in PAUSES:
            continue
        added = [change for change in plan.scenario.history.in_commit_order() if change.table == TABLE.name]
        assert bool(added) is (plan.incident is Incident.KEYLESS_TABLE)
        kept = [change for change in plan.scenario.history.in_commit_order() if change.table != TABLE.name]
        assert kept == before.scenario.history.in_commit_order()
        assert plan.runs[-len(before.runs) :] == before.runs or plan.incident in LASTING


def test_a_pause_is_longer_than_a_window_of_spanners_time() -> None:
    plans = [Plan.of_seed(seed) for seed in range(1, 4 * ROUND) if incident_of(seed) in PAUSES]
    assert {plan.scenario.mode for plan in plans} == {"IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"}
    for plan in plans:
        assert plan.pause_seconds * plan.speed > WINDOW / SECOND
        assert all(seconds * plan.speed > WINDOW / SECOND for run in plan.runs for _, seconds in run.faults.clock_stops)


@pytest.mark.long
def test_some_seeds_have_placements_of_which_some_are_created_and_emptied() -> None:
    scenarios = [Plan.of_seed(seed).scenario for seed in range(1, 100)]
    placements = [scenario.placements for scenario in scenarios if scenario.placements is not None]
    assert 20 < len(placements) < 50
    assert sum(len(scenario.emptied) for scenario in scenarios) > 10
    assert {each.early for each in placements} == {"accepted", "earliest named", "refused"}


def test_a_late_server_is_late_until_a_query_of_each_token_has_waited() -> None:
    server = LateServer(1, pause=SECOND, seconds=0.02, tokens=2)
    for token in (None, "a"):
        for _ in range(3):
            query = server.next(token)
            assert query.fault is not None
            assert query.fault.kind is FaultKind.LATENESS
            query.over()  # the reader gives up at once
    assert server.waited_for == 0
    query = server.next("a")
    time.sleep(0.03)
    query.over()
    assert server.waited_for == 1
    for token in ("a", "b"):
        fault = server.next(token).fault
        assert fault is None or fault.kind is not FaultKind.LATENESS


def test_a_seed_without_progress_is_reported_as_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bound = StallDetector(tmp_path, 60.0)

    def look(*instants: float) -> None:
        for now[0] in instants:
            bound.check(lambda: "seed 7")

    look(2.0, 50.0)
    (tmp_path / "run-0.log").touch()
    look(61.0, 100.0, 120.0)
    with pytest.raises(SeedError, match="the seed is stalled: no progress for 60 s: seed 7"):
        look(122.5)


@pytest.mark.parametrize(
    ("incident", "line", "explained"),
    [
        (Incident.OUT_OF_ORDER, "a data change record at T is late: Spanner had proved that everything up to U", True),
        (Incident.OUT_OF_ORDER, "ERROR a transaction is incomplete server_transaction_id=x", True),
        (None, "ERROR a transaction is incomplete server_transaction_id=x", False),
        (Incident.OLD_SPOOL, "the checkpoint ends with epoch 7, but the spool at s is another copy: its epoch", True),
        (Incident.OLD_CHECKPOINT, "It was put back from an older one.", True),
        (Incident.OLD_SPOOL, "is late: Spanner had proved that everything up to", False),
        (Incident.STOPPED, "the spool at s is another copy", False),
        (None, "is late: Spanner had proved that everything up to", False),
    ],
)
def test_only_a_line_that_names_the_incident_explains_an_end(
    incident: Incident | None, line: str, explained: bool
) -> None:
    assert explains(incident, line) is explained


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("is late: ... Epochs up to T were delivered without it. It is stored as a dead letter in late/", True),
        ("is late: ... Epochs up to T were delivered without it, and it is not read again.", True),
        ("is late: ... No epoch past it was delivered. Start the reader again: it reads all of it again.", False),
    ],
)
def test_a_line_that_reports_a_loss_is_known(line: str, loss: bool) -> None:
    assert reports_loss(line) is loss
