"""Cases 5, 6, 8, 9 and 10: how far the reader is, where it ends, how long it waits, and where it may be taken up."""

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
from tests.peers.virtual import all_singers, goes_on_from_everywhere, read

EIGHT = list(range(1, 9))
MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


# Beam I 36470: reordered writes of the metadata, and a cache of it
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4, 9))
def test_case_05_the_watermark_never_goes_back_through_faults_and_restarts(mode: PartitionMode, seed: int) -> None:
    told = split(mode=mode)
    first = read(told, faults=FaultPlan(seed, share=0.9), dies_at=17)
    second = read(told, begin=first.at, faults=FaultPlan(seed + 100, share=0.9), now=17)
    for reading in (first, second):
        moves = reading.metrics.watermarks[1:]  # the first is that of a reader that has not begun
        assert len(moves) > 5
        assert moves == sorted(moves)
    assert second.metrics.watermarks[1] >= first.at.watermark
    assert list(second.at.singers) == EIGHT


# Redpanda I 4686: acknowledgements out of order
def test_case_05_a_partition_that_is_ahead_does_not_take_the_watermark_past_one_that_lags() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=8), token="right", times=99)
    first = read(split(), faults=plan, dies_at=29)
    assert first.metrics.records >= 6, "the others were read"
    assert first.at.watermark < at(12), "a crash now would skip what `right` has at 12"
    assert first.singers == [1]
    second = read(split(), begin=first.at, now=29)
    assert list(second.at.singers) == EIGHT


def idle(mode: PartitionMode, hours: int) -> Scenario:
    """Nothing is committed for hours, retention is one."""
    last = change(at(hours * HOUR), 1)
    return stream(partition("one", 0, [last]), mode=mode, until=hours * HOUR, retention=HOUR * SECOND)


# Redpanda S: heartbeats moved memory only
@pytest.mark.parametrize("mode", MODES)
def test_case_06_a_restart_after_hours_without_records_goes_on_from_the_heartbeats(mode: PartitionMode) -> None:
    first = read(idle(mode, 5), dies_at=4.9 * HOUR, heartbeat=10 * SECOND)
    assert first.at.watermark >= at(4.9 * HOUR) - MINUTE - 11 * SECOND
    second = read(idle(mode, 5), begin=first.at, now=4.9 * HOUR)
    assert (second.singers, second.refused) == ([1], 0)


# Redpanda S: the same, sealed by the daemon
def test_case_06_the_spool_of_an_idle_stream_keeps_ahead_of_retention(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with served(idle("IMMUTABLE_KEY_RANGE", 3), now=0, speed=3000) as server:
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
@pytest.mark.parametrize("mode", MODES)
def test_case_08_windows_one_after_the_other_give_nothing_twice(mode: PartitionMode, tmp_path: Path) -> None:
    told, spool = split(mode=mode), tmp_path / "spool"
    with served(told) as server:
        for instant in sorted({record.commit_timestamp for record in told.history.changes()}):
            daemon_reads(server, spool, end=instant)
            assert watermark(spool) == instant
    assert singers_of_spool(spool) == EIGHT


# tail S, in the windows that the mutable mode wants
def test_case_08_a_record_at_the_bound_of_the_readers_own_window_comes_once() -> None:
    def told(*bounds: int) -> Scenario:
        instants = sorted({ORIGIN + SECOND, *(bound + tick for bound in bounds for tick in (-1, 0, 1))})
        events = [change(instant, number) for number, instant in enumerate(instants)]
        return stream(partition("one", 0, events), mode="MUTABLE_KEY_RANGE", until=2 * HOUR)

    bounds: set[int] = set()
    for _ in range(5):  # a record there may move the bounds that follow
        reading = read(told(*bounds), heartbeat=10 * SECOND)
        met = {asked.end for asked in reading.queries("one") if asked.end is not None and asked.end < at(2 * HOUR)}
        if met <= bounds:
            break
        bounds |= met
    assert met <= bounds
    assert len(met) >= 3
    assert reading.singers == all_singers(told(*bounds))


# Beam I 32473
@pytest.mark.parametrize("mode", MODES)
def test_case_09_a_query_may_last_as_long_as_its_partition(mode: PartitionMode) -> None:
    told = stream(partition("one", 0, [change(at(4 * HOUR), 1)]), mode=mode, until=5 * HOUR)
    reading = read(told, heartbeat=300 * SECOND)
    longest = max((asked.ended or 0) - asked.sent for asked in reading.queries("one"))
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
def test_case_09_a_query_that_falls_silent_is_given_up_after_several_heartbeats(heartbeat: int) -> None:
    told = stream(partition("one", 0, [change(at(0.5), 1), change(at(1000), 2)]), until=1200)
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE, after=1), token="one")
    reading = read(told, faults=plan, heartbeat=heartbeat * SECOND)
    silent, after, *_ = reading.queries("one")
    assert silent.ended is not None
    assert max(30, 5 * heartbeat) < (silent.ended - ORIGIN) / SECOND < max(30, 5 * heartbeat) + 1
    assert after.start == at(0.5) - 1  # what is proven: another record may share its commit timestamp
    assert reading.singers == [1, 2]


# Beam I 32473: and slowness is no silence
def test_case_09_a_slow_query_is_not_given_up() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=25 * SECOND), token="right", times=99)
    reading = read(split(), faults=plan, now=31)
    whole, _at_the_end = reading.queries("right")
    assert whole.start == ORIGIN
    assert reading.singers == EIGHT


# an outside verification: the watchdog of 30 s asked a slow server again and again, and nothing was read for 15 minutes
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
        lasted = [((asked.ended or 0) - asked.sent) // SECOND for asked in reading.queries(token)]
        assert lasted[:timeouts] == [30 * 2**attempt for attempt in range(timeouts)]
        assert lasted[timeouts] == late


# Beam I 32473: nor is it silence where we do not read
def test_case_09_a_query_that_we_hold_back_ourselves_is_not_given_up() -> None:
    events = [change(at(1) + number, number) for number in range(200)]
    told = stream(partition("one", 0, events), until=10)
    reading = read(told, now=31, budget=20_000, no_room_for=600)
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
                at(2 + moment),
                0,
                server_transaction_id=f"transaction {moment}{number}",
                record_sequence=f"{place:08d}",
                mods=tuple(
                    ReportedMod({"SingerId": str(1000 * moment + 100 * number + 10 * place + mod)}, {}, {})
                    for mod in range(3)
                ),
                number_of_records_in_transaction=3,
                number_of_partitions_in_transaction=3,
            )
            for moment in range(6)
            for number in range(2)
        ]

    parts = [partition(token, 0, records(place)) for place, token in enumerate(tokens)]  # type: ignore[arg-type]
    return stream(*parts, mode=mode)


# conduit S: a position inside a record
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("now", [0, 31])
def test_case_10_a_position_lies_only_between_distinct_commit_timestamps(mode: PartitionMode, now: int) -> None:
    told = crowded(mode)
    first = read(told, now=now, budget=100)
    assert first.singers == all_singers(told)
    assert len([epoch for epoch in first.epochs if epoch.records]) == 6
    assert len(goes_on_from_everywhere(told, first, now=31, budget=100)) >= 5


# conduit S: a record of many mods and a crash after any epoch, in the spool
def test_case_10_a_record_is_sealed_with_all_its_mods_or_not_at_all(tmp_path: Path) -> None:
    told, spool = crowded("IMMUTABLE_KEY_RANGE"), tmp_path / "spool"
    with served(told) as server:
        for second in range(2, 8):
            daemon_reads(server, spool, end=at(second))
            assert len(singers_of_spool(spool)) == 18 * (second - 1)
    assert singers_of_spool(spool) == all_singers(told)


# conduit S: insert or update guessed from emptiness
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_10_what_happened_is_told_by_the_mod_type_and_not_guessed_from_emptiness(
    dialect: Dialect, mode: PartitionMode
) -> None:
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
