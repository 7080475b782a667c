"""Scenarios with placements: their partitions, the moves between them, and placements that come and go."""

from collections import Counter
from functools import cache

import pytest

from emulator.scenario.history import Change, History, PartitionEnd, PartitionEvent, PartitionStart
from emulator.scenario.placements import DEFAULT
from emulator.scenario.scenario import Scenario
from emulator.workload.values import Value
from tests.emulator.scenario.drawn import LENGTHS, ORIGIN, SEEDS, changes_by_token, key_of, reachable

by_seed = pytest.mark.parametrize("seed", SEEDS)


@cache
def placed(seed: int) -> Scenario:
    return Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=LENGTHS[seed % 3],
        value_capture_type=None,
        transactions=120,
        churn=16,
        first_partitions=1 + seed % 4,
        placements=1 + seed % 3,
    )


def moves(history: History) -> set[tuple[int, str, str]]:
    """The moves of keys: their timestamp, and the tokens of their source and their destination."""
    return {
        (event.timestamp, event.token, destination)
        for partition in history.partitions.values()
        for event in partition.events
        if isinstance(event, PartitionEvent)
        for destination in event.destinations
    }


@pytest.mark.long(but=10)
@by_seed
def test_the_same_arguments_give_the_same_scenario(seed: int) -> None:
    assert placed(seed) == placed.__wrapped__(seed)


@by_seed
def test_each_partition_is_announced_in_its_placement_or_by_its_functions_initial_query(seed: int) -> None:
    made = placed(seed)
    assert made.placements is not None
    history, found = made.history, set()
    for placement in made.placements.each:
        found |= {
            token
            for event in history.initial(max(placement.created, ORIGIN), placement.name)
            if isinstance(event, PartitionStart)
            for token in event.tokens
        }
    for partition in history.partitions.values():
        for event in partition.events:
            if isinstance(event, PartitionStart):
                assert {history.partitions[token].placement for token in event.tokens} == {partition.placement}
                found |= set(event.tokens)
    assert found == set(history.partitions)


@by_seed
def test_records_of_a_placement_come_after_its_creation_and_before_it_is_emptied(seed: int) -> None:
    made = placed(seed)
    assert made.placements is not None
    for token, change in changes_by_token(made.history):
        placement = made.placements.named(made.history.partitions[token].placement)
        assert placement.created < change.commit_timestamp
        assert placement.emptied is None or change.commit_timestamp <= placement.emptied


@by_seed
def test_a_placement_has_a_live_partition_until_it_is_emptied_and_then_all_have_ended(seed: int) -> None:
    made = placed(seed)
    assert made.placements is not None
    for placement in made.placements.each:
        own = [one for one in made.history.partitions.values() if one.placement == placement.name]
        assert any(one.end is None for one in own) == (placement.emptied is None)
        last = max(one.end - 1 if one.end else ORIGIN for one in own)
        assert made.emptied.get(placement.name) == (None if placement.emptied is None else last)
        for one in own:
            assert (one.end is not None) == any(isinstance(event, PartitionEnd) for event in one.events)


@by_seed
def test_record_sequences_increase_at_each_timestamp_and_moves_are_on_both_sides(seed: int) -> None:
    out, into = set(), set()
    for partition in placed(seed).history.partitions.values():
        order = [(event.timestamp, int(event.record_sequence)) for event in partition.events]
        assert order == sorted(set(order))
        for event in partition.events:
            if isinstance(event, PartitionEvent):
                out |= {(event.timestamp, partition.token, other) for other in event.destinations}
                into |= {(event.timestamp, other, partition.token) for other in event.sources}
    assert out == into


@by_seed
def test_a_row_moves_by_one_update_of_its_placement_key(seed: int) -> None:
    made = placed(seed)
    last: dict[tuple[Value, ...], tuple[int, str]] = {}
    for token, change in sorted(changes_by_token(made.history), key=lambda pair: pair[1].commit_timestamp):
        at = change.commit_timestamp
        for mod in change.mods:
            key = key_of(change.table, mod.keys)
            before, source = last.get(key, (0, token))
            assert before < at
            if change.mod_type != "INSERT":  # a row that is inserted again may be anywhere
                assert token in reachable(made.history, source, before, at)
            last[key] = (at, token)


def test_scenarios_have_moves_between_placements_and_placements_that_come_and_go() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        made = placed(seed)
        assert made.mode == "MUTABLE_KEY_RANGE"
        assert made.placements is not None
        assert made.placements.each[0].name == DEFAULT
        partitions = made.history.partitions
        for at, source, destination in moves(made.history):
            seen["moves"] += partitions[source].placement != partitions[destination].placement
            seen["moves of rows"] += any(
                isinstance(event, Change) and event.commit_timestamp == at and event.mod_type == "UPDATE"
                for event in (*partitions[source].events, *partitions[destination].events)
            )
        for placement in made.placements.each:
            seen["created"] += placement.created > ORIGIN
            seen["emptied"] += placement.emptied is not None
        seen["plain"] += made.placements.has_plain
        seen[made.placements.early] += 1
        seen[made.dialect] += 1
    assert min(seen.values()) >= 4, seen
    assert len(seen) == 10


def test_placements_are_drawn_for_mutable_streams_only_and_change_nothing_else() -> None:
    counts: Counter[int] = Counter()
    for seed in range(30):
        drawn = Scenario.generate(seed, origin=ORIGIN, seconds=5, transactions=5, placements=None)
        plain = Scenario.generate(seed, origin=ORIGIN, seconds=5, transactions=5)
        counts[len(drawn.placements.each) if drawn.placements else 0] += 1
        if drawn.placements is None:
            assert drawn == plain
        else:
            assert drawn.mode == plain.mode == "MUTABLE_KEY_RANGE"
    assert set(counts) == {0, 2, 3, 4}
    with pytest.raises(ValueError, match="per_placement_tvf needs the partition mode MUTABLE_KEY_RANGE"):
        Scenario.generate(1, origin=ORIGIN, seconds=5, mode="IMMUTABLE_KEY_RANGE", placements=1)
