"""Case 16: streams of partition mode MUTABLE_KEY_RANGE."""

import asyncio

import pytest

from connector.config import validated
from connector.core.timestamps import MINUTE, SECOND
from connector.errors import ConfigurationError
from connector.reader.change_stream import opened
from emulator import Fault, FaultKind, FaultPlan, Framing, Scenario
from emulator.scenario.history import Change, Event, PartitionEnd, PartitionMode, PartitionStart
from emulator.scripted import information_schema
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, at
from tests.peers.histories import HOUR, change, moved, partition, split, stream
from tests.peers.served import served, source, tailed
from tests.peers.virtual import SentQuery, all_singers, read, resumes_from_everywhere

MUTABLE: PartitionMode = "MUTABLE_KEY_RANGE"
EIGHT = list(range(1, 9))


def within_its_window(query: SentQuery) -> bool:
    return query.end is not None and query.end <= max(query.sent, query.start) + 30 * MINUTE


# Beam PR 34967, 37459
@pytest.mark.parametrize("now", [0.0, 2 * HOUR])
def test_case_16_every_query_ends_at_most_thirty_minutes_past_now_or_its_start(now: float) -> None:
    events = [change(at(1000 * number), number) for number in range(1, 10)]
    scenario = stream(partition("one", 0, events), mode=MUTABLE, until=3 * HOUR)
    reading = read(scenario, now=now, heartbeat=10 * SECOND)
    assert reading.singers == list(range(1, 10))
    assert reading.refused == 0
    assert len(reading.sent) > 3
    assert all(within_its_window(query) for query in reading.sent)


def starting() -> Scenario:
    """`one` starts `two` and `three` in one record at 10, between its own records of that instant, and continues."""
    one: list[Event] = [
        change(at(5), 1),
        change(at(10), 2, record_sequence="00000001"),
        PartitionStart(at(10), "00000002", ("two", "three")),
        change(at(10), 3, record_sequence="00000003"),
        change(at(15), 6),
    ]
    return stream(
        partition("one", 0, one),
        partition("two", 10, [change(at(10), 4), change(at(20), 7)]),
        partition("three", 10, [change(at(10) + 1, 5)]),
        mode=MUTABLE,
    )


# Beam S
@pytest.mark.parametrize("now", [0, 31])
def test_case_16_partitions_that_start_mid_stream_are_read_and_their_announcer_continues(now: int) -> None:
    reading = read(starting(), now=now)
    assert reading.singers == list(range(1, 8))
    assert [reading.queries(token)[0].start for token in ("two", "three")] == [at(10), at(10)]
    resumes_from_everywhere(starting(), reading, now=31)


# Beam S: and a redelivered start record starts nothing again
@pytest.mark.parametrize("after", range(6))
def test_case_16_a_redelivered_start_record_starts_nothing_twice(after: int) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.UNAVAILABLE, after), token="one", times=3)
    reading = read(starting(), faults=plan, now=31)
    assert plan.struck
    assert reading.singers == list(range(1, 8))
    assert [len(reading.queries(token)) for token in ("two", "three")] == [2, 2], "once, and once more at the end"


# Beam S
@pytest.mark.parametrize("after", range(1, 5))
def test_case_16_an_end_is_final_and_inclusive(after: int) -> None:
    one: list[Event] = [
        change(at(5), 1),
        change(at(10), 2, record_sequence="00000001"),
        PartitionEnd(at(10), "00000002", "one"),
    ]
    scenario = stream(
        partition("one", 0, one, end=at(10) + 1), partition("two", 0, [change(at(10) + 1, 3)]), mode=MUTABLE
    )
    plan = FaultPlan().rule(Fault(FaultKind.UNAVAILABLE, after), token="one")
    reading = read(scenario, faults=plan, now=31)
    assert reading.singers == [1, 2, 3]
    assert len(reading.queries("one")) == (2 if after < 3 else 1), "a partition that has ended was queried again"
    assert reading.refused == 0
    again = resumes_from_everywhere(scenario, read(scenario), now=31)
    assert any(not later.queries("one") for later in again), "no checkpoint after the end"


def moving() -> Scenario:
    """The key of row 1 moves from `source` to `middle` at 10 and to `target` at 10 and a nanosecond."""

    def row(instant: int, singer: int) -> Change:
        return change(instant, singer, server_transaction_id=f"transaction {9 - singer}")

    return stream(
        partition("source", 0, [row(at(8), 1), row(at(10), 2), moved(at(10), "source", destinations=("middle",))]),
        partition(
            "middle",
            0,
            [
                moved(at(10), "middle", sources=("source",)),
                row(at(10) + 1, 3),
                moved(at(10) + 1, "middle", destinations=("target",)),
            ],
        ),
        partition("target", 0, [moved(at(10) + 1, "target", sources=("middle",)), row(at(10) + 2, 4), row(at(20), 5)]),
        mode=MUTABLE,
    )


# Beam reads it unordered
@pytest.mark.parametrize("slow", ["source", "middle", "target"])
def test_case_16_what_follows_a_move_waits_until_its_source_has_been_read_up_to_it(slow: str) -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=20 * SECOND), token=slow, times=99)
    reading = read(moving(), faults=plan, now=31)
    assert reading.singers == [1, 2, 3, 4, 5]
    resumes_from_everywhere(moving(), reading, now=31)


# Beam reads it unordered: a source that is silent
def test_case_16_a_target_that_is_read_first_delivers_nothing_before_its_source() -> None:
    plan = FaultPlan().rule(Fault(FaultKind.SILENCE), token="source", times=99)
    first = read(moving(), faults=plan, now=31, dies_at=55)
    assert first.metrics.records == 5, "the others were read, the last of each once more at the end"
    assert first.singers == []
    assert read(moving(), begin=first.at, now=55).at.singers == (1, 2, 3, 4, 5)


# change-streams-tail S
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_16_records_of_one_timestamp_are_ordered_by_their_sequence_as_a_number(
    dialect: Dialect, mode: PartitionMode
) -> None:
    order = ("9", "10", "00000100", "1000")
    records = [
        change(
            at(5),
            singer,
            record_sequence=sequence,
            server_transaction_id="one and the same",
            number_of_records_in_transaction=4,
            number_of_partitions_in_transaction=2,
        )
        for singer, sequence in enumerate(order)
    ]
    scenario = stream(partition("one", 0, records[1::2]), partition("two", 0, records[::2]), dialect=dialect, mode=mode)
    with served(scenario) as server:
        assert tailed(server).singers == [0, 1, 2, 3]


# not read by Debezium, Redpanda, spream; the PostgreSQL dialect has another function and the same bytes
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_case_16_both_dialects_are_read_by_the_functions_of_the_mode_whatever_the_framing(dialect: Dialect) -> None:
    scenario = split(dialect, MUTABLE)
    with served(scenario, framing=Framing(5, rows=3, chunked=1.0, tokens=0.5, bare=0.2)) as server:
        done = tailed(server)
    assert (done.error, done.singers) == (None, EIGHT)
    assert done.singers == all_singers(scenario)


# Debezium S: decoded, then dropped; information_schema has the mode
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_case_16_the_mode_is_that_of_information_schema(dialect: Dialect, mode: PartitionMode) -> None:
    async def found() -> str:
        async with opened(config.source) as stream:
            return stream.stream.partition_mode

    with served(split(dialect, mode)) as server:
        config = validated({"source": source(server)})
        assert asyncio.run(found()) == mode


# Debezium S
def test_case_16_an_unknown_mode_is_rejected_and_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(information_schema, "_options", lambda _: [("partition_mode", "ELASTIC_KEY_RANGE")])
    with served(split()) as server:
        done = tailed(server)
    assert isinstance(done.error, ConfigurationError)
    assert "ELASTIC_KEY_RANGE" in str(done.error)
