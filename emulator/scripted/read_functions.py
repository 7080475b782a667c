"""The read functions of a scripted change stream: one, or one for each placement, as they exist at a time."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.scenario.placements import Placement
from emulator.scenario.scenario import Scenario
from emulator.scripted.row_types import read_function


@dataclass(frozen=True, slots=True)
class ReadFunction:
    """A read function; without a placement it reads all partitions."""

    name: str
    placement: Placement | None = None

    def reads(self, placement: str) -> bool:
        """True if it reads the partitions of that placement."""
        return self.placement is None or self.placement.name == placement


def read_functions(scenario: Scenario, at: int) -> list[ReadFunction]:
    """Returns the functions that exist at that time."""
    form = (scenario.dialect, scenario.mode, scenario.change_stream)
    if scenario.placements is None:
        return [ReadFunction(read_function(*form))]
    plain = [ReadFunction(read_function(*form))] if scenario.placements.has_plain else []
    return plain + [
        ReadFunction(read_function(*form, placement.name), placement)
        for placement in scenario.placements.each
        if placement.has_function(at)
    ]
