"""The partitions of a scenario: their events, their announcements, and the keys that they own."""

from collections import Counter, defaultdict
from itertools import groupby, pairwise

import pytest

from emulator.scenario.history import (
    Change,
    Children,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
)
from emulator.workload.values import Value
from tests.emulator.scenario.drawn import (
    ORIGIN,
    SEEDS,
    by_seed_and_mode,
    changes_by_token,
    key_of,
    reachable,
    scenario,
    tokens_of,
)


@pytest.mark.long(but=20)
@by_seed_and_mode
def test_a_partitions_events_are_between_its_start_and_end_and_in_order(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    for partition in made.partitions.values():
        stamps = [event.timestamp for event in partition.events]
        assert stamps == sorted(stamps)
        assert partition.start <= made.horizon
        for event in partition.events:
            if isinstance(event, Children):
                assert event.timestamp == partition.end
            else:
                assert partition.covers(event.timestamp)
                assert event.timestamp <= made.horizon
        for _, group in groupby(partition.events, key=lambda event: event.timestamp):
            instant = list(group)
            names = [event.server_transaction_id for event in instant if isinstance(event, Change)]
            assert len(list(groupby(names))) == len(set(names)), "a transaction's records stand together"
            for name in set(names):
                assert_increasing(
                    [
                        event.record_sequence
                        for event in instant
                        if isinstance(event, Change) and event.server_transaction_id == name
                    ]
                )
            if mode == "MUTABLE_KEY_RANGE":
                assert_increasing([event.record_sequence for event in instant])


def assert_increasing(sequences: list[str]) -> None:
    numbers = [int(sequence) for sequence in sequences]
    assert all(one < other for one, other in pairwise(numbers))


@by_seed_and_mode
def test_every_partition_is_announced_once_and_reachable_from_the_initial_query(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    found: list[str] = []
    for record in made.initial(ORIGIN):
        found += tokens_of(record)
    assert {token for token, partition in made.partitions.items() if partition.start == ORIGIN} == set(found)
    for token in found:
        for event in made.partitions[token].events:
            for other in tokens_of(event):
                assert made.partitions[other].start == event.timestamp
                if other not in found:
                    found.append(other)
    assert sorted(found) == sorted(made.partitions)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_parent_announces_each_of_its_children_once_and_names_all_its_parents(seed: int) -> None:
    made = scenario(seed, "IMMUTABLE_KEY_RANGE").history
    for partition in made.partitions.values():
        announced = [child for event in partition.events if isinstance(event, Children) for child in event.children]
        expected = [other for other in made.partitions.values() if partition.token in other.parents]
        assert Counter(child.token for child in announced) == Counter(other.token for other in expected)
        assert all(child.parents == made.partitions[child.token].parents for child in announced)
        assert bool(announced) == (partition.end is not None)
        assert all(other.start == partition.end for other in expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_are_reported_on_both_sides_and_an_end_is_the_last_record(seed: int) -> None:
    made = scenario(seed, "MUTABLE_KEY_RANGE").history
    out, into = set(), set()
    for partition in made.partitions.values():
        assert partition.parents == ()
        for event in partition.events:
            if isinstance(event, PartitionEvent):
                assert event.token == partition.token
                out |= {(event.timestamp, event.token, other) for other in event.destinations}
                into |= {(event.timestamp, other, event.token) for other in event.sources}
        ends = [event for event in partition.events if isinstance(event, PartitionEnd)]
        assert bool(ends) == (partition.end is not None)
        assert partition.end is None or (partition.events[-1] is ends[0] and len(ends) == 1)
        assert partition.end is None or ends[0] == PartitionEnd(
            partition.end - 1, ends[0].record_sequence, partition.token
        )
    assert out == into


@by_seed_and_mode
def test_a_keys_changes_are_on_one_partition_at_a_time_and_follow_its_moves(seed: int, mode: PartitionMode) -> None:
    made = scenario(seed, mode).history
    seen: dict[tuple[Value, ...], list[tuple[int, str]]] = defaultdict(list)
    for token, change in changes_by_token(made):
        for mod in change.mods:
            seen[key_of(change.table, mod.keys)].append((change.commit_timestamp, token))
    for visits in seen.values():
        visits.sort()
        assert len({at for at, _ in visits}) == len(visits), "a row changes once in an instant"
        for (at, source), (later, destination) in pairwise(visits):
            assert destination in reachable(made, source, at, later)
