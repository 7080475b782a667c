"""Cases 1 to 4: when a partition has finished, what its children are, and when they may be read."""

from pathlib import Path

import pytest

from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from emulator import Fault, FaultKind, FaultPlan
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, at
from tests.integration.commands import manifests
from tests.peers.histories import HOUR, change, merge, merge_of_strangers, partition, split, stream
from tests.peers.served import daemon_reads, served, singers_of_spool, tailed
from tests.peers.virtual import Reading, read, resumes_from_everywhere

EIGHT = list(range(1, 9))


def slow_at(token: str) -> FaultPlan:
    """Returns a fault plan with 20 seconds between the messages of a partition."""
    return FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=20 * SECOND), token=token, times=99)


# Beam I 39821, 37326, 40232; Debezium 2523; tail I 28
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
@pytest.mark.parametrize("after", [0, 1, 6, 19])
def test_case_01_a_clean_end_of_a_query_does_not_finish_its_partition(
    dialect: Dialect, mode: PartitionMode, after: int
) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, after), token="left", times=2)
    reading = read(split(dialect, mode), faults=plan)
    assert plan.struck == {"clean end": 2 if after < 10 else 1}
    assert reading.singers == EIGHT


# tail I 28, over gRPC and in real time
@pytest.mark.long(but=1)
def test_case_01_tail_reads_all_children_after_a_clean_end() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, 2), token="left", times=1)
    # a query within ten seconds is one of before the split
    with served(split(), now=0, speed=2, faults=plan) as server:
        done = tailed(server)
        assert server.engine.queries["left"] >= 2
    assert plan.struck == {"clean end": 1}
    assert done.singers == EIGHT


# Beam I 40232
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
def test_case_01_an_initial_query_that_ended_without_a_partition_is_sent_again(mode: PartitionMode) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END), token=None, times=3)
    reading = read(split(mode=mode), faults=plan)
    assert len(reading.queries(INITIAL_TOKEN)) == 4
    assert reading.singers == EIGHT


# Beam I 37326: the reader's windows end thousands of times, and never end a partition
def test_case_01_the_end_of_a_window_finishes_no_partition() -> None:
    events = [change(at(600 * number), number) for number in range(1, 18)]
    scenario = stream(partition("one", 0, events), mode="MUTABLE_KEY_RANGE", until=3 * HOUR)
    reading = read(scenario, heartbeat=10 * SECOND)
    assert reading.singers == list(range(1, 18))
    assert len(reading.queries("one")) > 6


# Debezium 2523
def test_case_01_a_clean_end_just_before_the_users_end_does_not_prove_the_end() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.CLEAN_END, after=29), token="right")
    reading = read(split(), faults=plan)
    assert plan.struck == {"clean end": 1}
    assert reading.singers == EIGHT


# Redpanda S: children written after the parent was acknowledged
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
def test_case_02_a_crash_at_any_checkpoint_loses_no_child(mode: PartitionMode) -> None:
    scenario = split(mode=mode)
    first = read(scenario)
    passed = [checkpoint for checkpoint in first.checkpoints if checkpoint.watermark >= at(20)]
    assert passed
    assert all({"west", "east"} <= {cut.token for cut in checkpoint.cut} for checkpoint in passed)
    assert len(resumes_from_everywhere(scenario, first, now=31)) >= 5


# Redpanda S: a write of all children whose ALREADY_EXISTS hid the new ones
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
@pytest.mark.parametrize("token", ["left", None])
def test_case_02_a_sibling_that_is_announced_later_is_read_and_a_known_one_is_not_read_twice(
    mode: PartitionMode, token: str | None
) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.BREAK_BETWEEN_CHILDREN, after=1), token=token, times=2)
    reading = read(split(mode=mode), faults=plan, now=31)
    assert plan.struck == {"break between children": 2}
    assert reading.singers == EIGHT
    assert [len(reading.queries(child)) for child in ("west", "east")] == [2, 2], "once, and once more at the end"


# Beam I 39821, 37326, 40232: a query over the past ended with OK, without the record that ends its partition
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
@pytest.mark.parametrize("breaks", [False, True])
def test_case_01_children_that_a_query_over_the_past_omits_once_are_not_lost(mode: PartitionMode, breaks: bool) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.OMISSION), token="left")
    if breaks:
        plan.rule(Fault(FaultKind.UNAVAILABLE, after=1), token="left")
    reading = read(split(mode=mode), faults=plan, now=31)
    assert plan.struck["omission"] == 1
    assert reading.singers == EIGHT
    omitted, *more = reading.queries("left")
    assert len(more) == 1 + breaks
    assert all(omitted.start < again.start for again in more), "queried once more from the progress, not from the start"


# Redpanda S, in the spool: the position and the children are in one manifest
def test_case_02_the_manifest_that_passes_a_partitions_end_holds_its_children(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with served(split(), now=31) as server:
        for end in (at(20) - 1, at(20), at(30)):
            daemon_reads(server, spool, end=end)
            newest = manifests(spool)[-1]
            tokens = {cut.token for cut in newest.cut}
            assert (newest.watermark_high, tokens) == (end, {"west", "east", "right"} if end >= at(20) else tokens)
    assert singers_of_spool(spool) == EIGHT


def assert_read_after(reading: Reading, child: str, *parents: str) -> None:
    first, at_the_end = reading.queries(child)
    assert first.start < at_the_end.start
    for parent in parents:
        assert all(query.ended is not None and query.ended <= first.sent for query in reading.queries(parent))


# spream S: `start >= min watermark`, which the child itself holds
def test_case_03_a_merge_child_is_not_read_before_its_last_parent_has_finished() -> None:
    plan = slow_at("b")
    reading = read(merge(), faults=plan, now=31)
    (a,), (b,) = reading.queries("a"), reading.queries("b")
    assert a.ended is not None
    assert b.ended is not None
    assert a.ended + 60 * SECOND < b.ended
    assert_read_after(reading, "both", "a", "b")
    assert reading.singers == list(range(1, 10))


# Debezium 6544, 6685, 6870
def test_case_03_a_merge_child_is_scheduled_once_after_a_restart_at_any_checkpoint() -> None:
    scenario = merge()
    slow = read(scenario, faults=slow_at("b"), now=31)
    for first in (read(scenario), slow):
        for again in resumes_from_everywhere(scenario, first, now=31, faults=lambda: slow_at("b")):
            if again.queries("a") or again.queries("b"):
                assert_read_after(again, "both", "a", "b")
    assert any(checkpoint.watermark == at(20) - 1 for checkpoint in slow.checkpoints), "none among its announcements"


# Debezium S: parents that the store no longer knows, or does not know yet
def test_case_04_a_child_waits_for_a_parent_that_is_not_known_yet() -> None:
    plan = slow_at("q")
    reading = read(merge_of_strangers(), faults=plan, now=31)
    announced = reading.queries("p2")[0].ended
    assert announced is not None
    assert announced < reading.queries("q2")[0].sent, "the parent was known when the child was announced"
    assert_read_after(reading, "both", "p2", "q2")
    assert reading.singers == list(range(1, 10))


# Debezium S
def test_case_04_a_child_whose_parents_are_unknown_after_a_restart_waits_for_them() -> None:
    scenario = merge_of_strangers()
    first = read(scenario, faults=slow_at("q"), now=31)
    strangers = [c for c in first.checkpoints if {"p2", "q"} <= {cut.token for cut in c.cut}]
    assert strangers, "no checkpoint knows the one parent and not the other"
    for checkpoint in strangers:
        plan = slow_at("q")
        again = read(scenario, begin=checkpoint, faults=plan, now=31)
        assert_read_after(again, "both", "p2", "q2")
        assert list(again.at.singers) == list(range(1, 10))
    resumes_from_everywhere(scenario, first, now=31)
