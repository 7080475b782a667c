"""Measures whether the reader's peak memory and its time for a mod stay the same as a backlog grows."""

import statistics
import tempfile
from collections.abc import Iterator

from benchmarks.measure import reading
from benchmarks.measure.result import Result, cost
from benchmarks.measure.size import Size
from benchmarks.measure.subject import subject
from benchmarks.replay.messages import Replay
from benchmarks.replay.server import replaying

_WARM_UP = 2_000


def growth(size: Size) -> Iterator[Result]:
    """Doubles the mods from row to row; a new process reads each into a spool."""
    replay = Replay("googlesql", "16/msg")
    mods = size.mods
    while mods <= size.grown:
        span = replay.span(mods)
        rounds = []
        with replaying(replay, span) as server:
            for _ in range(size.rounds):
                with (
                    subject() as reader,
                    tempfile.TemporaryDirectory() as first,
                    tempfile.TemporaryDirectory() as spool,
                ):
                    reader.run(reading.to_spool, server.host, replay, replay.span(_WARM_UP), first)
                    rounds.append(reader.run(reading.to_spool, server.host, replay, span, spool))
        figures = {
            "mods": span.mods,
            "cpu_us_per_mod": round(statistics.median(cost(found) for found in rounds) * 1e6, 2),
            "peak_mib": round(max(found.peak_bytes for found in rounds) / 1024**2),
        }
        yield Result.measured("memory", replay.dialect, replay.framing, rounds).having(figures)
        mods *= 2
