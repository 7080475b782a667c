"""A short form of the fault campaign (`make soak`), and what must hold for it to mean anything."""

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
from tests.soak.faults.fault import SEAL_POINTS
from tests.soak.faults.late_server import LateServer
from tests.soak.keyless import TABLE
from tests.soak.lives import SeedError, Standstill
from tests.soak.ordeal import ROUND, STANDSTILLS, Ordeal, is_told_of, ordeal_of
from tests.soak.plan import EVERY_SPARK_SEED, Plan

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(420)
def test_a_few_seeds_of_the_campaign_loses_nothing_doubles_nothing_and_keeps_the_order() -> None:
    command = [sys.executable, "-m", "tests.soak", "--seeds", "3", "--first-seed", str(EVERY_SPARK_SEED - 1)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-8000:] + done.stdout[-8000:]
    assert "0 lost unseen, 0 twice, order kept, every run ended or said why." in done.stdout
    told = {name: int(count) for count, name in re.findall(r"^ +(\d+)  (.+)$", done.stdout, re.MULTILINE)}
    assert told["of those with real processes had the daemon SIGKILLed"] > 0
    assert told["of them had Spark SIGKILLed too"] > 0
    assert told["committed"] == told["delivered"] > 0


def test_a_seed_gives_the_same_plan_whenever_it_is_drawn() -> None:
    for seed in (3, EVERY_SPARK_SEED):
        one, other = Plan.of_seed(seed), Plan.of_seed(seed)
        assert one.scenario == other.scenario
        assert one.lives == other.lives


def test_some_seed_kills_at_each_point_of_a_seal() -> None:
    drawn = {life.trouble.point for seed in range(1, 120) for life in Plan.of_seed(seed).lives}
    assert set(SEAL_POINTS) <= drawn


def test_in_200_seeds_each_ordeal_has_its_turn_ten_times_at_least() -> None:
    turns = Counter(ordeal_of(seed) for seed in range(1, 201))
    assert set(turns) == {None, *Ordeal}
    assert min(turns.values()) >= 10


def test_a_seed_of_before_there_were_ordeals_keeps_its_scenario_unless_it_stands_still() -> None:
    for seed in range(1, 2 * ROUND):
        before, plan = Plan._of_seed(seed), Plan.of_seed(seed)
        if plan.ordeal in STANDSTILLS:
            continue
        added = [change for change in plan.scenario.history.in_commit_order() if change.table == TABLE.name]
        assert bool(added) is (plan.ordeal is Ordeal.KEYLESS_TABLE)
        kept = [change for change in plan.scenario.history.in_commit_order() if change.table != TABLE.name]
        assert kept == before.scenario.history.in_commit_order()
        assert plan.lives[-len(before.lives) :] == before.lives


def test_what_stands_still_does_so_for_longer_than_a_window_of_spanners_time() -> None:
    plans = [Plan.of_seed(seed) for seed in range(1, 4 * ROUND) if ordeal_of(seed) in STANDSTILLS]
    assert {plan.scenario.mode for plan in plans} == {"IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"}
    for plan in plans:
        assert plan.still * plan.speed > WINDOW / SECOND
        assert all(still * plan.speed > WINDOW / SECOND for life in plan.lives for _, still in life.trouble.still)


def test_a_late_server_is_late_until_a_query_of_each_token_was_waited_for() -> None:
    server = LateServer(1, pause=SECOND, seconds=0.02, tokens=2)
    for token in (None, "a"):
        for _ in range(3):
            query = server.next(token)
            assert query.fault is not None
            assert query.fault.kind is FaultKind.LATENESS
            query.over()  # it was given up at once
    assert server.waited_for == 0
    query = server.next("a")
    time.sleep(0.03)
    query.over()
    assert server.waited_for == 1
    for token in ("a", "b"):
        fault = server.next(token).fault
        assert fault is None or fault.kind is not FaultKind.LATENESS


def test_a_run_in_which_nothing_moves_is_reported_as_standing_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bound = Standstill(tmp_path, 60.0)

    def look(*instants: float) -> None:
        for now[0] in instants:
            bound.check(lambda: "seed 7")

    look(2.0, 50.0)
    (tmp_path / "life-0.log").touch()
    look(61.0, 100.0, 120.0)
    with pytest.raises(SeedError, match="it stands still: nothing has moved for 60 s: seed 7"):
        look(122.5)


@pytest.mark.parametrize(
    ("ordeal", "line", "told"),
    [
        (Ordeal.OUT_OF_ORDER, "a data change record at T is late: Spanner had proved that everything up to U", True),
        (Ordeal.OLD_SPOOL, "the checkpoint ends with epoch 7, but the spool at s is another copy: its epoch", True),
        (Ordeal.OLD_CHECKPOINT, "It was put back from an older one.", True),
        (Ordeal.OLD_SPOOL, "is late: Spanner had proved that everything up to", False),
        (Ordeal.STOPPED, "the spool at s is another copy", False),
        (None, "is late: Spanner had proved that everything up to", False),
    ],
)
def test_an_end_counts_as_told_only_by_the_line_of_what_the_seed_goes_through(
    ordeal: Ordeal | None, line: str, told: bool
) -> None:
    assert is_told_of(ordeal, line) is told
