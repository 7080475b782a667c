"""Windows are planned by what the last ones were."""

from hypothesis import given
from hypothesis import strategies as st

from connector.core.partitions import CutPartition
from connector.core.timestamps import MINUTE, SECOND
from connector.core.windows import WindowPace, deal, next_window
from connector.core.windows.planning import FIRST_LENGTH, LEAST_LENGTH, MARGIN, MOST_BYTES
from tests.property.effort import effort

MB = 1024 * 1024
NOW = 29_833_333 * MINUTE


def cut_of(count: int) -> list[CutPartition]:
    return [CutPartition(f"p{number}", number) for number in range(count)]


@effort(100)
@given(weights=st.lists(st.integers(0, 100 * MB), min_size=1, max_size=40), most=st.integers(1, 12))
def test_every_partition_is_in_one_share_and_no_share_is_empty(weights: list[int], most: int) -> None:
    cut = cut_of(len(weights))
    by_token = {at.token: weight for at, weight in zip(cut, weights, strict=True)}
    shares = deal(cut, by_token, most=most)
    assert sorted(at.start_timestamp for share in shares for at in share.cut) == list(range(len(cut)))
    assert [share.number for share in shares] == list(range(len(shares)))
    assert len(shares) <= most
    assert all(share.cut for share in shares)
    assert shares == deal(cut[::-1], by_token, most=most)


def test_a_partition_that_is_heavier_than_a_share_on_average_is_alone() -> None:
    shares = deal(cut_of(50), {"p7": 1000 * MB} | {f"p{n}": 4 * MB for n in range(10, 30)}, most=4)
    assert [at.token for at in next(share for share in shares if CutPartition("p7", 7) in share.cut).cut] == ["p7"]
    assert len(shares) == 4


def test_where_there_is_little_to_read_there_are_few_shares() -> None:
    assert len(deal(cut_of(3), {}, most=100)) == 1
    assert 10 < len(deal(cut_of(1000), {}, most=100)) < 20


def test_a_window_ends_before_spanners_clock_and_within_its_minute() -> None:
    pace = WindowPace()
    assert next_window(NOW, NOW + FIRST_LENGTH + MARGIN, pace) is None
    assert next_window(NOW, NOW + FIRST_LENGTH + MARGIN + 1, pace) == NOW + FIRST_LENGTH
    assert next_window(NOW - 3, NOW + MINUTE, pace) == NOW - 1
    assert next_window(NOW - 1, NOW + MINUTE, WindowPace(MINUTE)) is None
    assert next_window(NOW - 1, NOW + 2 * MINUTE, WindowPace(MINUTE)) == NOW + MINUTE - 1


def test_the_last_window_reaches_the_users_end() -> None:
    later = NOW + 10 * MINUTE
    assert next_window(NOW, later, WindowPace(), end=NOW + SECOND) == NOW + SECOND
    assert next_window(NOW + SECOND, later, WindowPace(), end=NOW + SECOND) is None


def test_windows_grow_while_behind_and_shrink_at_the_head_of_an_idle_stream() -> None:
    pace = WindowPace()
    for _ in range(10):
        pace = pace.after(span=pace.length, bytes=1000, behind=3600 * SECOND, partitions=2)
    assert pace.length == MINUTE
    for _ in range(10):
        pace = pace.after(span=pace.length, bytes=1000, behind=SECOND, partitions=2)
    assert pace.length == LEAST_LENGTH


def test_at_the_head_of_a_busy_stream_a_window_has_the_default_length() -> None:
    pace = WindowPace(MINUTE)
    for _ in range(5):
        pace = pace.after(span=pace.length, bytes=100 * MB, behind=SECOND, partitions=2)
    assert pace.length == FIRST_LENGTH


def test_a_window_is_bounded_by_the_bytes_that_are_expected_of_it() -> None:
    pace = WindowPace(MINUTE).after(span=MINUTE, bytes=6 * MOST_BYTES, behind=3600 * SECOND, partitions=2)
    assert abs(pace.expected_bytes(pace.length) - MOST_BYTES) < MB
    assert pace.after(span=SECOND, bytes=10**15, behind=3600 * SECOND, partitions=2).length == SECOND


def test_windows_with_many_partitions_are_not_short_however_idle() -> None:
    pace = WindowPace()
    for _ in range(5):
        pace = pace.after(span=pace.length, bytes=0, behind=SECOND, partitions=5000)
    assert pace.length == FIRST_LENGTH
