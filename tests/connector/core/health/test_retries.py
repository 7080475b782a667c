"""A failure that lasts is an alarm that says why and since when; one that heals at once is none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.health.alarms import Facts, alarms, summary
from connector.core.health.retries import LASTING, SINK, SPANNER, STORAGE, Cause, Retry, RetryLog
from connector.core.health.states import StateRecord, StreamState, failed
from connector.core.timestamps import SECOND

NOW = 1_700_000_000 * SECOND
GONE = Cause("Spanner does not answer at h:1", "UNAVAILABLE", "connection\n refused", "Check the network.")
RUNNING = StateRecord(StreamState.RUNNING, NOW, seen=NOW)


def failing_from(log: RetryLog, start: int, seconds: int, *, part: str = "") -> None:
    """Fails each second."""
    for second in range(seconds + 1):
        log.failed(SPANNER, GONE, start + second * SECOND, part=part)


def test_the_alarm_says_what_fails_why_since_when_and_how_many_partitions() -> None:
    log = RetryLog()
    failing_from(log, NOW, 40, part="a")
    failing_from(log, NOW + 3 * SECOND, 37, part="b")
    facts = Facts(NOW + 40 * SECOND, RUNNING, watermark=NOW, retries=log.lasting(NOW + 40 * SECOND))
    (alarm,) = alarms(facts)
    assert (alarm.name, alarm.severity) == ("spanner_failing", "ERROR")
    assert alarm.message == (
        "Spanner does not answer at h:1 (UNAVAILABLE: connection refused), since 2023-11-14T22:13:20Z;"
        " 2 partitions are not read"
    )
    assert alarm.hint.startswith("Check the network.")
    assert summary(facts, [alarm]) == alarm.message


def test_a_clock_that_is_set_back_neither_ends_an_alarm_nor_makes_it_younger() -> None:
    log, hour = RetryLog(), 3600 * SECOND
    failing_from(log, NOW + 15 * hour, 40)
    (retry,) = log.lasting(NOW)
    assert (retry.since, retry.last) == (NOW - 40 * SECOND, NOW)
    failing_from(log, NOW + SECOND, 5)
    (retry,) = log.lasting(NOW + 6 * SECOND)
    assert (retry.since, retry.last) == (NOW - 39 * SECOND, NOW + 6 * SECOND)


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30))
def test_an_alarm_is_raised_after_half_a_minute_without_success_and_never_before(
    events: list[tuple[int, bool]],
) -> None:
    log, now, since = RetryLog(), NOW, None
    for seconds, works in events:
        now += seconds * SECOND
        if works:
            log.healed(SPANNER)
            since = None
        else:
            since = now if since is None else since
            log.failed(SPANNER, GONE, now)
        for wait in (0, 5, 40):
            at = now + wait * SECOND
            is_long = since is not None and at - since >= LASTING
            raised = bool(log.lasting(at))
            assert raised <= is_long
            if wait:
                assert raised == is_long


def test_a_timeout_counts_from_when_it_began_and_the_retry_has_time_to_succeed() -> None:
    log = RetryLog()
    log.failed(SPANNER, GONE, NOW, lasted=30 * SECOND)
    assert not log.lasting(NOW + SECOND), "the retry may have succeeded: that is not known yet"
    (retry,) = log.lasting(NOW + 5 * SECOND)
    assert retry.since == NOW - 30 * SECOND
    log.healed(SPANNER)
    assert not log.lasting(NOW + 5 * SECOND)


def test_one_failure_of_a_stream_with_slow_heartbeats_is_no_alarm_before_the_next_one_is_due() -> None:
    log = RetryLog()
    log.failed(SPANNER, GONE, NOW, proof=120 * SECOND)
    assert not log.lasting(NOW + 119 * SECOND)
    assert log.lasting(NOW + 120 * SECOND)


def test_places_and_subjects_are_alarms_of_their_own() -> None:
    log = RetryLog()
    for what, subject in ((SPANNER, ""), (STORAGE, "gs://a"), (STORAGE, "gs://b")):
        log.failed(what, GONE, NOW, subject=subject)
    later = NOW + LASTING
    raised = alarms(Facts(later, RUNNING, watermark=later, retries=log.lasting(later)))
    assert [(alarm.name, alarm.subject) for alarm in raised] == [
        ("spanner_failing", ""),
        ("storage_failing", "gs://a"),
        ("storage_failing", "gs://b"),
    ]


def test_a_long_error_text_is_cut_in_the_alarm() -> None:
    assert len(str(replace(GONE, detail="x" * 10_000))) < 600


def test_a_daemon_that_failed_is_an_alarm_of_the_next_one_until_that_has_read() -> None:
    first = failed(RUNNING, NOW, "the disk is full", "Make room.", 1)
    assert [alarm.name for alarm in alarms(Facts(NOW, first))] == ["stream_failed"]
    starting = first.to(StreamState.STARTING, NOW + SECOND)
    (alarm,) = alarms(Facts(NOW + SECOND, starting, retries=starting.retries))
    assert alarm.name == "daemon_failing"
    assert "the disk is full" in alarm.message
    second = failed(starting, NOW + 9 * SECOND, "no network", "", 1)
    (retry,) = second.retries
    assert (retry.since, retry.attempts, retry.cause.detail) == (NOW, 2, "no network")
    assert not second.to(StreamState.NOT_STARTED, NOW).retries, "it was stopped, or has reached its end"


@pytest.mark.parametrize("what", [SPANNER, SINK])
def test_a_daemon_that_has_ended_retries_nothing_but_a_sink_may_run_elsewhere(what: str) -> None:
    ended = failed(RUNNING, NOW, "it broke", "", 1)
    names = [alarm.name for alarm in alarms(Facts(NOW, ended, retries=[Retry(what, GONE, NOW, NOW)]))]
    assert names == ["stream_failed", *(["sink_failing"] if what == SINK else [])]
