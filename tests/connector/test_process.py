"""The number of cores."""

import os
from pathlib import Path

import pytest

from connector.process import cores

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        ("max 100000\n", ALLOWED),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("100000000 100000\n", ALLOWED),
        ("nonsense", ALLOWED),
    ],
)
def test_a_containers_share_of_time_counts_as_cores(quota: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(quota)
    assert cores(path) == found


def test_without_a_quota_all_cores_of_the_affinity_count(tmp_path: Path) -> None:
    assert cores(tmp_path / "cpu.max") == ALLOWED
