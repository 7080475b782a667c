"""A short form of the fault campaign (`make soak`), and what must hold for it to mean anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.plan import EVERY_SPARK_SEED, Plan
from tests.soak.trouble import SEAL_POINTS

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(420)
def test_a_few_seeds_of_the_campaign_loses_nothing_doubles_nothing_and_keeps_the_order() -> None:
    command = [sys.executable, "-m", "tests.soak", "--seeds", "3", "--first-seed", str(EVERY_SPARK_SEED - 1)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-8000:] + done.stdout[-8000:]
    assert "0 lost, 0 twice, order kept, every run ended." in done.stdout
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
