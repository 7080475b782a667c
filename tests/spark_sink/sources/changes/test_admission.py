"""The epochs that a micro-batch takes, and their distribution among tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.timestamps import MINUTE
from spark_sink.sources.changes.admission import SMALLEST_TASK, EpochWeight, Group, admitted, by_minute, runs
from spark_sink.sources.changes.read_limits import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows


def epochs(*minutes: int | None) -> list[EpochWeight]:
    return [EpochWeight(n, minute, 1, 10, 1) for n, minute in enumerate(minutes, 1)]


def last_epochs(watermark: int, *minutes: int | None, final: bool = False) -> list[int]:
    return [group.last for group in by_minute(epochs(*minutes), watermark, final=final)]


def test_a_minute_is_held_back_until_the_watermark_has_passed_its_last_nanosecond() -> None:
    assert last_epochs(8 * MINUTE - 2, 6, 7, 7) == [1]
    assert last_epochs(8 * MINUTE - 1, 6, 7, 7) == [1, 3]


def test_the_end_of_the_stream_admits_the_last_minute() -> None:
    assert last_epochs(7 * MINUTE + 1, 6, 7, final=True) == [1, 2]


def test_empty_epochs_belong_to_the_minute_before_them_and_are_admitted_alone() -> None:
    assert last_epochs(9 * MINUTE, None, 6, None, 7, None) == [3, 5]
    assert last_epochs(0, None, None) == [2]
    assert last_epochs(7 * MINUTE, None, 7) == []


@pytest.mark.parametrize(
    ("limit", "last"),
    [(ReadAllAvailable(), 3), (ReadMaxRows(5), 2), (ReadMaxRows(1), 1), (ReadMaxBytes(59), 2), (ReadMaxFiles(6), 3)],
)
def test_a_limit_counts_whole_groups_and_takes_at_least_one(limit: ReadAllAvailable, last: int) -> None:
    assert admitted([Group(1, 2, 20, 2), Group(2, 3, 30, 2), Group(3, 1, 10, 2)], limit) == last


def test_without_a_group_there_is_no_epoch() -> None:
    assert admitted([], ReadMaxRows(5)) is None


@given(st.lists(st.integers(0, 100 * SMALLEST_TASK), max_size=40), st.integers(1, 16))
def test_runs_cover_everything_once_in_order_with_no_more_tasks_than_cores(sizes: list[int], cores: int) -> None:
    cut = runs(sizes, cores)
    assert [index for run in cut for index in run] == list(range(len(sizes)))
    assert len(cut) <= cores
    assert all(len(run) > 0 for run in cut)


def test_runs_are_balanced_by_bytes_and_small_work_is_one_task() -> None:
    assert runs([50 * SMALLEST_TASK] * 4, 2) == [range(2), range(2, 4)]
    assert runs([1000] * 100, 8) == [range(100)]
