"""The benchmarks of executors measure what they say, in a short form."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.executors import scale, windows
from benchmarks.measure.size import Size
from benchmarks.scale import busy

pytestmark = pytest.mark.spark

MOST = 4.0
"""Times the processor time of one process, at most: short runs give 2.8 under load, as fixed costs weigh more there."""


def test_a_window_on_executors_needs_a_small_multiple_of_one_processs_time() -> None:
    size = Size(mods=0, rounds=1, cells=(("googlesql", "16/msg"),), hurried=True)
    (result,) = windows.against_one_process(size)
    assert 0 < result.figures["cpu_times"] < MOST


def test_partitions_that_split_and_merge_are_read_by_executors_to_the_last_mod(tmp_path: Path) -> None:
    cost = scale.read(replace(busy(200, 45, "IMMUTABLE_KEY_RANGE"), backlog=True), tmp_path)
    assert cost.windows
    assert cost.windows[-1].shares == 2
    assert cost.windows[-1].queries >= 200
    assert min(cost.executors) > 0
    assert f"{len(cost.windows)} windows in 2 shares" in scale.report(cost)
