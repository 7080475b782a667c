import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.cli.spool_reports import spool_report, spool_text
from connector.core.epoch import IncompleteTransaction
from connector.core.health.alarms import Alarm, alarms
from connector.core.health.states import StateRecord, StreamState, WatermarkHolder
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.states.report import facts_of as facts_of_spool
from connector.daemon.states.report import status_of, status_text
from connector.errors import SpoolInUseError
from connector.spool import consumers
from connector.spool.late_store import LateStore
from connector.spool.lifecycle import state_of, write_state
from connector.spool.reading import Spool
from connector.spool.second_daemon import refused_daemon, sole_daemon
from connector.spool.sink_report import NOTHING
from connector.spool.writing import initialize
from connector.telemetry.consumers import ConsumerState, ConsumerStates, delivered
from connector.telemetry.deliveries import Deliveries
from connector.telemetry.health import facts_of, raised
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, sealed, writer_of

START = 1_000_000 * SECOND


def integers(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, np.int64)


def test_each_mod_counts_from_its_commit_until_its_micro_batch_was_delivered() -> None:
    deliveries = Deliveries()
    deliveries.sealed(1, integers(START, START + SECOND), integers(2, 3), 100)
    deliveries.sealed(2, integers(START + 3 * SECOND), integers(1), 50)
    deliveries.reported({"files": NOTHING.delivered(1, 5, START + 5 * SECOND)})
    sink = deliveries.sinks["files"]
    assert (sink.report.batches, sink.report.events, sink.bytes, sink.report.last) == (1, 5, 100, 1)
    assert (sink.latency.total, sink.latency.counts.sum()) == (2 * 5 + 3 * 4, 5)


def test_a_report_that_is_read_again_is_counted_once() -> None:
    deliveries = Deliveries()
    deliveries.sealed(1, integers(START), integers(2), 100)
    report = NOTHING.delivered(1, 2, START + SECOND)
    for _ in range(3):
        deliveries.reported({"files": report})
    assert deliveries.sinks["files"].latency.counts.sum() == 2


def test_epochs_of_another_process_and_sinks_without_deliveries_are_not_counted() -> None:
    deliveries = Deliveries()
    deliveries.reported({"files": NOTHING.delivered(7, 3, START), "bigquery": NOTHING.after(3, 1, {})})
    assert deliveries.sinks.keys() == {"files"}
    assert (deliveries.sinks["files"].report.events, deliveries.sinks["files"].bytes) == (3, 0)
    assert not deliveries.sinks["files"].latency.counts.any()


def test_a_micro_batch_that_is_repeated_is_one_batch() -> None:
    once = NOTHING.delivered(4, 10, START)
    assert once.delivered(4, 10, START + SECOND) == once
    assert (once.delivered(6, 5, START).batches, once.delivered(6, 5, START).events) == (2, 15)


@given(mods=st.lists(st.integers(1, 50), min_size=1, max_size=500))
def test_no_mod_is_lost_however_many_records_an_epoch_has(mods: list[int]) -> None:
    deliveries = Deliveries()
    timestamps = START + np.arange(len(mods), dtype=np.int64) * SECOND
    deliveries.sealed(1, timestamps, np.array(mods, np.int64), 1)
    end = START + len(mods) * SECOND
    deliveries.reported({"files": NOTHING.delivered(1, sum(mods), end)})
    latency = deliveries.sinks["files"].latency
    assert latency.counts.sum() == sum(mods)
    exact = float((((end - timestamps) / SECOND) * np.array(mods)).sum())
    assert abs(latency.total - exact) <= sum(mods) * (len(mods) / 64 + 1)


def test_a_consumer_is_behind_by_what_was_committed_and_is_not_delivered_and_by_nothing_else() -> None:
    metrics = ReaderMetrics(sealed_watermark=START, complete=START + 50 * SECOND, first_own_epoch=3)

    def lag_of(epoch: int, watermark: int = START) -> int:
        return (metrics.spooled - delivered(ConsumerState("x", epoch, watermark), metrics)) // SECOND

    assert lag_of(2) == 0, "the epochs after it are empty"
    assert lag_of(1) == 50, "what they hold is not known: another process has sealed them"
    metrics.deliveries.sealed(4, integers(START + 45 * SECOND + 1, START + 47 * SECOND), integers(1, 1), 1)
    assert [lag_of(epoch) for epoch in (2, 3, 4, 5)] == [5, 5, 0, 0]
    for epoch in range(5, 5000):
        metrics.deliveries.sealed(epoch, integers(START + 48 * SECOND + 1), integers(1), 1)
    assert lag_of(4, START + 47 * SECOND) == 3, "they are no longer kept"
    assert lag_of(4998) == 2


def spool_at(folder: Path) -> Spool:
    spool = Spool.at(str(folder / "spool"))
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def restarted(newest: int) -> ReaderMetrics:
    """The metrics of a process that has read nothing yet, a day after what the spool has."""
    metrics = ReaderMetrics(newest_epoch=newest, first_own_epoch=newest + 1, complete=NOW + 86400 * SECOND)
    metrics.state = lambda: StateRecord(StreamState.RUNNING, NOW)
    return metrics


def test_a_second_daemon_is_an_alarm_of_the_first_until_another_one_takes_the_spool(tmp_path: Path) -> None:
    spool, metrics, now = spool_at(tmp_path), restarted(0), time.time_ns()
    states = ConsumerStates(spool)
    with sole_daemon(spool, now=now):
        with pytest.raises(SpoolInUseError, match="written by another daemon"), sole_daemon(spool, now=now):
            pass
        states.read()
        assert [alarm.name for alarm in raised(metrics, states)] == ["second_daemon"]
        found = refused_daemon(spool)
        assert found is not None
        assert (found.process, found.at) == (os.getpid(), now)
        assert [consumer.consumer for consumer in consumers.consumers(spool)] == []
    with sole_daemon(spool, now=now):
        states.read()
        assert raised(metrics, states) == []


def test_changes_that_may_be_missing_are_an_alarm_of_the_page_and_of_status(tmp_path: Path) -> None:
    spool, metrics = spool_at(tmp_path), restarted(0)
    write_state(spool, StateRecord(StreamState.RUNNING, NOW, seen=NOW))
    LateStore(spool).keep([IncompleteTransaction("a", AT, expected=2, received=1)], now=NOW)
    states = ConsumerStates(spool)
    states.read()
    (alarm,) = raised(metrics, states)
    assert (alarm.name, alarm.severity) == ("changes_missing", "WARNING")
    assert alarm in alarms(facts_of_spool(spool, 0, NOW))


def test_status_knows_the_partition_that_holds_the_watermark(tmp_path: Path) -> None:
    spool, holder = spool_at(tmp_path), WatermarkHolder("partition 5f0c", NOW, 3)
    with sole_daemon(spool, now=NOW):
        write_state(spool, StateRecord(StreamState.RUNNING, NOW).alive(NOW, holder=holder))
        assert state_of(spool).holder == holder
        write_state(spool, state_of(spool).alive(NOW))
        assert state_of(spool).holder is None


@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_the_slowest_consumer_keeps_its_lag_and_its_alarm_once_its_epoch_is_pruned(tmp_path: Path, epoch: int) -> None:
    spool = spool_at(tmp_path)
    writer = writer_of(spool)
    sealed(writer, 9)
    consumers.record(spool, "files", epoch, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == epoch
    states, metrics = ConsumerStates(spool), restarted(9)
    states.read()
    assert delivered(states.known[0], metrics) == AT - 1 + epoch * SECOND
    assert [(alarm.name, alarm.subject) for alarm in raised(metrics, states)] == [("consumer_behind", "files")]


def test_a_consumer_that_delivers_nothing_is_behind_before_and_after_the_first_epochs_are_forgotten(
    tmp_path: Path,
) -> None:
    spool, metrics = spool_at(tmp_path), restarted(0)
    consumers.record(spool, "files", 0, now=NOW)
    states = ConsumerStates(spool)
    states.read()
    for epoch in range(1, 5000):
        metrics.newest_epoch = epoch
        metrics.deliveries.sealed(epoch, integers(AT + epoch * SECOND), integers(1), 1)
    assert metrics.deliveries.forgotten
    assert delivered(states.known[0], metrics) == AT - 1
    assert [alarm.name for alarm in raised(metrics, states)] == ["consumer_behind"]


def test_a_consumer_that_advances_and_is_pruned_while_it_is_read_is_at_the_oldest_epoch_that_is_kept(
    tmp_path: Path,
) -> None:
    spool = spool_at(tmp_path)
    writer = writer_of(spool)
    sealed(writer, 9)
    consumers.record(spool, "files", 7, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    consumers.record(spool, "files", 3, now=NOW)  # as it was read before
    states = ConsumerStates(spool)
    states.read()
    assert states.known[0].watermark == AT - 1 + 7 * SECOND


def test_a_lag_that_is_not_known_is_no_lag_of_0(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    consumers.record(spool, "files", 7, now=NOW)  # of another copy of the spool
    states, metrics = ConsumerStates(spool), restarted(9)
    states.read()
    (lag,) = facts_of(metrics, states).consumers
    assert (lag.watermark, lag.epochs_behind) == (0, 2)
    assert [alarm.name for alarm in raised(metrics, states)] == ["consumer_of_another_copy"]


@pytest.mark.parametrize("epoch", [9, 10, 12])
def test_a_consumer_of_another_copy_is_an_alarm_of_the_page_and_of_status(tmp_path: Path, epoch: int) -> None:
    spool = spool_at(tmp_path)
    sealed(writer_of(spool), 10)
    write_state(spool, StateRecord(StreamState.RUNNING, NOW, seen=NOW))
    states, metrics = ConsumerStates(spool), restarted(10)

    def raised_once_done_with(at: str) -> Sequence[Alarm]:
        consumers.record(spool, "files", epoch, now=NOW, at=at)
        states.read()
        of_page, of_status = raised(metrics, states), alarms(facts_of_spool(spool, 0, NOW))
        found = [alarm for alarm in of_page if alarm.name != "consumer_behind"]
        assert found == [alarm for alarm in of_status if alarm.name != "consumer_behind"]
        return found

    (alarm,) = raised_once_done_with(f"{format_rfc3339(AT + 99 * SECOND)}/other")
    assert (alarm.name, alarm.severity, alarm.subject) == ("consumer_of_another_copy", "ERROR", "files")
    text = status_text(status_of(spool, 0, NOW), with_errors=False)
    assert "consumer files: done with an epoch of another copy of the spool" in text
    assert f"consumer files: done with epoch {epoch} of another copy of this spool" in spool_text(spool_report(spool))
    if epoch <= 10:
        assert raised_once_done_with(spool.manifest(epoch).identity) == []
