"""Latencies are counted in the bucket that holds them, as often as they weigh."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from connector.telemetry.latency import BOUNDS, LatencyHistogram


@given(st.lists(st.tuples(st.floats(-10, 1e6), st.integers(1, 100)), max_size=30))
def test_each_bucket_has_the_latencies_at_or_below_its_bound(found: list[tuple[float, int]]) -> None:
    histogram = LatencyHistogram()
    histogram.observe(np.array([one for one, _ in found], float), np.array([weight for _, weight in found], np.int64))
    bounds = [*BOUNDS, float("inf")]
    expected = [sum(weight for one, weight in found if one <= bound) for bound in bounds]
    assert [count for _, count in histogram.cumulated()] == expected
