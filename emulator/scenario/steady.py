"""Draws a change stream of any size cheaply: one table, one record per transaction, rows shared by records.

No model of the contents is kept: records update rows of a small pool, whatever partition they are on. Partitions split
at an even pace, and a merge follows each split, so that their number stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from random import Random

from connector.core.timestamps import SECOND
from emulator.scenario.capture import reported_columns
from emulator.scenario.history import (
    Change,
    Child,
    Children,
    Event,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
    ReportedColumn,
    ReportedMod,
)
from emulator.scenario.timelines import draw_token
from emulator.workload.journal import Row
from emulator.workload.tables import Column, Dialect, Table

ACCOUNTS = Table(
    "Accounts",
    (
        Column("AccountId", "INT64", nullable=False),
        Column("Owner", "STRING"),
        Column("Balance", "INT64"),
        Column("Active", "BOOL"),
    ),
)
"""The one table."""

_POOL = 64


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a steady stream; `splits_per_minute` is the share of the partitions that split per minute."""

    partitions: int
    records_per_second_per_partition: float
    mods_per_record: int
    splits_per_minute: float


def steady_partitions(
    random: Random,
    dialect: Dialect,
    mode: PartitionMode,
    origin: int,
    horizon: int,
    load: Load,
    placements: Sequence[str] = ("",),
) -> dict[str, Partition]:
    """Draws the partitions by token, with their records, from `origin` to `horizon`, both inclusive.

    They are in the `placements` in turn, and those that they start in the same one.
    """
    partitions = _timelines(random, mode, origin, horizon, load, placements)
    if load.records_per_second_per_partition > 0:
        records = _Records(random, dialect, load)
        for partition in partitions.values():
            last = horizon if partition.end is None else min(horizon, partition.end - 1)
            events: list[Event] = list(records.between(partition.start, last))
            partition.events = sorted(events + partition.events, key=attrgetter("timestamp"))
    return partitions


def _timelines(
    random: Random, mode: PartitionMode, origin: int, horizon: int, load: Load, placements: Sequence[str]
) -> dict[str, Partition]:
    stream = _SteadyImmutable(random) if mode == "IMMUTABLE_KEY_RANGE" else _SteadyMutable(random)
    for number in range(load.partitions):
        stream.start(origin, placement=placements[number % len(placements)])
    splits = round(load.partitions * load.splits_per_minute * (horizon - origin) / (60 * SECOND))
    # Partitions change at odd nanoseconds and records are committed at even ones, so that none share a timestamp.
    first, last = origin // 2 + 1, (horizon - 1) // 2
    instants = sorted(2 * half + 1 for half in random.sample(range(first, last), 2 * splits))
    for number, at in enumerate(instants):
        if number % 2 == 0:
            stream.split(at)
        else:
            stream.merge(at)
    return stream.partitions


class _LivePartitions:
    """All partitions by token, and the live ones, one of which is drawn in constant time."""

    def __init__(self, random: Random) -> None:
        self.partitions: dict[str, Partition] = {}
        self._random = random
        self._alive: list[Partition] = []

    def start(self, at: int, parents: tuple[str, ...] = (), placement: str = "") -> Partition:
        """Starts a partition."""
        partition = Partition(draw_token(self._random), at, parents, placement=placement)
        self.partitions[partition.token] = partition
        self._alive.append(partition)
        return partition

    def remove_one(self) -> Partition:
        """Draws a live partition and removes it from the live ones."""
        place = self._random.randrange(len(self._alive))
        self._alive[place], self._alive[-1] = self._alive[-1], self._alive[place]
        return self._alive.pop()


class _SteadyImmutable(_LivePartitions):
    """Splits and merges of the IMMUTABLE_KEY_RANGE mode."""

    def split(self, at: int) -> None:
        """Replaces one partition by two."""
        self._replace(at, [self.remove_one()], 2)

    def merge(self, at: int) -> None:
        """Replaces two partitions by one; there must be two."""
        self._replace(at, [self.remove_one(), self.remove_one()], 1)

    def _replace(self, at: int, ended: list[Partition], children_count: int) -> None:
        parents = tuple(partition.token for partition in ended)
        children = tuple(Child(self.start(at, parents).token, parents) for _ in range(children_count))
        for partition in ended:
            partition.end = at
            partition.events.append(Children(at, "00000000", children))


class _SteadyMutable(_LivePartitions):
    """Splits and merges of the MUTABLE_KEY_RANGE mode."""

    def split(self, at: int) -> None:
        """Starts a partition, and moves some of another's keys to it."""
        source = self.remove_one()
        started = self.start(at, placement=source.placement)
        self._alive.append(source)
        source.events.append(PartitionStart(at, "00000000", (started.token,)))
        self._move(at, source, started)

    def merge(self, at: int) -> None:
        """Moves a partition's keys to another and ends it, if its placement has others; there must be two."""
        ended, destination = self.remove_one(), self.remove_one()
        placements = {other.placement for other in self._alive}
        if ended.placement not in {"", *placements}:
            ended, destination = destination, ended  # the first may have been the last one of its placement
        self._alive.append(destination)
        if ended.placement not in {*placements, destination.placement}:
            self._alive.append(ended)
            return
        self._move(at, ended, destination)
        ended.end = at + 1
        ended.events.append(PartitionEnd(at, "00000002", ended.token))

    def _move(self, at: int, source: Partition, destination: Partition) -> None:
        source.events.append(PartitionEvent(at, "00000001", source.token, (), (destination.token,)))
        destination.events.append(PartitionEvent(at, "00000001", destination.token, (source.token,), ()))


class _Records:
    """Draws data change records; they share the objects that can be shared."""

    def __init__(self, random: Random, dialect: Dialect, load: Load) -> None:
        self._random = random
        self._gap = max(2, int(SECOND / load.records_per_second_per_partition))
        names = tuple(column.name for column in ACCOUNTS.values)
        self._columns: tuple[ReportedColumn, ...] = reported_columns(ACCOUNTS, dialect, names)
        accounts = count()
        self._pool = [tuple(_mod(random, next(accounts)) for _ in range(load.mods_per_record)) for _ in range(_POOL)]

    def between(self, first: int, last: int) -> Iterator[Change]:
        """Yields a partition's records from `first` to `last`, both inclusive."""
        random, gap = self._random, self._gap
        at = first + 1 + random.randrange(gap)
        while at & ~1 <= last:
            yield Change(
                at & ~1,
                "00000000",
                f"{random.getrandbits(64):016x}",
                True,
                ACCOUNTS.name,
                self._columns,
                random.choice(self._pool),
                "UPDATE",
                "NEW_ROW",
                1,
                1,
            )
            at += max(2, gap // 2 + random.randrange(gap))


def _mod(random: Random, account: int) -> ReportedMod:
    values: Row = {
        "Owner": f"owner-{account}",
        "Balance": str(random.randrange(10**9)),
        "Active": random.random() < 0.9,
    }
    return ReportedMod({"AccountId": str(account)}, values, {})
