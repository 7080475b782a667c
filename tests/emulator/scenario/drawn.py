"""Scenarios that several tests look at, drawn once, and what the tests read from them."""

from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest

from emulator.scenario.capture import CAPTURE_TYPES
from emulator.scenario.history import (
    Change,
    Children,
    History,
    Partition,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
)
from emulator.scenario.scenario import Scenario
from emulator.workload.journal import Row
from emulator.workload.values import Value

ORIGIN = 1_700_000_000_123_456_789
MODES: tuple[PartitionMode, ...] = get_args(PartitionMode)
SEEDS = range(24)
LENGTHS = (0.000_002, 5, 150)
"""Seconds; in the shortest scenario everything happens within 2000 nanoseconds."""

by_seed_and_mode = pytest.mark.parametrize(
    ("seed", "mode"), [(seed, mode) for seed in SEEDS for mode in MODES], ids=lambda value: str(value)
)
over_modes = pytest.mark.parametrize("mode", MODES)


@cache
def scenario(seed: int, mode: PartitionMode) -> Scenario:
    """A scenario; the seeds cover both dialects and all value capture types."""
    return Scenario.generate(
        seed,
        origin=ORIGIN,
        seconds=LENGTHS[seed % 3],
        mode=mode,
        dialect="postgresql" if seed % 2 else "googlesql",
        value_capture_type=CAPTURE_TYPES[seed // 2 % 4],
        transactions=120,
        churn=16,
        first_partitions=1 + seed % 4,
    )


def scenarios(mode: PartitionMode) -> list[Scenario]:
    return [scenario(seed, mode) for seed in SEEDS]


def changes_by_token(history: History) -> Iterator[tuple[str, Change]]:
    for token, partition in history.partitions.items():
        for event in partition.events:
            if isinstance(event, Change):
                yield token, event


def tokens_of(event: object) -> list[str]:
    if isinstance(event, Children):
        return [child.token for child in event.children]
    return list(event.tokens) if isinstance(event, PartitionStart) else []


def key_of(table: str, keys: Row) -> tuple[Value, ...]:
    return (table, *keys.values())


def reachable(history: History, token: str, first: int, last: int) -> set[str]:
    """The partitions on which keys of a partition at `first` may be at `last`."""
    reached: dict[str, int] = {token: first}
    queue = [token]
    while queue:
        partition = history.partitions[queue.pop()]
        for event in partition.events:
            if not reached[partition.token] <= event.timestamp <= last:
                continue
            for other in event.destinations if isinstance(event, PartitionEvent) else children_of(partition, event):
                if reached.get(other, last + 1) > event.timestamp:
                    reached[other] = event.timestamp
                    queue.append(other)
    return {other for other in reached if history.partitions[other].covers(last)}


def children_of(partition: Partition, event: object) -> list[str]:
    return tokens_of(event) if isinstance(event, Children) and event.timestamp == partition.end else []
