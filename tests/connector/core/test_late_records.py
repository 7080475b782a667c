"""Late records are those behind what their own query has proved, and no others."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.late_records import LateRecord, in_time, passed_before
from connector.core.partitions import NOTHING, CutPartition, PartitionGraph
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartition,
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from tests.connector.builders import record
from tests.connector.core.partitions.graphs import initial_graph

PROVED = 100


def graph(*, proved: int = PROVED, watermark: int = 9) -> PartitionGraph:
    """A graph of two partitions, of which the query of `a` has proved something."""
    made = PartitionGraph([CutPartition(token, 10) for token in ("a", "b")], watermark=watermark)
    for token in made.ready():
        made.sent(token)
    made.proved("a", proved)
    return made


def children(start: int, *tokens: str) -> ChildPartitionsRecord:
    return ChildPartitionsRecord(start, "0", tuple(ChildPartition(token, frozenset({"a"})) for token in tokens))


def data(at: int) -> Record:
    return record(commit_timestamp=at)


@pytest.mark.parametrize(
    "make",
    [
        data,
        lambda at: children(at, "c"),
        lambda at: PartitionStartRecord(at, ("c",)),
        lambda at: PartitionEventRecord(at, 1),
        lambda at: PartitionEndRecord(at - 1),
    ],
)
def test_a_record_at_what_its_query_has_proved_is_late_and_one_after_it_is_not(make: object) -> None:
    assert callable(make)
    assert passed_before(graph(), "a", make(PROVED)) == PROVED
    assert passed_before(graph(), "a", make(PROVED + 1)) is None


def test_a_heartbeat_is_never_late() -> None:
    assert passed_before(graph(), "a", HeartbeatRecord(PROVED - 5)) is None


def test_what_an_earlier_query_has_proved_makes_nothing_late() -> None:
    broken = graph()
    broken.broke("a")
    broken.sent("a")
    assert broken["a"].proved == NOTHING
    assert passed_before(broken, "a", data(PROVED)) is None
    assert passed_before(broken, "a", PartitionStartRecord(PROVED, ("c",))) is None
    broken.proved("a", PROVED - 5)  # data at the timestamp after it has come again
    assert passed_before(broken, "a", data(PROVED - 5)) is not None
    assert passed_before(broken, "a", data(PROVED - 4)) is None


def test_the_initial_query_proves_nothing_and_nothing_of_it_is_late() -> None:
    initial = initial_graph(50)
    initial.ready()
    initial.sent(INITIAL_TOKEN)
    initial.announced(INITIAL_TOKEN, children(70, "c"))
    assert passed_before(initial, INITIAL_TOKEN, children(50, "d")) is None
    assert passed_before(initial, INITIAL_TOKEN, children(40, "e")) is None


def test_unknown_children_behind_the_watermark_are_late_whatever_query_announces_them() -> None:
    behind = graph()
    behind.proved("b", PROVED)
    assert behind.advance() == PROVED
    behind.broke("a")
    behind.sent("a")
    assert passed_before(behind, "a", children(PROVED, "c")) == PROVED
    assert passed_before(behind, "a", children(PROVED + 1, "c")) is None
    assert passed_before(behind, "a", children(PROVED, "b")) is None


@pytest.mark.parametrize(
    ("made", "missed", "incomplete"),
    [
        (data(40), True, (40, 40)),
        (data(41), False, (41, 41)),
        (children(40, "c"), True, (40, 50)),
        (children(50, "c"), False, (50, 50)),
        (children(51, "c"), False, None),
    ],
)
def test_a_late_record_has_the_range_that_epochs_miss(
    made: Record, *, missed: bool, incomplete: tuple[int, int] | None
) -> None:
    late = LateRecord("a", made, passed=60, watermark=50, delivered=40)
    assert (late.missed, late.incomplete) == (missed, incomplete)


def block(stamps: Sequence[int]) -> Changes:
    return Changes.of([record(commit_timestamp=at, record_sequence=str(n)) for n, at in enumerate(stamps)])


def test_rows_in_order_are_unchanged() -> None:
    changes = block([101, 101, 105])
    kept, late, passed = in_time(changes, PROVED)
    assert kept is changes
    assert len(late) == len(passed) == 0


timestamps = st.lists(st.integers(PROVED - 3, PROVED + 6), min_size=1, max_size=12)


@given(timestamps, st.sampled_from((NOTHING, PROVED - 1, PROVED)))
def test_rows_of_a_block_are_late_as_the_same_records_one_by_one(stamps: list[int], proved: int) -> None:
    alone = graph(proved=proved)
    wanted_kept, wanted_late = [], []
    for number, at in enumerate(stamps):
        found = passed_before(alone, "a", data(at))
        if found is None:
            wanted_kept.append(str(number))
            alone.proved("a", at - 1)
        else:
            wanted_late.append((str(number), found))
    kept, late, passed = in_time(block(stamps), proved)
    assert kept.column("record_sequence").to_pylist() == wanted_kept
    assert list(zip(late.column("record_sequence").to_pylist(), passed.tolist(), strict=True)) == wanted_late
    assert kept.commit_timestamps.tolist() == sorted(kept.commit_timestamps.tolist())
