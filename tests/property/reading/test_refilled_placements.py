"""A placement that is left by all keys and gets keys again, with a partition that nothing announces, loses nothing."""

import pytest

from connector.core.timestamps import SECOND
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import FaultPlan
from tests.property.reading.whole_reader import ORIGIN, WholeReader
from tests.property.refilled import Refilled


@pytest.mark.long
@pytest.mark.parametrize(("after", "behind"), [(0, 0), (3, 120)])
def test_a_placement_that_is_refilled_is_read_whole(after: int, behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refilled = type("Refilled", (Refilled,), {"after": after * SECOND})
    monkeypatch.setattr("emulator.scenario.timelines._Mutable", refilled)
    monkeypatch.setattr(
        "tests.property.reading.whole_reader.ScriptedClock", lambda origin: ScriptedClock(origin + behind * SECOND)
    )
    for seed in range(16):
        scenario = Scenario.generate(
            seed, origin=ORIGIN, seconds=60, transactions=200, churn=40, placements=3, mode="MUTABLE_KEY_RANGE"
        )
        WholeReader(seed, scenario, crashes=seed % 3, faults=FaultPlan()).run()
    assert refilled.__dict__["count"] > 5
