"""The decision which changes are dead letters, without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.sinks.tables.rejected.changes import FOLLOWS, MARKS, Change, OpenDeadLetter, divided, superseded

WHY = "column Age: the value is no bigint"


def a(
    at: int, kind: str = "UPDATE", *, whole: bool = False, bad: bool = False, key: str = "1", number: int = 0
) -> Change:
    sequence = f"{at:016X}/{number:016X}/{0:016X}"
    is_whole = whole or kind != "UPDATE"
    return Change(f"{key}-{at}-{number}", at, sequence, key, kind, is_whole, WHY if bad else "")


def opened(change: Change, reason: str = WHY) -> OpenDeadLetter:
    return OpenDeadLetter(change.uuid, change.epoch, change.sequence, change.key, reason)


def letters(mode: str, changes: list[Change], *before: OpenDeadLetter) -> list[tuple[int, str]]:
    return [(change.epoch, why) for change, why in divided(mode, changes, before).dead_letters]


def test_an_update_that_lacks_columns_follows_until_its_row_is_inserted_or_deleted() -> None:
    changes = [a(1, bad=True), a(2), a(3, "DELETE"), a(4, "INSERT"), a(5), a(6, key="2")]
    assert letters("merge", changes) == [(1, WHY), (2, FOLLOWS), (3, MARKS)]
    assert divided("merge", changes, ()).left_out == {"1-1-0", "1-2-0"}, "the marker is written"
    assert letters("merge", [a(2), a(3, "INSERT"), a(4)], opened(a(1))) == [(2, FOLLOWS), (3, MARKS)]
    assert letters("merge", [a(4), a(5, key="2")], opened(a(1)), opened(a(3), MARKS)) == []


def test_a_whole_row_is_written_and_a_rejected_delete_is_not() -> None:
    changes = [a(1, bad=True), a(2, whole=True), a(3, "DELETE", bad=True), a(4, whole=True)]
    assert letters("merge", changes) == [(1, WHY), (3, WHY)]


def test_a_rejected_event_is_appended_later_and_nothing_follows_it() -> None:
    assert letters("append", [a(1, bad=True), a(2), a(3, "DELETE")]) == [(1, WHY)]


def test_all_later_versions_follow_and_those_of_the_same_commit_timestamp() -> None:
    changes = [a(1), a(2, number=0), a(2, number=1, bad=True), a(3, "DELETE"), a(4, "INSERT"), a(1, key="2")]
    assert letters("history", changes) == [(2, FOLLOWS), (2, WHY), (3, FOLLOWS), (4, FOLLOWS)]
    assert letters("history", [a(1), a(2, "INSERT")], opened(a(2, key="2"))) == []


@pytest.mark.parametrize("mode", ["merge", "history", "append"])
def test_dead_letters_of_an_attempt_that_was_not_completed_change_nothing(mode: str) -> None:
    changes = [a(1), a(2, bad=True), a(3), a(4, "DELETE"), a(5, "INSERT"), a(6)]
    first = divided(mode, changes, ())
    known = [opened(change, why) for change, why in first.dead_letters]
    assert divided(mode, changes, known) == first


def test_what_is_older_than_a_marker_of_its_row_is_not_replayed() -> None:
    known = [opened(a(1)), opened(a(2), MARKS), opened(a(3)), opened(a(1, key="2"))]
    assert superseded(known) == {"1-1-0", "1-2-0"}


CHANGES = st.lists(
    st.tuples(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), st.booleans(), st.booleans(), st.sampled_from("12")),
    max_size=12,
)


@given(CHANGES, st.integers(0, 12), st.sampled_from(["merge", "history", "append"]))
def test_the_decision_is_the_same_in_one_micro_batch_or_in_two(
    made: list[tuple[str, bool, bool, str]], cut: int, mode: str
) -> None:
    changes = [
        a(at, kind, whole=whole, bad=bad and kind != "DELETE", key=key)
        for at, (kind, whole, bad, key) in enumerate(made, 1)
    ]
    first = divided(mode, changes[:cut], ()).dead_letters
    second = divided(mode, changes[cut:], [opened(change, why) for change, why in first]).dead_letters
    assert [*first, *second] == list(divided(mode, changes, ()).dead_letters)
