"""Cases 5, 6, 8, 9 and 10: progress and watermarks, ends, timeouts, and positions to resume from."""

from pathlib import Path

import pytest

from connector.core.timestamps import MINUTE, SECOND
from emulator import Fault, FaultKind, FaultPlan, Scenario
from emulator.scenario.history import PartitionMode, ReportedMod
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, at
from tests.integration.commands import manifests, watermark
from tests.peers.histories import HOUR, change, partition, split, stream
from tests.peers.served import calls_to, daemon_reads, served, singers_of_spool, tailed
from tests.peers.virtual import all_singers, read, resumes_from_everywhere

EIGHT = list(range(1, 9))
MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


# Beam I 36470: reordered writes of the metadata, and a cache of it
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4, 9))
def test_case_05_the_watermark_never_moves_back_through_faults_and_restarts(mode: PartitionMode, seed: int) -> None:
    scenario = split(mode=mode)
    first = read(scenario, faults=FaultPlan(seed, share=0.9), dies_at=17)
    second = read(scenario, begin=first.at, faults=FaultPlan(seed + 100, share=0.9), now=17)
    for reading in (first, second):
        moves = reading.metrics.watermarks[1:]  # the first one is from before the reader started
        assert len(moves) > 5
        assert moves == sorted(moves)
    assert second.metrics.watermarks[1] >= first.at.watermark
    assert list(second.at.singers) == EIGHT


# Redpanda I 4686: acknowledgements out of order
def test_case_05_a_partition_that_is_ahead_does_not_move_the_watermark_past_one_that_lags() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=8), token="right", times=99)
    first = read(split(), faults=plan, dies_at=29)
    assert first.metrics.records >= 6, "the others were read"
    assert first.at.watermark < at(12), "a crash now would skip what `right` has at 12"
    assert first.singers == [1]
    second = read(split(), begin=first.at, now=29)
    assert list(second.at.singers) == EIGHT


def idle(mode: PartitionMode, hours: int) -> Scenario:
    """Returns a stream with no commit for so many hours, and with a retention of one hour."""
    last = change(at(hours * HOUR), 1)
    return stream(partition("one", 0, [last]), mode=mode, until=hours * HOUR, retention=HOUR * SECOND)


# Redpanda S: heartbeats moved memory only
@pytest.mark.parametrize("mode", MODES)
def test_case_06_a_restart_after_hours_without_records_continues_from_the_heartbeats(mode: PartitionMode) -> None:
    first = read(idle(mode, 5), dies_at=4.9 * HOUR, heartbeat=10 * SECOND)
    assert first.at.watermark >= at(4.9 * HOUR) - MINUTE - 11 * SECOND
    second = read(idle(mode, 5), begin=first.at, now=4.9 * HOUR)
    assert (second.singers, second.refused) == ([1], 0)


# Redpanda S: the same, sealed by the daemon
@pytest.mark.long
def test_case_06_the_checkpoint_of_an_idle_stream_stays_within_retention(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with served(idle("IMMUTABLE_KEY_RANGE", 3), now=0, speed=600) as server:
        daemon_reads(server, spool, heartbeat="60s", stop_at=at(2.3 * HOUR))
    assert sum(manifest.rows for manifest in manifests(spool)) == 0
    with served(idle("IMMUTABLE_KEY_RANGE", 3), now=3 * HOUR + 1) as server:
        assert server.now - server.engine.scenario.retention > at(2 * HOUR)
        daemon_reads(server, spool)
        assert server.engine.refused == 0
    assert singers_of_spool(spool) == [1]


# Redpanda S: taken for exclusive
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_08_the_end_timestamp_is_inclusive_to_the_nanosecond(dialect: Dialect, mode: PartitionMode) -> None:
    with served(split(dialect, mode)) as server:
        found = {end: tailed(server, end=end).singers for end in (at(20) - 2, at(20) - 1, at(20), at(20) + 1)}
    assert [singers[-1] for singers in found.values()] == [3, 4, 5, 6]
    assert all(singers == EIGHT[: len(singers)] for singers in found.values())


# tail S: each window began at the inclusive end of the one before
@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", MODES)
def test_case_08_consecutive_ranges_duplicate_nothing(mode: PartitionMode, tmp_path: Path) -> None:
    scenario, spool = split(mode=mode), tmp_path / "spool"
    with served(scenario) as server:
        for instant in sorted({record.commit_timestamp for record in scenario.history.changes()}):
            daemon_reads(server, spool, end=instant)
            assert watermark(spool) == instant
    assert singers_of_spool(spool) == EIGHT


# tail S, in the windows that the mutable mode wants
def test_case_08_a_record_at_the_bound_of_a_window_is_delivered_once() -> None:
    def with_records_around(*bounds: int) -> Scenario:
        instants = sorted({ORIGIN + SECOND, *(bound + tick for bound in bounds for tick in (-1, 0, 1))})
        events = [change(instant, number) for number, instant in enumerate(instants)]
        return stream(partition("one", 0, events), mode="MUTABLE_KEY_RANGE", until=2 * HOUR)

    bounds: set[int] = set()
    for _ in range(5):  # a record there may move the bounds that follow
        reading = read(with_records_around(*bounds), heartbeat=10 * SECOND)
        ends = {query.end for query in reading.queries("one") if query.end is not None and query.end < at(2 * HOUR)}
        if ends <= bounds:
            break
        bounds |= ends
    assert ends <= bounds
    assert len(ends) >= 3
    assert reading.singers == all_singers(with_records_around(*bounds))


# Beam I 32473
@pytest.mark.parametrize("mode", MODES)
def test_case_09_a_query_may_last_as_long_as_its_partition(mode: PartitionMode) -> None:
    scenario = stream(partition("one", 0, [change(at(4 * HOUR), 1)]), mode=mode, until=5 * HOUR)
    reading = read(scenario, heartbeat=300 * SECOND)
    longest = max((query.ended or 0) - query.sent for query in reading.queries("one"))
    assert longest > (4.9 * HOUR * SECOND if mode == "IMMUTABLE_KEY_RANGE" else 10 * MINUTE)
    assert reading.singers == [1]


# Beam I 32473
def test_case_09_the_streaming_call_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_to(monkeypatch)
    with served(split()) as server:
        assert tailed(server).singers == EIGHT
    assert len(calls) > 5
    assert {call.deadline for call in calls} == {None}


# Beam I 32473: in the place of a deadline
@pytest.mark.parametrize("heartbeat", [1, 10, 60])
def test_case_09_a_query_that_falls_silent_is_cancelled_after_several_heartbeats(heartbeat: int) -> None:
    scenario = stream(partition("one", 0, [change(at(0.5), 1), change(at(1000), 2)]), until=1200)
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=1), token="one")
    reading = read(scenario, faults=plan, heartbeat=heartbeat * SECOND)
    silent, after, *_ = reading.queries("one")
    assert silent.ended is not None
    assert max(30, 5 * heartbeat) < (silent.ended - ORIGIN) / SECOND < max(30, 5 * heartbeat) + 1
    assert after.start == at(0.5) - 1  # what is proven: another record may share its commit timestamp
    assert reading.singers == [1, 2]


# Beam I 32473: and slowness is no silence
def test_case_09_a_slow_query_is_not_cancelled() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=25 * SECOND), token="right", times=99)
    reading = read(split(), faults=plan, now=31)
    whole, _at_the_end = reading.queries("right")
    assert whole.start == ORIGIN
    assert reading.singers == EIGHT


# an outside verification: the 30 s watchdog retried a slow server again and again, and read nothing for 15 minutes
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("late", [90, 500])
def test_case_09_a_server_whose_first_messages_are_late_for_every_partition_is_waited_for(
    mode: PartitionMode, late: int
) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.LATENESS, pause=late * SECOND), times=9999)
    reading = read(split(mode=mode), faults=plan, now=31)
    assert reading.singers == EIGHT
    timeouts = 2 if late == 90 else 5  # 30 and 60 s, and so on to 480
    for token in ("left", "right", "west", "east"):
        lasted = [((query.ended or 0) - query.sent) // SECOND for query in reading.queries(token)]
        assert lasted[:timeouts] == [30 * 2**attempt for attempt in range(timeouts)]
        assert lasted[timeouts] == late


# Beam I 32473: a query that is not read from is not silent either
def test_case_09_a_query_under_backpressure_is_not_cancelled() -> None:
    events = [change(at(1) + number, number) for number in range(200)]
    scenario = stream(partition("one", 0, events), until=10)
    reading = read(scenario, now=31, budget=20_000, no_room_for=600)
    whole, _at_the_end = reading.queries("one")
    assert whole.ended is not None
    assert whole.ended > at(600)
    assert reading.metrics.most_held < 60_000
    assert reading.singers == list(range(200))


def crowded(mode: PartitionMode) -> Scenario:
    """Three partitions with records of three mods at the same few instants, a transaction over all of them."""
    tokens = ("left", "middle", "right")

    def records(place: int) -> list[object]:
        return [
            change(
                at(2 + instant),
                0,
                server_transaction_id=f"transaction {instant}{number}",
                record_sequence=f"{place:08d}",
                mods=tuple(
                    ReportedMod({"SingerId": str(1000 * instant + 100 * number + 10 * place + mod)}, {}, {})
                    for mod in range(3)
                ),
                number_of_records_in_transaction=3,
                number_of_partitions_in_transaction=3,
            )
            for instant in range(6)
            for number in range(2)
        ]

    parts = [partition(token, 0, records(place)) for place, token in enumerate(tokens)]  # type: ignore[arg-type]
    return stream(*parts, mode=mode)


# conduit S: a position inside a record
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("now", [0, 31])
def test_case_10_a_checkpoint_is_only_between_distinct_commit_timestamps(mode: PartitionMode, now: int) -> None:
    scenario = crowded(mode)
    first = read(scenario, now=now, budget=100)
    assert first.singers == all_singers(scenario)
    assert len([epoch for epoch in first.epochs if epoch.records]) == 6
    assert len(resumes_from_everywhere(scenario, first, now=31, budget=100)) >= 5


# conduit S: a record of many mods and a crash after any epoch, in the spool
def test_case_10_a_record_is_sealed_with_all_its_mods_or_not_at_all(tmp_path: Path) -> None:
    scenario, spool = crowded("IMMUTABLE_KEY_RANGE"), tmp_path / "spool"
    with served(scenario) as server:
        for second in range(2, 8):
            daemon_reads(server, spool, end=at(second))
            assert len(singers_of_spool(spool)) == 18 * (second - 1)
    assert singers_of_spool(spool) == all_singers(scenario)


# conduit S: insert or update guessed from emptiness
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_10_the_mod_type_is_reported_and_not_guessed_from_emptiness(dialect: Dialect, mode: PartitionMode) -> None:
    kinds = ("INSERT", "UPDATE", "DELETE")
    keys_alone = [
        change(at(number), number, mod_type=kind, mods=(ReportedMod({"SingerId": str(number)}, {}, {}),))
        for number, kind in enumerate(kinds, 1)
    ]
    with served(stream(partition("one", 0, keys_alone), dialect=dialect, mode=mode)) as server:
        events = tailed(server).events
    assert [event["source_metadata"]["mod_type"] for event in events] == list(kinds)
    assert [event["source_metadata"]["is_deleted"] for event in events] == [False, False, True]
    assert [event["payload"] for event in events] == [{"SingerId": number} for number in (1, 2, 3)]
