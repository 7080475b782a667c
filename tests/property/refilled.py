"""Histories whose placements are left by all keys and get keys again, with a partition that nothing announces."""

from connector.core.timestamps import SECOND
from emulator.scenario.placements import Placement
from emulator.scenario.timelines import _Mutable


class Refilled(_Mutable):
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
