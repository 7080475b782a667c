"""The results of benchmarks: ratios first, because absolute times on a shared machine are not reliable.

A ratio compares two measures of one round, taken one right after the other. The result is the median of all rounds,
with the smallest and the largest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from benchmarks.measure.subject import Measure

Round = tuple[Measure, Measure]
"""The measures of the reader and of the baseline."""

_HEAD = f"{'':20} {'dialect':11} {'framing':7} {'events/s':>9} {'baseline':>9}  {'wall':^22} {'CPU':^22}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The factor by which it is faster or cheaper than the baseline: the median of all rounds and the extremes."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, found: Sequence[float]) -> "Ratio":
        """Returns the median and the extremes of the rounds' ratios."""
        return cls(*(round(pick(found), 2) for pick in (statistics.median, min, max)))

    def __str__(self) -> str:
        return f"{self.median:6.2f}x ({self.least:.2f}-{self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Result:
    """A row of the table. Without a baseline there are no ratios; ``figures`` holds all other results."""

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
        """Returns the result of rounds of the reader and the baseline."""
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
        """Returns the result of rounds without a baseline."""
        speeds = [speed(one) for one in rounds]
        figures: dict[str, float] = {
            "events_per_cpu_s": round(1 / statistics.median(cost(one) for one in rounds)),
            "slowest": round(min(speeds)),
            "fastest": round(max(speeds)),
        }
        return cls(name, dialect, framing, len(rounds), round(statistics.median(speeds)), figures=figures)

    def having(self, figures: dict[str, float]) -> "Result":
        """Returns the same result with more figures."""
        return replace(self, figures={**figures, **self.figures})

    def to_node(self) -> dict[str, object]:
        """Returns the result as in ``results.json``."""
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
    """Returns how many times the baseline's speed the reader's is."""
    return Ratio.of([speed(us) / speed(them) for us, them in rounds])


def cpu_ratio(rounds: Sequence[Round]) -> Ratio:
    """Returns how many times the reader's processor time for an event the baseline needs."""
    return Ratio.of([cost(them) / cost(us) for us, them in rounds])


def head() -> str:
    """Returns the table's first line."""
    return _HEAD


def speed(measure: Measure) -> float:
    """Returns the events in a second of wall clock."""
    return measure.events / measure.wall


def cost(measure: Measure) -> float:
    """Returns the seconds of processor time for an event."""
    return measure.cpu / measure.events
