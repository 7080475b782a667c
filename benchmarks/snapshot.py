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
_WORKS: dict[str, tuple[Work, Work]] = {
    "arrow": (snapshots.to_arrow, snapshots.library_to_arrow),
    "events": (snapshots.to_events, snapshots.library_to_events),
}
"""The reader and the baseline by what rows are read into, which is in the column for framings."""


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

    The baseline makes the same of the library's rows. The ratios to these rows as lists of Python values are figures.
    """
    for name, works in _WORKS.items():
        with replaying(TableReplay(), Span(0, 0)) as server, subject() as us, subject() as them, subject() as bare:
            every = (*works, snapshots.library_rows)
            sides = [_Reader(*side) for side in zip((us, them, bare), every, strict=True)]
            yield _compared(name, server, sides, size)


def _compared(name: str, server: ReplayServer, sides: list[_Reader], size: Size) -> Result:
    ours, library, bare = sides
    for side in sides:
        side.read(server, _WARM_UP)
    share = max(int(size.mods * size.baseline_share), TOGETHER)
    rounds, to_rows = [], []
    for _ in range(size.rounds):
        found = ours.read(server, size.mods)
        rounds.append((found, library.read(server, share)))
        to_rows.append((found, bare.read(server, share)))
    figures: dict[str, float] = {
        "peak_mib": round(max(found.peak_bytes for found, _ in rounds) / 1024**2),
        "to_rows_wall": wall_ratio(to_rows).median,
        "to_rows_cpu": cpu_ratio(to_rows).median,
    }
    return Result.compared("snapshot-read", None, name, rounds, figures)
