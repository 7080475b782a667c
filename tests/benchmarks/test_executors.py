"""Executors need a small multiple of the processor time of one process."""

import pytest

from benchmarks.executors import windows
from benchmarks.measure.size import Size

pytestmark = pytest.mark.spark

MOST = 4.0
"""Times the processor time of one process, at most: short runs give 2.8 under load, as fixed costs weigh more there."""


@pytest.mark.slow
def test_a_window_on_executors_needs_a_small_multiple_of_one_processs_time() -> None:
    size = Size(mods=0, rounds=1, cells=(("googlesql", "16/msg"),), hurried=True)
    (result,) = windows.against_one_process(size)
    assert 0 < result.figures["cpu_times"] < MOST
