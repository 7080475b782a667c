"""The minutes of an audit are drawn by hash, the same in each; gaps are left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.timestamps import MINUTE
from connector.proof.audit.spans import CommitSpan, parse_share, sampled, without
from tests.property.effort import effort

DAY = CommitSpan(1_790_000_000_123_456_789, 1_790_000_000_123_456_789 + 24 * 60 * MINUTE)
EVERYTHING = parse_share("100%")


def length(spans: list[CommitSpan]) -> int:
    return sum(span.end - span.start + 1 for span in spans)


def test_a_share_draws_about_so_many_minutes_and_the_same_ones_again() -> None:
    drawn = sampled([DAY], parse_share("10%"), "a/stream")
    assert 0.06 < length(drawn) / length([DAY]) < 0.14
    assert drawn == sampled([DAY], parse_share("10%"), "a/stream")
    assert drawn != sampled([DAY], parse_share("10%"), "another/stream")


def test_a_part_of_a_range_draws_the_same_minutes_of_it() -> None:
    middle = DAY.start + 12 * 60 * MINUTE
    middle -= middle % MINUTE
    whole = sampled([DAY], parse_share("10%"), "s")
    later = sampled([CommitSpan(middle, DAY.end)], parse_share("10%"), "s")
    assert later == [CommitSpan(max(span.start, middle), span.end) for span in whole if span.end >= middle]


def test_spans_are_whole_minutes_within_the_range_and_never_none() -> None:
    for span in sampled([DAY], parse_share("5%"), "s"):
        assert span.start % MINUTE == 0 or span.start == DAY.start
        assert span.end % MINUTE == MINUTE - 1 or span.end == DAY.end
    assert len(sampled([CommitSpan(5, 9)], 1, "s")) == 1
    assert sampled([DAY], EVERYTHING, "s") == [DAY]
    assert sampled([], EVERYTHING, "s") == []


@effort(200)
@given(st.integers(0, 40), st.integers(0, 40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_what_is_left_out_is_exactly_the_gaps(start: int, end: int, gaps: list[tuple[int, int]]) -> None:
    spans = [CommitSpan(start, end)] if start <= end else []
    for low, high in gaps:
        spans = list(without(spans, low, max(low, high)))
    covered = [at for span in spans for at in range(span.start, span.end + 1)]
    assert covered == [at for at in range(start, end + 1) if not any(low < at <= max(low, high) for low, high in gaps)]


@pytest.mark.parametrize("text", ["10", "0%", "101%", "-1%", "%", "ten%", "1e1%", "0.0000001%"])
def test_what_is_not_a_valid_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid share: write 10%"):
        parse_share(text)


@pytest.mark.parametrize(("text", "parts"), [("100%", 2**64), ("50 %", 2**63), ("0.5%", 2**64 // 200)])
def test_a_share_is_a_percentage(text: str, parts: int) -> None:
    assert parse_share(text) == parts
