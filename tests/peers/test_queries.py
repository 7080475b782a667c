"""Cases from the official emulator's own tests: bounds around a partition's end, stale tokens, churn."""

import asyncio

import pytest

from connector.config import validated
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND
from connector.errors import StreamError
from connector.reader.change_stream import opened
from emulator.scenario.history import Change, PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, ORIGIN, at
from tests.peers.histories import HOUR, split
from tests.peers.served import served, source, tailed
from tests.peers.virtual import Checkpoint, read

MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")
AROUND = (at(20) - 1, at(20), at(20) + 1, at(25))
"""Instants around the end of `left`, which is at 20."""


def between(changes: list[Change], start: int, end: int) -> list[int]:
    return [number for number, change in enumerate(changes, 1) if start <= change.commit_timestamp <= end]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [ORIGIN, *AROUND])
@pytest.mark.parametrize("real_time", [False, True], ids=["historical", "real-time"])
def test_a_start_and_an_end_may_be_before_at_or_after_a_partitions_end(
    mode: PartitionMode, start: int, real_time: bool
) -> None:
    scenario = split(mode=mode)
    for end in AROUND:
        if start <= end:
            reading = read(scenario, start=start, end=end, now=(start - ORIGIN) / SECOND if real_time else 31)
            assert reading.singers == between(scenario.history.in_commit_order(), start, end), (start, end)
            assert reading.at.watermark == end
            assert reading.refused == 0


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_start_that_is_the_end_delivers_that_instant_over_the_wire(dialect: Dialect, mode: PartitionMode) -> None:
    with served(split(dialect, mode)) as server:
        assert [tailed(server, start=instant, end=instant).singers for instant in AROUND] == [[4], [5], [6], []]


@pytest.mark.parametrize("mode", MODES)
def test_a_retained_token_that_ended_long_ago_leads_to_its_children(mode: PartitionMode) -> None:
    stale = Checkpoint(at(13), (CutPartition("left", at(0)), CutPartition("right", at(0))), (1, 2, 3))
    reading = read(split(mode=mode), begin=stale, now=20 * HOUR)
    assert list(reading.at.singers) == list(range(1, 9))


@pytest.mark.parametrize("mode", MODES)
def test_a_token_of_another_stream_stops_the_reader_in_one_line(mode: PartitionMode) -> None:
    other = Checkpoint(at(13), (CutPartition("no such token", at(0)), CutPartition("right", at(0))))
    with pytest.raises(StreamError, match="the change stream is gone"):
        read(split(mode=mode), begin=other, now=31)


@pytest.mark.parametrize("mode", MODES)
def test_a_query_after_churn_begins_with_the_partitions_of_then(mode: PartitionMode) -> None:
    reading = read(split(mode=mode), start=at(25), now=31)
    assert {query.token for query in reading.sent} == {"", "west", "east", "right"}
    assert reading.singers == [7, 8]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_a_generated_column_is_not_expected_of_records(dialect: Dialect, mode: PartitionMode) -> None:
    async def columns() -> set[str]:
        async with opened(config.source) as stream:
            (singers,) = (table for table in stream.stream.tables if table.table == "Singers")
            return {column.name for column in singers.columns}

    with served(split(dialect, mode)) as server:
        config = validated({"source": source(server)})
        assert asyncio.run(columns()) == {"SingerId", "FirstName", "LastName", "BirthDate", "UpdatedAt"}
