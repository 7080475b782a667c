"""Alarms say what is wrong, why, and what to do, for as long as it lasts."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.health.alarms import (
    AlarmLog,
    ConsumerLag,
    Facts,
    Mended,
    RefusedDaemon,
    alarms,
    retention_used,
    summary,
)
from connector.core.health.states import (
    END_REACHED,
    RetentionPeriod,
    StateRecord,
    StreamState,
    WatermarkHolder,
    failed,
)
from connector.core.late_records import LateReport
from connector.core.timestamps import SECOND
from connector.spool.sink_report import NOTHING
from connector.telemetry.metrics import ReaderMetrics

NOW = 10**18
DAY = 86400 * SECOND
RUNNING = StateRecord(StreamState.RUNNING, NOW - DAY, seen=NOW, retention=RetentionPeriod(DAY))
WELL = Facts(NOW, RUNNING, watermark=NOW - SECOND, max_bytes=1000, spool_bytes=10)


def names(facts: Facts) -> list[tuple[str, str]]:
    return [(alarm.name, alarm.severity) for alarm in alarms(facts)]


def test_a_stream_that_is_well_has_no_alarms() -> None:
    assert alarms(WELL) == []


@pytest.mark.parametrize(
    ("used", "severity"), [(0.49, None), (0.5, "WARNING"), (0.79, "WARNING"), (0.8, "ERROR"), (2.0, "ERROR")]
)
def test_retention_that_runs_out_is_a_warning_at_half_and_an_error_at_four_fifths(
    used: float, severity: str | None
) -> None:
    paused = StateRecord(StreamState.PAUSED, NOW - SECOND, seen=NOW, retention=RetentionPeriod(DAY))
    found = names(replace(WELL, state=paused, watermark=NOW - int(used * DAY)))
    assert found == ([("retention_running_out", severity)] if severity else [])


def test_a_retention_that_is_assumed_is_said_to_be_the_default() -> None:
    assumed = replace(RUNNING, retention=RetentionPeriod(DAY, is_default=True))
    alarm, *_ = alarms(replace(WELL, state=replace(assumed, state=StreamState.PAUSED), watermark=NOW - DAY))
    assert "100% of Spanner's default retention is used up" in alarm.message


def test_what_is_unknown_raises_no_alarm() -> None:
    unknown = Facts(NOW, replace(RUNNING, retention=RetentionPeriod()))
    assert retention_used(unknown) is None
    assert alarms(unknown) == []


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (replace(WELL, watermark=NOW - 400 * SECOND), "reader_behind", "7 min behind"),
        (
            replace(
                WELL, watermark=NOW - 400 * SECOND, holder=WatermarkHolder("partition 5f0c", NOW - 401 * SECOND, 7)
            ),
            "partition_behind",
            "7 min behind: partition 5f0c holds the watermark",
        ),
        (
            replace(
                WELL, watermark=NOW - 400 * SECOND, holder=WatermarkHolder("partition 5f0c", NOW - 401 * SECOND, 0)
            ),
            "reader_behind",
            "7 min behind",
        ),
        (replace(WELL, standstills=Mended(2, NOW - DAY // 25)), "stream_was_stalled", "stalled 2 times, last at"),
        (replace(WELL, late=Mended(2, NOW - SECOND)), "records_were_late", "stopped the reader 2 times, last at"),
        (
            replace(WELL, missing=LateReport(1, NOW - 2 * SECOND, NOW)),
            "changes_missing",
            "from 2001-09-09T01:46:38.000000Z to 2001-09-09T01:46:40.000000Z: late/ in the spool has 1 document of",
        ),
        (replace(WELL, missing=LateReport(2, NOW, NOW)), "changes_missing", "has 2 documents of late records or"),
        (replace(WELL, sink_restarts=Mended(3, NOW - SECOND)), "sink_restarted", "restarted 3 times, last at"),
        (replace(WELL, sink_restarts=Mended(1, NOW, "the JVM died.")), "sink_restarted", "Z, after: the JVM died"),
        (
            replace(WELL, consumers=[ConsumerLag("files", NOW - 900 * SECOND, 7)]),
            "consumer_behind",
            "files is 7 epochs",
        ),
        (
            replace(WELL, consumers=[ConsumerLag("files", NOW - 900 * SECOND, 7, NOW - 90 * SECOND)]),
            "consumer_behind",
            "behind the spool, and has recorded nothing since",
        ),
        (
            replace(WELL, consumers=[ConsumerLag("files", NOW, 0, is_stray=True)]),
            "consumer_of_another_copy",
            "consumer files is done with an epoch of another copy of this spool",
        ),
        (
            replace(WELL, refused=RefusedDaemon("host", 7, NOW - SECOND)),
            "second_daemon",
            "a second daemon (process 7 on host) was refused this spool",
        ),
        (replace(WELL, spool_bytes=950), "spool_nearly_full", "95%"),
        (
            replace(WELL, spool_bytes=950, consumers=[ConsumerLag("x", NOW, 0)]),
            "spool_nearly_full",
            "slowest consumer is x",
        ),
        (
            replace(WELL, stopped_tables={"B": "no key", "A": "a type changed."}),
            "tables_stopped",
            "A (a type changed), B (no key)",
        ),
        (replace(WELL, dead_letters=3), "dead_letters", "3 rows are dead letters"),
        (replace(WELL, state=failed(RUNNING, NOW, "it broke", "", 1)), "stream_failed", "it broke"),
        (replace(WELL, state=replace(RUNNING, state=StreamState.PAUSED)), "paused_for_long", "paused since"),
    ],
)
def test_each_alarm_says_what_is_wrong_and_what_to_do(facts: Facts, name: str, words: str) -> None:
    (found,) = alarms(facts)
    assert found.name == name
    assert words in found.message
    assert found.hint
    assert re.fullmatch("[a-z_]+", found.name)


def test_a_stream_that_is_complete_loses_nothing_when_the_retention_is_over() -> None:
    ended = RUNNING.to(StreamState.NOT_STARTED, NOW, reason=END_REACHED)
    late = replace(WELL, state=ended, watermark=NOW - 6 * DAY)
    assert alarms(late) == []
    assert retention_used(late) is None
    stopped = replace(late, state=replace(ended, reason="it was stopped"))
    assert names(stopped) == [("retention_running_out", "ERROR")]


def test_errors_come_first() -> None:
    found = names(replace(WELL, dead_letters=1, stopped_tables={"T": "why"}, spool_bytes=950))
    assert [severity for _, severity in found] == ["ERROR", "WARNING", "WARNING"]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=20))
def test_each_alarm_begins_and_ends_once(history: list[tuple[int, int]]) -> None:
    log, lasting = AlarmLog(), set[str]()
    for dead, full in history:
        raised = alarms(replace(WELL, dead_letters=dead, spool_bytes=950 * full))
        started, ended = log.changes(raised, NOW)
        for alarm in started:
            assert alarm.name not in lasting
            lasting.add(alarm.name)
        for alarm in ended:
            lasting.remove(alarm.name)
        assert lasting == {alarm.name for alarm in raised}


def test_an_alarm_that_becomes_an_error_begins_again() -> None:
    log = AlarmLog()
    for used, begins in ((0.6, True), (0.7, False), (0.9, True), (0.95, False), (0.6, False)):
        started, ended = log.changes(
            alarms(
                replace(
                    WELL, watermark=NOW - int(used * DAY), state=replace(RUNNING, state=StreamState.PAUSED, since=NOW)
                )
            ),
            NOW,
        )
        assert (bool(started), ended) == (begins, [])


def test_what_was_mended_is_an_alarm_for_an_hour() -> None:
    assert names(replace(WELL, standstills=Mended(2, NOW - DAY // 24), sink_restarts=Mended(1, NOW - DAY))) == []


def test_each_consumer_that_is_behind_begins_an_alarm_of_its_own_which_knows_since_when() -> None:
    log, late = AlarmLog(), [ConsumerLag(name, NOW - 900 * SECOND, 7) for name in ("files", "fraud")]
    first = alarms(replace(WELL, consumers=late[:1]))
    assert log.since(first[0]) is None
    assert log.changes(first, NOW) == (first, [])
    both = alarms(replace(WELL, consumers=late))
    assert [alarm.subject for alarm in log.changes(both, NOW + 1)[0]] == ["fraud"]
    assert [log.since(alarm) for alarm in both] == [NOW, NOW + 1]
    assert log.changes(both[1:], NOW + 2) == ([], both[:1])


def test_an_idle_stream_that_is_read_on_is_not_behind_though_it_has_nothing_to_seal() -> None:
    idle = replace(WELL, watermark=NOW - 400 * SECOND, complete=NOW - SECOND)
    assert names(idle) == []
    assert summary(idle, []) == "replication is healthy, 1.0 s behind"
    assert retention_used(idle) == pytest.approx(400 / 86400), "it would be read again from the newest epoch on"


@pytest.mark.parametrize(("ahead", "said"), [(3600, "60 min ahead of Spanner's"), (-3600, "60 min behind Spanner's")])
def test_a_clock_that_is_an_hour_off_is_an_error_while_a_daemon_runs(ahead: int, said: str) -> None:
    running = StateRecord(StreamState.RUNNING, NOW, seen=NOW, clock_ahead=ahead * SECOND)
    (alarm,) = alarms(Facts(NOW, running))
    assert (alarm.name, alarm.severity) == ("clock_off", "ERROR")
    assert said in alarm.message
    assert not list(alarms(Facts(NOW, running.to(StreamState.NOT_STARTED, NOW))))


def test_dead_letters_end_their_alarm_once_none_is_left_and_begin_it_again_with_the_next_ones() -> None:
    log, metrics, report = AlarmLog(), ReaderMetrics(), NOTHING
    changes = []
    for refused, replayed in ((1, 0), (0, 0), (0, 1), (100_000, 0), (0, 5)):
        report = report.after(report.first + 1, refused, {})
        report = report.model_copy(update={"replayed": report.replayed + replayed})
        metrics.reported({"files": report})
        started, ended = log.changes(alarms(replace(WELL, dead_letters=metrics.dead_letters_left)), NOW)
        changes.append(([alarm.message for alarm in started], [alarm.name for alarm in ended]))
    assert changes == [
        (["1 rows are dead letters"], []),
        ([], []),
        ([], ["dead_letters"]),
        (["100000 rows are dead letters"], []),
        ([], []),
    ]
    assert (metrics.dead_letters, metrics.dead_letters_left) == (100_001, 99_995)


def test_restarts_are_counted_from_the_first_on_after_a_sink_was_forgotten() -> None:
    metrics, other = ReaderMetrics(), NOTHING
    restless = NOTHING.model_copy(update={"restarts": 50, "restarted_at": 1})
    metrics.reported({"restless": restless, "other": other})
    metrics.reported({"restless": restless.restarted(2), "other": other})
    counted = [metrics.sink_restarts]
    for at in range(3, 6):
        metrics.reported({"other": other})
        counted.append(metrics.sink_restarts)
        other = other.restarted(NOW + at, "the JVM died")
    metrics.reported({"other": other})
    assert [*counted, metrics.sink_restarts] == [1, 1, 2, 3, 4]
    assert (metrics.sink_restart_at, metrics.sink_restart_why) == (NOW + 5, "the JVM died")


def test_a_consumer_that_waits_for_a_backfill_is_not_to_be_forgotten() -> None:
    away = [ConsumerLag("spanner", NOW - 900 * SECOND, 7, NOW - 600 * SECOND)]
    (alarm,) = alarms(replace(WELL, consumers=away))
    assert "--forget spanner" in alarm.hint
    (alarm,) = alarms(replace(WELL, consumers=away, unfinished=["repair 2"]))
    assert "waits for repair 2, which is not finished: `spanner-cdc backfill CONFIG` finishes it" in alarm.hint
    assert "--forget" not in alarm.hint
