"""Windows of the whole reader on virtual time.

For a campaign: ``WHOLE_WINDOWS_SEEDS=1000 pytest --run-long tests/property``.
"""

import os
from collections import Counter

import pytest

from connector.core.timestamps import SECOND
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import RECOVERABLE
from tests.property.reading.whole_reader import ORIGIN
from tests.property.refilled import Refilled
from tests.property.windows.whole_windows import WholeWindows, of_seed

SEEDS = int(os.environ.get("WHOLE_WINDOWS_SEEDS", "12"))


@pytest.mark.long
def test_shares_of_windows_are_together_the_history_through_faults_and_lost_tasks() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        windows = of_seed(seed)
        try:
            windows.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts += windows.counts
        counts += windows.scenario.churn
    assert {"declined", "lost tasks", "splits", "merges", "moves", "starts", "ends"} <= set(counts)
    assert {kind.value for kind in RECOVERABLE} & set(counts)


@pytest.mark.long(but=5)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_windows_have_the_records_of_every_placement(seed: int) -> None:
    of_seed(seed, placements=1 + seed % 3).run()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("after", [0, 3])
def test_windows_have_the_records_of_a_placement_that_is_left_and_refilled(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refilled = type("Refilled", (Refilled,), {"after": after * SECOND})
    monkeypatch.setattr("emulator.scenario.timelines._Mutable", refilled)
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        scenario = Scenario.generate(
            seed, origin=ORIGIN, seconds=60, transactions=200, churn=40, placements=3, mode="MUTABLE_KEY_RANGE"
        )
        windows = WholeWindows(seed, scenario, windows=seed % 7, heartbeat=SECOND)
        try:
            windows.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts += windows.counts
    assert counts["refilled"]
