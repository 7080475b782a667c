"""Recorded states, with and without their daemon."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.health.states import ALIVE, NEVER, SILENCE, RetentionPeriod, StateRecord, StreamState, failed
from connector.core.timestamps import SECOND

NOW, HOUR = 10**18, 3600 * SECOND
STATES = st.sampled_from(list(StreamState))
TIMES = st.integers(0, NOW)


@given(STATES, TIMES, st.booleans())
def test_a_daemon_that_is_silent_is_never_seen_as_running(state: StreamState, seen: int, pause: bool) -> None:
    found = StateRecord(state, 0, seen=seen).as_seen(NOW, pause_requested=pause)
    if NOW - seen > SILENCE:
        assert found.state not in (StreamState.RUNNING, StreamState.STARTING, StreamState.DRAINING)


@given(STATES.filter(lambda state: state in ALIVE), st.integers(0, SILENCE), st.booleans())
def test_a_daemon_that_runs_is_seen_as_it_recorded(state: StreamState, silent: int, pause: bool) -> None:
    record = StateRecord(state, 5, "why", seen=NOW - silent)
    assert record.as_seen(NOW, pause_requested=pause) == record


@pytest.mark.parametrize("state", [StreamState.NOT_STARTED, StreamState.PAUSED])
def test_a_pause_outlives_every_daemon(state: StreamState) -> None:
    found = StateRecord(state, 5, seen=5).as_seen(NOW, pause_requested=True)
    assert found.state is StreamState.PAUSED
    assert "no daemon runs" in found.reason


def test_a_failure_stays_one_while_a_pause_is_requested() -> None:
    for code, state in ((1, StreamState.FAILED), (3, StreamState.FAILED_PERMANENTLY)):
        record = failed(NEVER, NOW, "broken", "mend it", code)
        assert record.as_seen(NOW, pause_requested=True) == record
        assert (record.state, record.reason, record.hint) == (state, "broken", "mend it")


@given(STATES, STATES)
def test_a_state_begins_once(first: StreamState, second: StreamState) -> None:
    record = NEVER.to(first, 1).to(first, 2).to(second, 3)
    assert record.since == (3 if first is not second else 1)
    assert record.seen == 3


def test_a_killed_daemon_is_a_failure_since_its_last_sign_of_life() -> None:
    found = StateRecord(StreamState.RUNNING, 5, seen=7, retention=RetentionPeriod(9)).as_seen(
        NOW, pause_requested=False
    )
    assert (found.state, found.since, found.retention) == (StreamState.FAILED, 7, RetentionPeriod(9))
    assert "has ended without a word" in found.reason


def test_lag_is_that_of_the_last_sign_of_life_until_the_next_one_is_overdue() -> None:
    record = StateRecord(StreamState.RUNNING, 1).alive(1000 * SECOND, complete=999 * SECOND)
    assert [record.complete_at(at * SECOND) // SECOND for at in (1000, 1010, 1020, 1021)] == [999, 1009, 1019, 999]
    assert record.to(StreamState.FAILED, 1001 * SECOND).complete_at(1002 * SECOND) == 999 * SECOND
    assert StateRecord(StreamState.RUNNING, 1, seen=5).complete_at(6) == 0


@pytest.mark.parametrize(
    ("seen", "ahead", "runs"),
    [
        (NOW + HOUR, 0, False),  # it was killed while the clock was fast, which is right now
        (NOW + HOUR, HOUR, True),  # it runs on a machine whose clock is fast
        (NOW + HOUR - 5 * SILENCE, HOUR, False),  # it ran there
        (NOW, HOUR, True),  # this machine's clock is fast, too
        (NOW - HOUR, -HOUR, True),
        (NOW - HOUR, 0, False),
    ],
)
def test_a_daemon_is_silent_by_its_own_clock_or_by_spanners(seen: int, ahead: int, runs: bool) -> None:
    record = StateRecord(StreamState.RUNNING, 0, seen=seen, clock_ahead=ahead)
    found = record.as_seen(NOW, pause_requested=False)
    assert (found.state is StreamState.RUNNING) == runs
    assert found.since <= NOW
