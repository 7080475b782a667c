"""The reader stays ahead of google-cloud-spanner's rows by what it was measured to be, with much to spare.

Ratios of processor time, of runs that take turns: a busy machine slows the one and the other.
"""

from collections.abc import Iterator

import pytest

from benchmarks.measure import baseline, reading
from benchmarks.measure.size import Size
from benchmarks.replay.messages import Replay
from benchmarks.wire import Side, compared, sides

FLOORS = {
    ("googlesql", "1/msg"): 4.0,
    ("googlesql", "16/msg"): 5.0,
    ("googlesql", "50-mod"): 2.5,
    ("postgresql", "1/msg"): 1.3,
    ("postgresql", "16/msg"): 0.8,
    ("postgresql", "50-mod"): 0.7,
}
"""Half of what runs this short gave on two cores that others kept busy, or less."""

_SIZE = Size(mods=8_000, rounds=3, baseline_share=0.5)


@pytest.fixture(scope="module", name="both")
def _both() -> Iterator[list[Side]]:
    with sides(reading.to_arrow, baseline.to_arrow) as both:
        yield both


@pytest.mark.parametrize(("dialect", "framing"), FLOORS)
def test_from_the_wire_to_arrow(both: list[Side], dialect: str, framing: str) -> None:
    found = compared("wire-to-arrow", Replay(dialect, framing), *both, size=_SIZE)
    assert found.cpu is not None
    assert found.cpu.median > FLOORS[dialect, framing], str(found)
