"""Lists of the past: how many are read, and what is said of a function that is in one of them and gone."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from connector.core.timestamps import SECOND
from connector.errors import PlacementLostError, StreamError, UnreachableError
from connector.reader.placements.vanished import STEP, PastLists, judge, past_lists

DAY = 86_400 * SECOND
BEGIN = 1_790_000_000 * SECOND


class Lists:
    """Lists F always, and G between two times; lists before a time are not kept."""

    def __init__(self, created: int, dropped: int, kept: int = 0) -> None:
        self._created, self._dropped, self._kept = created, dropped, kept
        self.asked = list[int]()

    async def as_of(self, timestamp: int) -> Mapping[str, str]:
        self.asked.append(timestamp)
        await asyncio.sleep(0)
        if timestamp < self._kept:
            raise StreamError("it has exceeded the maximum timestamp staleness")
        return {"F": "default"} | ({"G": "europe"} if self._created <= timestamp < self._dropped else {})


def found(lists: Lists, low: int, newest: int, end: int | None = None) -> PastLists:
    return asyncio.run(past_lists(lists.as_of, low, newest, {"F"}, end=end))


def test_lists_that_are_near_each_other_have_none_between_them() -> None:
    lists = Lists(0, 0)
    assert found(lists, BEGIN, BEGIN + STEP) == PastLists(BEGIN, ())
    assert lists.asked == []


@pytest.mark.parametrize(("length", "most"), [(60 * SECOND, 7), (30 * DAY, 1002)])
def test_a_function_that_came_and_went_is_found(length: int, most: int) -> None:
    created, dropped = BEGIN + length // 3, BEGIN + length // 2
    lists = Lists(created, dropped)
    (one,) = found(lists, BEGIN, BEGIN + length).vanished
    assert (one.function, one.placement, one.was_there) == ("G", "europe", False)
    assert created <= one.seen < dropped <= one.gone
    assert len(lists.asked) <= most
    with pytest.raises(PlacementLostError, match="placement europe was dropped before it was read") as caught:
        judge(PastLists(BEGIN, (one,)), BEGIN, is_new=False)
    assert caught.value.exit_code == 3


def test_a_function_that_was_there_at_first_is_a_warning_unless_reading_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lists = found(Lists(BEGIN - DAY, BEGIN + 30 * SECOND), BEGIN, BEGIN + 60 * SECOND)
    assert [one.was_there for one in lists.vanished] == [True]
    judge(lists, BEGIN, is_new=False)
    assert "a placement was dropped while nothing was read" in caplog.text
    with pytest.raises(PlacementLostError):
        judge(lists, BEGIN, is_new=True)
    judge(lists, BEGIN, is_new=True, only_warns=True)


def test_a_function_that_is_gone_only_after_the_end_was_there_at_the_end() -> None:
    end, newest = BEGIN + 3 * SECOND, BEGIN + DAY
    (one,) = found(Lists(BEGIN + SECOND, BEGIN + 60 * SECOND), BEGIN, newest, end).vanished
    assert (one.seen, one.gone) == (end, newest)
    assert found(Lists(end + SECOND, BEGIN + 60 * SECOND), BEGIN, newest, end).vanished == ()


def test_lists_that_are_not_kept_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    kept = BEGIN + DAY - 3600 * SECOND
    lists = found(Lists(BEGIN + SECOND, BEGIN + 3600 * SECOND, kept), BEGIN, BEGIN + DAY)
    assert kept <= lists.since <= kept + STEP
    assert lists.vanished == ()
    judge(lists, BEGIN, is_new=False)
    assert "earlier lists of read functions are not kept" in caplog.text


def test_what_came_and_went_within_the_lists_that_are_kept_is_found() -> None:
    kept = BEGIN + 30 * DAY - 3600 * SECOND
    lists = Lists(kept + 900 * SECOND, kept + 915 * SECOND, kept)
    assert [one.function for one in found(lists, BEGIN, BEGIN + 30 * DAY).vanished] == ["G"]
    assert len(lists.asked) < 400


def test_a_range_of_which_no_list_is_kept_has_none() -> None:
    lists = Lists(0, 0, BEGIN + DAY)
    assert found(lists, BEGIN, BEGIN + DAY, BEGIN + 60 * SECOND).since == BEGIN + 60 * SECOND
    assert len(lists.asked) == 2


def test_a_server_that_does_not_answer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_timestamp: int) -> Callable[[], Mapping[str, str]]:
        raise UnreachableError("Spanner does not answer")

    lists = Lists(0, 0)
    monkeypatch.setattr(lists, "as_of", refuses)
    with pytest.raises(UnreachableError):
        found(lists, BEGIN, BEGIN + DAY)
