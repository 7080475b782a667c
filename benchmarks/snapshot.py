"""Measures reading a partition of a table as of a timestamp, against google-cloud-spanner's batch read of the same."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.measure import snapshots
from benchmarks.measure.result import Result, cpu_ratio, wall_ratio
from benchmarks.measure.size import Size
from benchmarks.measure.subject import Measure, Subject, Work, subject
from benchmarks.replay.messages import Span
from benchmarks.replay.rows import TOGETHER, TableReplay
from benchmarks.replay.server import ReplayServer, replaying

_WARM_UP = 2_000
_WORKS: dict[str, Work] = {"arrow": snapshots.to_arrow, "events": snapshots.to_events}
"""What rows are read into, by the name in the column for framings."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """One of the sides that are compared."""

    process: Subject
    work: Work

    def read(self, server: ReplayServer, rows: int) -> Measure:
        span = Span(0, rows // TOGETHER * TOGETHER)
        found = self.process.run(self.work, server.host, TableReplay(), span, "")
        assert found.events == span.mods, f"{span.mods} rows were served, {found.events} were read"
        return found


def read(size: Size) -> Iterator[Result]:
    """From the wire to typed Arrow columns, and to the envelope's columns.

    The baseline is the library's rows of Python values; the ratios to the same rows in Arrow columns are figures.
    """
    for name, work in _WORKS.items():
        works = (work, snapshots.library_rows, snapshots.library_to_arrow)
        with replaying(TableReplay(), Span(0, 0)) as server, subject() as us, subject() as them, subject() as alike:
            sides = [_Reader(*side) for side in zip((us, them, alike), works, strict=True)]
            yield _compared(name, server, sides, size)


def _compared(name: str, server: ReplayServer, sides: list[_Reader], size: Size) -> Result:
    ours, library, library_arrow = sides
    for side in sides:
        side.read(server, _WARM_UP)
    share = max(int(size.mods * size.baseline_share), TOGETHER)
    rounds, alike = [], []
    for _ in range(size.rounds):
        found = ours.read(server, size.mods)
        rounds.append((found, library.read(server, share)))
        alike.append((found, library_arrow.read(server, share)))
    figures: dict[str, float] = {
        "peak_mib": round(max(found.peak_bytes for found, _ in rounds) / 1024**2),
        "like_for_like_wall": wall_ratio(alike).median,
        "like_for_like_cpu": cpu_ratio(alike).median,
    }
    return Result.compared("snapshot-read", None, name, rounds, figures)
