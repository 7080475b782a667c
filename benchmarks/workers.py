"""Compares two worker processes with one process over the same partitions, to show what a second core adds.

The coordinator and its workers count together; they have started before the measurement starts. With two cores the
replay server uses a part of one, which is among the figures. Reads are longer than in other benchmarks, because the
coordinator alone builds the batches of what was read when the stream ends.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.measure import reading
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.replay.messages import Replay
from benchmarks.wire import compared, sides

_PARTITIONS = 4
_LONGER = 4
"""The factor by which a round has more mods than elsewhere."""


def workers(size: Size) -> Iterator[Result]:
    """From the wire to record batches with two workers; the baseline is the same reader with one."""
    longer = Size(_LONGER * size.mods, size.rounds, baseline_share=1.0)
    for dialect, framing in size.cells:
        if dialect != "googlesql":
            continue  # what is shared out and what is not costs about the same in both
        with sides(partial(reading.to_arrow, workers=2), reading.to_arrow) as found:
            replay = Replay(dialect, framing, partitions=_PARTITIONS)
            yield compared("workers", replay, *found, size=longer)
