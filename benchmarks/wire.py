"""Measures reading replayed bytes into Arrow record batches and into a sealed spool, against google-cloud-spanner.

The reader is the daemon's: its client, its scheduler with graph and watermark, its epochs. The reader, the baseline and
the replay server run in separate processes; rounds of the reader and the baseline take turns. The baseline reads a part
of what the reader reads, since its time is proportional to it.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from benchmarks.measure import baseline, reading
from benchmarks.measure.process import cpu_of
from benchmarks.measure.result import Result, Round, cpu_ratio, wall_ratio
from benchmarks.measure.size import CELLS, LENGTHS, Size
from benchmarks.measure.subject import Measure, Subject, Work, subject
from benchmarks.replay.messages import Replay, Span
from benchmarks.replay.server import replaying

_WARM_UP = 2_000


@dataclass(frozen=True, slots=True)
class Side:
    """One of the sides that are compared: its work, and the process that does it."""

    process: Subject
    work: Work

    def read(self, host: str, replay: Replay, span: Span) -> Measure:
        """Measures the work, with an empty folder to write to."""
        with tempfile.TemporaryDirectory() as folder:
            found = self.process.run(self.work, host, replay, span, folder)
        assert found.events == span.mods, f"{span.mods} mods were served, {found.events} were read"
        return found


def to_arrow(size: Size) -> Iterator[Result]:
    """The headline: from the wire to record batches of envelopes."""
    works = (reading.to_arrow, baseline.to_arrow, baseline.to_envelopes)
    with ExitStack() as lasting:
        shared = lasting.enter_context(sides(*works)) if size.hurried else None
        for dialect, framing in CELLS:
            with nullcontext(shared) if shared else sides(*works) as found:
                yield compared("wire-to-arrow", Replay(dialect, framing), *found, size=size)


def to_spool(size: Size) -> Iterator[Result]:
    """From the wire to sealed epochs on disk; the baseline writes one Arrow file, without making it durable."""
    for dialect, framing in size.cells:
        with sides(reading.to_spool, baseline.to_file) as found:
            yield compared("wire-to-spool", Replay(dialect, framing), *found, size=size)


@contextmanager
def sides(*works: Work) -> Iterator[list[Side]]:
    """Creates a side for each work, each in a new process."""
    with ExitStack() as processes:
        yield [Side(processes.enter_context(subject()), work) for work in works]


def compared(
    name: str, replay: Replay, reader: Side, baseline_side: Side, like: Side | None = None, *, size: Size
) -> Result:
    """Measures rounds of the reader and the baseline in turns, after one of each that does not count.

    ``like`` is a second baseline, with the same output as the reader; the ratios to it are among the figures.
    """
    span = replay.span(size.mods * LENGTHS[replay.framing])
    share = replay.span(int(span.mods * size.baseline_share))
    rounds: list[Round] = []
    alike: list[Round] = []
    loads = []
    with replaying(replay, span) as server:
        for side in filter(None, (reader, baseline_side, like)):
            side.read(server.host, replay, replay.span(_WARM_UP))
        for _ in range(size.rounds):
            before = cpu_of(server.pid)
            found = reader.read(server.host, replay, span)
            loads.append((cpu_of(server.pid) - before) / found.wall)
            rounds.append((found, baseline_side.read(server.host, replay, share)))
            if like is not None:
                alike.append((found, like.read(server.host, replay, share)))
    figures = {
        "server_cpu": round(statistics.median(loads), 3),
        "peak_mib": round(max(us.peak_bytes for us, _ in rounds) / 1024**2),
    }
    if alike:
        figures |= {"like_for_like_wall": wall_ratio(alike).median, "like_for_like_cpu": cpu_ratio(alike).median}
    return Result.compared(name, replay.dialect, replay.framing, rounds, figures)
