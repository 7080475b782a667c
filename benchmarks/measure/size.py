"""How much a benchmark measures."""

from dataclasses import dataclass
from itertools import product

Cell = tuple[str, str]
"""A dialect and a framing."""

DIALECTS = ("googlesql", "postgresql")
LENGTHS = {"1/msg": 1, "16/msg": 2, "50-mod": 5}
"""How many times as many mods a round has in each framing, so that each takes about as long."""


CELLS: tuple[Cell, ...] = tuple(product(DIALECTS, LENGTHS))


@dataclass(frozen=True, slots=True)
class Size:
    """Mods of a round at one a message, how many rounds, and the share of the mods that a baseline gets.

    ``seconds`` is how long what cannot be hurried is watched, ``grown`` the most mods of a backlog that grows,
    ``cells`` what is measured of all but the headline. Who is ``hurried`` starts no process that can be spared.
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
        """Those of the cells."""
        return tuple(dict.fromkeys(dialect for dialect, _ in self.cells))
