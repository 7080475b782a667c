"""The reader needs a fraction of the processor time that google-cloud-spanner's rows and the same envelope need.

A round measures the processor time of the reader and then of the baseline, in separate processes, so that other
load on the machine slows both. The test compares the median of the rounds' ratios.
"""

from collections.abc import Iterator

import pytest

from benchmarks.measure import baseline, reading
from benchmarks.measure.size import Size
from benchmarks.replay.messages import Replay
from benchmarks.wire import Side, compared, sides

FLOORS = {
    ("googlesql", "1/msg"): 3.5,
    ("googlesql", "16/msg"): 6.0,
    ("googlesql", "50-mod"): 3.5,
    ("postgresql", "1/msg"): 1.9,
    ("postgresql", "16/msg"): 1.8,
    ("postgresql", "50-mod"): 2.4,
}
"""Half of the lowest median of runs this short, on two cores under a load of eight: 7.0, 12.6, 7.4, 3.8, 3.7 and 4.9.

A reader that needs twice its processor time fails. Longer runs give more, because fixed costs of a query weigh less:
see the column "CPU, to the whole envelope" in docs/performance.md (14.2, 16.4, 16.1, 5.2, 4.5 and 7.5).
"""

SHORT = {("postgresql", "50-mod")}
"""The others are of the campaigns."""

_SIZE = Size(mods=8_000, rounds=5, baseline_share=0.25)
_ATTEMPTS = 2


@pytest.fixture(scope="module", name="both")
def _both() -> Iterator[list[Side]]:
    with sides(reading.to_arrow, baseline.to_envelopes) as both:
        yield both


def test_no_floor_lets_the_reader_be_slower_than_the_baseline() -> None:
    assert min(FLOORS.values()) > 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "framing"),
    [pytest.param(*case, marks=() if case in SHORT else pytest.mark.slow) for case in FLOORS],
)
def test_wire_to_arrow_needs_a_fraction_of_the_baselines_processor_time(
    both: list[Side], dialect: str, framing: str
) -> None:
    """A ratio below its floor is measured once more: a slower reader fails twice, a short load by others does not."""
    found = []
    for _ in range(_ATTEMPTS):
        result = compared("wire-to-arrow", Replay(dialect, framing), *both, size=_SIZE)
        assert result.cpu is not None
        found.append(result)
        if result.cpu.median > FLOORS[dialect, framing]:
            return
    pytest.fail(f"below {FLOORS[dialect, framing]}x in {_ATTEMPTS} attempts: " + "; ".join(map(str, found)))
