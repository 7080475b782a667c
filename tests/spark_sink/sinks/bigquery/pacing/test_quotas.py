"""The pacing of a sink's micro-batches: by mode, tables with rows, and spending; its clock is passed in."""

from collections import deque
from random import Random

import pytest

from connector.core.timestamps import MINUTE, SECOND
from spark_sink.sinks.bigquery.pacing.quotas import LOADS, STREAMS, Pacing, Quota, Spent

NOW = 1_800_000_000 * SECOND
HOUR = 60 * MINUTE


def started(pacing: Pacing, calls: int, *, hours: int, crash: bool = False) -> list[int]:
    """The times at which micro-batches start, if one is requested each second."""
    spent = Spent()
    out: list[int] = []
    for now in range(NOW, NOW + hours * HOUR, SECOND):
        oldest = out[-1] + SECOND if out else now
        if pacing.due(spent, calls, oldest=oldest, full=False) <= now:
            out.append(now)
            spent = pacing.after(spent, calls, now)
    return out


def most_within(starts: list[int], calls: int, quota: Quota) -> int:
    """The most calls within any window of the quota's."""
    window: deque[int] = deque()
    most = 0
    for start in starts:
        window.append(start)
        while window[0] <= start - quota.seconds * SECOND:
            window.popleft()
        most = max(most, len(window) * calls)
    return most


@pytest.mark.parametrize("mode", ["append-only", "changelog"])
@pytest.mark.parametrize("tables", [1, 7, 50, 500, 5000])
def test_streams_keep_within_their_quota_however_many_tables_have_rows(mode: str, tables: int) -> None:
    starts = started(Pacing.of(mode, 0), tables, hours=6)  # type: ignore[arg-type]
    assert starts
    assert most_within(starts, tables, STREAMS) <= STREAMS.limit * 0.62 + tables


def test_fifty_tables_are_appended_to_every_36_seconds_and_500_every_six_minutes() -> None:
    pacing = Pacing.of("append-only", 0)
    assert pacing.interval(50) == 36 * SECOND
    assert pacing.interval(500) == 6 * MINUTE
    assert pacing.interval(1) < SECOND


@pytest.mark.parametrize("tables", [50, 500, 2000])
def test_load_jobs_keep_within_their_quota_even_where_nothing_may_be_stale(tables: int) -> None:
    starts = started(Pacing.of("merge-load", 0), tables, hours=30)
    assert most_within(starts, tables, LOADS) <= LOADS.limit * 0.62 + tables


def test_merged_loads_gather_for_as_long_as_what_is_seen_may_be_stale_after_a_first_that_comes_at_once() -> None:
    starts = started(Pacing.of("merge-load", HOUR), 50, hours=24)
    assert starts[0] == NOW
    assert len(starts) == 24


def test_changes_for_the_default_stream_are_not_held_back() -> None:
    assert started(Pacing.of("merge", HOUR), 500, hours=1) == list(range(NOW, NOW + HOUR, SECOND))


def test_an_idle_sink_may_begin_some_at_once_and_pays_for_them_afterwards() -> None:
    pacing = Pacing.of("append-only", 0)
    spent = Spent(paid_until=NOW - HOUR, started=NOW - HOUR)
    for _ in range(20):
        assert pacing.due(spent, 50, oldest=NOW, full=False) <= NOW
        spent = pacing.after(spent, 50, NOW)
    assert 30 * SECOND <= pacing.due(spent, 50, oldest=NOW, full=False) - NOW <= 36 * SECOND


def test_a_micro_batch_that_is_as_large_as_one_may_be_waits_for_the_quota_alone() -> None:
    pacing = Pacing.of("merge-load", HOUR)
    spent = Spent(started=NOW - SECOND)
    assert pacing.due(spent, 50, oldest=NOW - SECOND, full=True) <= NOW
    assert pacing.due(spent, 50, oldest=NOW - SECOND, full=False) > NOW + 59 * MINUTE


def test_changes_that_are_older_than_they_may_be_are_merged_at_once() -> None:
    spent = Spent(started=NOW - SECOND)
    assert Pacing.of("merge-load", HOUR).due(spent, 50, oldest=NOW - HOUR, full=False) <= NOW


def test_what_was_overspent_or_noted_by_a_fast_clock_holds_nothing_back_for_ever() -> None:
    pacing = Pacing.of("append-only", 0)
    spent = Spent()
    for _ in range(10_000):
        spent = pacing.after(spent, 500, NOW)
    assert pacing.due(spent, 50, oldest=NOW, full=False) <= NOW + 2 * HOUR
    assert pacing.after(Spent(paid_until=NOW + 10**6 * HOUR), 1, NOW).paid_until <= NOW + 2 * HOUR


def test_what_a_fast_clock_noted_is_moved_back_to_the_present_with_what_was_owed() -> None:
    pacing = Pacing.of("append-only", 0)
    fast = pacing.after(Spent(), 500, NOW + 10**6 * HOUR)
    assert pacing.believed(fast, NOW) == pacing.after(Spent(), 500, NOW)
    assert pacing.believed(Spent(NOW + 100 * HOUR, NOW), NOW) == Spent(NOW + 2 * HOUR, NOW), "more than can be owed"
    right = pacing.after(Spent(), 500, NOW)
    assert pacing.believed(right, NOW + SECOND) == right


def test_one_that_dies_and_comes_back_all_the_time_pays_for_each_try() -> None:
    pacing, random = Pacing.of("append-only", 0), Random(0)
    spent, now, tries = Spent(), NOW, []
    while now < NOW + 6 * HOUR:
        now = max(now, pacing.due(spent, 50, oldest=now, full=False))
        spent = pacing.after(spent, 50, now)
        tries.append(now)
        now += random.randrange(5 * SECOND)
    assert most_within(tries, 50, STREAMS) <= STREAMS.limit * 0.62
