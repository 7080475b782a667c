"""Steady scenarios, which are drawn for their size."""

import pytest

from connector.core.timestamps import SECOND
from emulator.scenario.history import (
    Children,
    PartitionEnd,
    PartitionMode,
    PartitionStart,
)
from emulator.scenario.scenario import steady
from tests.emulator.scenario.drawn import ORIGIN, over_modes


@over_modes
def test_a_steady_stream_keeps_its_rate_and_number_of_partitions(mode: PartitionMode) -> None:
    made = steady(
        1,
        origin=ORIGIN,
        seconds=60,
        partitions=100,
        records_per_second_per_partition=1,
        mods_per_record=3,
        churn_per_minute=0.5,
        mode=mode,
    )
    changes = list(made.history.changes())
    assert len(changes) == pytest.approx(6000, rel=0.05)
    assert len({change.server_transaction_id for change in changes}) == len(changes)
    assert len({id(change.mods) for change in changes}) <= 64, "records share their mods"
    assert len(made.committed) == 3 * len(changes)
    assert made.churn[{"IMMUTABLE_KEY_RANGE": "splits", "MUTABLE_KEY_RANGE": "starts"}[mode]] == 50
    for at in range(ORIGIN, ORIGIN + 60 * SECOND, 3 * SECOND):
        assert 100 <= len(made.history.initial(at)) <= 101
    for partition in made.history.partitions.values():
        stamps = [event.timestamp for event in partition.events]
        assert stamps == sorted(stamps)
        assert all(
            partition.covers(event.timestamp) or (isinstance(event, Children) and event.timestamp == partition.end)
            for event in partition.events
        )
        assert partition.end is None or isinstance(partition.events[-1], Children | PartitionEnd)


def test_a_steady_stream_may_have_no_records() -> None:
    made = steady(1, origin=ORIGIN, seconds=9, partitions=3, records_per_second_per_partition=0)
    assert made.committed == []
    assert len(made.history.initial(ORIGIN)) == 3


def test_a_steady_stream_of_placements_has_partitions_of_each_at_all_times() -> None:
    made = steady(
        3,
        origin=ORIGIN,
        seconds=60,
        partitions=8,
        records_per_second_per_partition=1,
        churn_per_minute=4,
        mode="MUTABLE_KEY_RANGE",
        placements=("europe", "asia"),
    )
    assert made.placements is not None
    history = made.history
    marks = {partition.start for partition in history.partitions.values()} | {history.horizon}
    assert len(marks) > 20
    for at in marks:
        for placement in made.placements.each:
            assert history.initial(at, placement.name)
    for partition in history.partitions.values():
        for event in partition.events:
            if isinstance(event, PartitionStart):
                assert {history.partitions[token].placement for token in event.tokens} == {partition.placement}
    with pytest.raises(ValueError, match="per_placement_tvf needs the partition mode MUTABLE_KEY_RANGE"):
        steady(3, origin=ORIGIN, seconds=60, partitions=8, records_per_second_per_partition=1, placements=("europe",))
