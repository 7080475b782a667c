"""The size of a benchmark: how much it measures."""

from dataclasses import dataclass
from itertools import product

Cell = tuple[str, str]
"""A dialect and a framing."""

DIALECTS = ("googlesql", "postgresql")
LENGTHS = {"1/msg": 1, "16/msg": 2, "50-mod": 5}
"""The factor of a round's mods for each framing, so that all take about the same time."""


CELLS: tuple[Cell, ...] = tuple(product(DIALECTS, LENGTHS))


@dataclass(frozen=True, slots=True)
class Size:
    """The mods of a round with one mod in each message, the rounds, and the share of the mods that a baseline reads.

    ``seconds`` is how long benchmarks of a fixed time run, ``grown`` the most mods of the growing backlog, ``cells``
    the dialects and framings of all benchmarks but the headline. With ``hurried`` processes are reused where possible.
    """

    mods: int
    rounds: int
    baseline_share: float = 0.1
    seconds: float = 20.0
    grown: int = 400_000
    cells: tuple[Cell, ...] = CELLS
    hurried: bool = False

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects of the cells."""
        return tuple(dict.fromkeys(dialect for dialect, _ in self.cells))
