"""Plots the ratios; needs matplotlib (the extra ``bench``)."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure.result import Ratio, Result

_KINDS = (("wall", "wall clock", "#8fb8de"), ("cpu", "processor time", "#2f6690"))
_THICKNESS = 0.38


def plot(results: Sequence[Result], path: Path) -> bool:
    """Plots the ratios to the baseline into an SVG file; returns False without matplotlib."""
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rcParams["svg.hashsalt"] = "the same bytes for the same figures"
    drawn = [result for result in results if result.wall and result.cpu]
    figure = Figure(figsize=(8, 1.2 + 0.5 * len(drawn)), layout="constrained")
    axes = figure.subplots()
    for index, (kind, label, colour) in enumerate(_KINDS):
        ratios: list[Ratio] = [getattr(result, kind) for result in drawn]
        axes.barh(
            [at + (index - 0.5) * _THICKNESS for at in range(len(drawn))],
            [ratio.median for ratio in ratios],
            _THICKNESS,
            xerr=[[r.median - r.least for r in ratios], [r.most - r.median for r in ratios]],
            color=colour,
            ecolor="#555555",
            label=label,
        )
    axes.set_yticks(range(len(drawn)), [f"{r.name}\n{r.dialect or ''} {r.framing or ''}" for r in drawn], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.set_xlabel("times the baseline: median of the rounds, and their extremes")
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    return True
