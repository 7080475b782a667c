"""Many partitions and a long backlog: a short form of `make scale`."""

from pathlib import Path

import pytest

from benchmarks.scaling.reader import MIB, Load, backlog, busy, read
from emulator.scenario.history import PartitionMode

MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


@pytest.mark.long
@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow)])
def test_hundreds_of_partitions_that_split_and_merge_are_read_to_the_last_mod(
    mode: PartitionMode, tmp_path: Path
) -> None:
    cost = read(busy(400, 12, mode), tmp_path, heartbeat="1s")
    assert cost.most_partitions > 350
    assert sum(cost.churn.values()) > 20


@pytest.mark.long
def test_a_thousand_idle_partitions_take_less_than_eighty_kilobytes_each(tmp_path: Path) -> None:
    few = read(Load(2, 60), tmp_path / "few", heartbeat="10s", stop_after=5)
    many = read(Load(1002, 60), tmp_path / "many", heartbeat="10s", stop_after=5)
    assert many.most_partitions > 1000
    assert (many.peak_bytes - few.peak_bytes) / 1000 < 80 * 1024


@pytest.mark.long
def test_a_backlog_with_one_slow_partition_is_read_in_bounded_memory_and_the_slow_one_never_starves(
    tmp_path: Path,
) -> None:
    cost = read(backlog(200_000, "IMMUTABLE_KEY_RANGE"), tmp_path, heartbeat="1s")
    assert cost.peak_bytes < 500 * MIB
    assert cost.epochs > 3
    assert "no message for" not in (tmp_path / "read.log").read_text(), "the slow one was given up"
