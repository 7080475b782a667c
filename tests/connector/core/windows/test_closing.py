"""A window is closed by the reports of its shares, or not at all."""

from dataclasses import replace

import pytest

from connector.core.partitions import CutPartition
from connector.core.windows import ShareReport, Window, closed
from connector.errors import StreamError

WINDOW = Window(1, 100, 200)
NOTHING = ShareReport(0, (), (), (), (), (), {}, 0, 0, 0, 0, 0, 0.0)
A, B, C = CutPartition("a", 1), CutPartition("b", 1), CutPartition("c", 150)
FIRST = replace(NOTHING, cut=(A,), bytes_of={"a": 7})
SECOND = replace(NOTHING, share=1, cut=(B,))


def test_the_cut_is_that_of_all_shares_in_order_with_its_weights() -> None:
    result = closed(WINDOW, [replace(SECOND, cut=(C, B)), FIRST])
    assert result.cut == (A, B, C)
    assert result.weights == {"a": 7, "b": 0, "c": 0}
    assert not result.orphans


def test_a_partition_that_is_declined_and_followed_by_another_share_is_no_orphan() -> None:
    declines = replace(FIRST, declined=(C,), least_parents=("x",))
    for other in (replace(SECOND, followed=("c",)), replace(SECOND, finished=("c",)), replace(SECOND, cut=(C,))):
        assert not closed(WINDOW, [declines, other]).orphans


def test_the_first_of_the_partitions_that_nobody_followed_are_orphans() -> None:
    later = CutPartition("d", 160)
    declines = replace(FIRST, declined=(later, C), least_parents=("x", "x"))
    assert closed(WINDOW, [declines, replace(SECOND, declined=(C,), least_parents=("x",))]).orphans == (C,)


def test_a_least_parent_that_has_not_ended_before_its_child_starts_closes_nothing() -> None:
    with pytest.raises(StreamError, match="which has not ended"):
        closed(WINDOW, [replace(FIRST, declined=(C,), least_parents=("b",)), SECOND])


def test_a_partition_that_two_shares_have_read_closes_nothing_where_partitions_are_immutable() -> None:
    twice = [replace(FIRST, followed=("c",)), replace(SECOND, cut=(B, C), followed=("c",))]
    with pytest.raises(StreamError, match="should have ended"):
        closed(WINDOW, twice)
    mutable = [replace(report, mutable=True) for report in twice]
    assert closed(WINDOW, mutable).cut == (A, B, C)
