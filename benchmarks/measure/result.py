"""What a benchmark found: ratios first, for these machines are shared and absolute times lie.

A ratio is of two measures of one round, taken one right after the other; of all rounds the median is told, with the
smallest and the largest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from benchmarks.measure.subject import Measure

Round = tuple[Measure, Measure]
"""Ours, and the baseline's."""

_HEAD = f"{'':20} {'dialect':11} {'framing':7} {'events/s':>9} {'baseline':>9}  {'wall':^22} {'CPU':^22}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times the baseline's speed, or the baseline's cost: the median of all rounds and their extremes."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, found: Sequence[float]) -> "Ratio":
        """The median and the extremes of one ratio a round."""
        return cls(*(round(pick(found), 2) for pick in (statistics.median, min, max)))

    def __str__(self) -> str:
        return f"{self.median:6.2f}x ({self.least:.2f}-{self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the table. What has no baseline has no ratios; ``figures`` hold whatever else was found."""

    name: str
    dialect: str | None = None
    framing: str | None = None
    rounds: int = 1
    events_per_s: float | None = None
    baseline_events_per_s: float | None = None
    wall: Ratio | None = None
    cpu: Ratio | None = None
    figures: dict[str, float] = field(default_factory=dict)

    @classmethod
    def compared(
        cls, name: str, dialect: str | None, framing: str | None, rounds: Sequence[Round], figures: dict[str, float]
    ) -> "Result":
        """The result of rounds of ours and the baseline's."""
        ours, baseline = zip(*rounds, strict=True)
        return cls(
            name,
            dialect,
            framing,
            len(rounds),
            round(statistics.median(speed(one) for one in ours)),
            round(statistics.median(speed(one) for one in baseline)),
            wall_ratio(rounds),
            cpu_ratio(rounds),
            {"events_per_cpu_s": round(1 / statistics.median(cost(one) for one in ours)), **figures},
        )

    @classmethod
    def measured(cls, name: str, dialect: str | None, framing: str | None, rounds: Sequence[Measure]) -> "Result":
        """The result of rounds that are compared with nothing."""
        speeds = [speed(one) for one in rounds]
        figures: dict[str, float] = {
            "events_per_cpu_s": round(1 / statistics.median(cost(one) for one in rounds)),
            "slowest": round(min(speeds)),
            "fastest": round(max(speeds)),
        }
        return cls(name, dialect, framing, len(rounds), round(statistics.median(speeds)), figures=figures)

    def having(self, figures: dict[str, float]) -> "Result":
        """The same with more figures."""
        return replace(self, figures={**figures, **self.figures})

    def to_node(self) -> dict[str, object]:
        """The result as ``results.json`` has it."""
        node = asdict(self)
        for name in ("wall", "cpu"):
            ratio = node.pop(name)
            node[f"ratio_{name}"] = ratio["median"] if ratio else None
            node[f"ratio_{name}_spread"] = [ratio["least"], ratio["most"]] if ratio else None
        return node

    def __str__(self) -> str:
        speeds = [f"{number:,.0f}" if number else "" for number in (self.events_per_s, self.baseline_events_per_s)]
        ratios = [str(ratio or "") for ratio in (self.wall, self.cpu)]
        found = "  ".join(f"{name}={value:g}" for name, value in self.figures.items())
        row = f"{self.name:20} {self.dialect or '':11} {self.framing or '':7} {speeds[0]:>9} {speeds[1]:>9}"
        return f"{row}  {ratios[0]:22} {ratios[1]:22} {found}".rstrip()


def wall_ratio(rounds: Sequence[Round]) -> Ratio:
    """How many times the baseline's speed ours is."""
    return Ratio.of([speed(us) / speed(them) for us, them in rounds])


def cpu_ratio(rounds: Sequence[Round]) -> Ratio:
    """How many times our processor time an event takes the baseline."""
    return Ratio.of([cost(them) / cost(us) for us, them in rounds])


def head() -> str:
    """The table's first line."""
    return _HEAD


def speed(measure: Measure) -> float:
    """Events a second of wall clock."""
    return measure.events / measure.wall


def cost(measure: Measure) -> float:
    """Seconds of processor time an event."""
    return measure.cpu / measure.events
