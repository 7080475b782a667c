"""Debezium's scenarios of the windows in which a MUTABLE_KEY_RANGE stream is read, on virtual time."""

import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.reader import change_stream
from emulator.scenario.history import Event, PartitionEnd
from tests.emulator.scripted.scripted_stream import at
from tests.peers import virtual
from tests.peers.debezium.rows import MUTABLE
from tests.peers.histories import HOUR, change, moved, partition, stream
from tests.peers.virtual import read, resumes_from_everywhere


# shouldAdvanceThroughQuietWindowWithoutStalling
def test_windows_without_a_change_are_passed_and_the_row_after_them_is_read() -> None:
    scenario = stream(partition("one", 0, [change(at(3 * HOUR), 1)]), mode=MUTABLE, until=3 * HOUR + 30)
    reading = read(scenario, now=0.0, heartbeat=10 * SECOND)
    assert reading.singers == [1]
    assert reading.refused == 0
    watermarks = reading.metrics.watermarks
    assert any(at(1800) < watermark < at(3 * HOUR) - 1800 * SECOND for watermark in watermarks), "it stood still"


# shouldCatchUpQuicklyThroughHistoricalWindows
def test_windows_of_the_past_are_read_faster_than_they_passed() -> None:
    events: list[Event] = [change(at(HOUR * number), number) for number in range(1, 6)]
    scenario = stream(partition("one", 0, events), mode=MUTABLE, until=6 * HOUR)
    reading = read(scenario, now=7.0 * HOUR, heartbeat=10 * SECOND)
    assert reading.singers == [1, 2, 3, 4, 5]
    ended = [query.ended for query in reading.sent if query.ended is not None]
    assert max(ended) - min(query.sent for query in reading.sent) < 10 * MINUTE


# shouldResumeCorrectlyAfterWindowSizeIsChangedAcrossRestart
@pytest.mark.long
@pytest.mark.parametrize("window", [2 * MINUTE, pytest.param(29 * MINUTE, marks=pytest.mark.slow)])
def test_a_reader_with_windows_of_another_length_continues_where_it_was_stopped(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert change_stream.WINDOW not in (2 * MINUTE, 29 * MINUTE)
    events: list[Event] = [change(at(900 * number), number) for number in range(1, 8)]
    scenario = stream(partition("one", 0, events), mode=MUTABLE, until=2 * HOUR)
    reading = read(scenario, now=3.0 * HOUR)
    monkeypatch.setattr(virtual, "WINDOW", window)
    assert resumes_from_everywhere(scenario, reading, now=3.0 * HOUR)


# PlacementMoveInMoveOutTest.testMoveInReExecutionLoopBug, drainConfirmedPrefix_releasesOnlyConfirmedPrefixSegment
def test_a_move_in_that_is_read_again_after_a_restart_repeats_and_holds_up_nothing() -> None:
    target: list[Event] = [
        moved(at(10), "target", sources=("source",)),
        change(at(11), 2),
        moved(at(20), "target", sources=("source",)),
        change(at(21), 4),
    ]
    source: list[Event] = [
        change(at(9), 1),
        moved(at(10), "source", destinations=("target",)),
        change(at(19), 3),
        moved(at(20), "source", destinations=("target",)),
        PartitionEnd(at(25), "00000100", "source"),
    ]
    scenario = stream(partition("source", 0, source, end=at(25) + 1), partition("target", 0, target), mode=MUTABLE)
    reading = read(scenario, now=31)
    assert reading.singers == [1, 2, 3, 4]
    resumes_from_everywhere(scenario, reading, now=31)


# a source under heavy move-out churn: thousands of events without data are progress
def test_thousands_of_moves_without_a_change_are_progress() -> None:
    moves: list[Event] = [moved(at(5) + number, "source", destinations=("target",)) for number in range(3000)]
    scenario = stream(
        partition("source", 0, [*moves, change(at(20), 1)]), partition("target", 0, [change(at(21), 2)]), mode=MUTABLE
    )
    reading = read(scenario, now=31)
    assert reading.singers == [1, 2]
    assert len(reading.queries("source")) == 2, "once, and once more at the end"
