"""Windows of the whole reader on virtual time. For a campaign: ``WHOLE_WINDOWS_SEEDS=1000 pytest tests/property``."""

import os
from collections import Counter

import pytest

from emulator.scripted.fault_plan import RECOVERABLE
from tests.property.windows.whole_windows import of_seed

SEEDS = int(os.environ.get("WHOLE_WINDOWS_SEEDS", "12"))


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


@pytest.mark.parametrize("seed", range(SEEDS))
def test_windows_have_the_records_of_every_placement(seed: int) -> None:
    of_seed(seed, placements=1 + seed % 3).run()
