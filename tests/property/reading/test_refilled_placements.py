"""A placement that is left by all keys and gets keys again, with a partition that nothing announces, loses nothing."""

import pytest

from connector.core.timestamps import SECOND
from emulator.scenario.placements import Placement
from emulator.scenario.scenario import Scenario
from emulator.scenario.timelines import _Mutable
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.fault_plan import FaultPlan
from tests.property.reading.whole_reader import ORIGIN, WholeReader


class _Refilled(_Mutable):
    """Gives each emptied placement a partition and keys after some seconds; counts how often."""

    after = 0
    count = 0

    def _empty(self, placement: Placement) -> bool:
        done = super()._empty(placement)
        if done:
            self.__dict__.setdefault("due", []).append((self._now + SECOND + 2 + self.after, placement))
        return done

    def change_placements(self, upto: int) -> None:
        super().change_placements(upto)
        for one in [one for one in self.__dict__.get("due", ()) if one[0] <= upto < self._horizon]:
            self.__dict__["due"].remove(one)
            self._advance(max(one[0], self._now))
            donors = [token for token in self._owned if self._owned[token] and token not in self._touched]
            started = self._start(self._now, one[1].name)
            self._transfer([(part, started) for donor in donors for part in self._part(donor)])
            one[1].emptied = None
            type(self).count += 1


@pytest.mark.parametrize(("after", "behind"), [(0, 0), (3, 120)])
def test_a_placement_that_is_refilled_is_read_whole(after: int, behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refilled = type("Refilled", (_Refilled,), {"after": after * SECOND})
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
