"""The history of a scripted change stream: its partitions, and every record that each of them returns.

The same classes serve both partition modes. A partition covers the commit timestamps from `start` to `end` and holds
its records in the order in which a query returns them. Heartbeats are not included, because they depend on the clock.
In the IMMUTABLE_KEY_RANGE mode a partition's last records are `Children`, at its `end`. In the MUTABLE_KEY_RANGE mode
partitions announce others at any time by `PartitionStart`, keys move between them by `PartitionEvent`, and
`PartitionEnd` is a partition's last record. Timestamps are integers of nanoseconds since 1970.

The fields are those of https://cloud.google.com/spanner/docs/change-streams/details and of the protocol buffer
google.spanner.v1.ChangeStreamRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from emulator.workload.journal import ModType, Row

PartitionMode = Literal["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]


@dataclass(frozen=True, slots=True)
class ReportedColumn:
    """A column as a record lists it; `code` is a google.spanner.v1.TypeCode's name, in an array of its elements."""

    name: str
    code: str
    array: bool
    is_primary_key: bool
    ordinal_position: int
    annotation: str = ""
    """A google.spanner.v1.TypeAnnotationCode's name, such as PG_NUMERIC; empty if there is none."""


@dataclass(frozen=True, slots=True)
class ReportedMod:
    """A changed row, with values in Spanner's JSON encoding; values that were not captured are absent."""

    keys: Row
    new_values: Row
    old_values: Row


@dataclass(frozen=True, slots=True)
class Change:
    """A data change record."""

    commit_timestamp: int
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table: str
    columns: tuple[ReportedColumn, ...]
    mods: tuple[ReportedMod, ...]
    mod_type: ModType
    value_capture_type: str
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str = ""
    is_system_transaction: bool = False

    @property
    def timestamp(self) -> int:
        """The timestamp by which it is ordered in its partition."""
        return self.commit_timestamp


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat record."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class Child:
    """A child partition with the parents that its record names; the initial query names none."""

    token: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Children:
    """A child partitions record of the IMMUTABLE_KEY_RANGE mode."""

    timestamp: int
    """Its start_timestamp."""
    record_sequence: str
    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """A partition start record of the MUTABLE_KEY_RANGE mode."""

    timestamp: int
    """Its start_timestamp."""
    record_sequence: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """A partition end record of the MUTABLE_KEY_RANGE mode: the partition has no record after it."""

    timestamp: int
    """Its end_timestamp, inclusive."""
    record_sequence: str
    token: str


@dataclass(frozen=True, slots=True)
class PartitionEvent:
    """A partition event record of the MUTABLE_KEY_RANGE mode: keys moved in from or out to other partitions."""

    timestamp: int
    """Its commit_timestamp."""
    record_sequence: str
    token: str
    sources: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()


@dataclass(slots=True)
class Moves:
    """The moves of keys at one timestamp, or in one transaction: pairs of a source's and a destination's token."""

    out: dict[str, list[str]] = field(default_factory=dict)
    into: dict[str, list[str]] = field(default_factory=dict)

    def add(self, source: str, destination: str) -> None:
        """Adds a move, once for each pair."""
        if destination not in self.out.setdefault(source, []):
            self.out[source].append(destination)
            self.into.setdefault(destination, []).append(source)

    def before(self, at: int) -> Iterator[tuple[str, PartitionEvent]]:
        """Yields the events that come before the transaction's changes: keys that move in."""
        for token, sources in self.into.items():
            if token not in self.out:
                yield token, PartitionEvent(at, "", token, sources=tuple(sources))

    def after(self, at: int) -> Iterator[tuple[str, PartitionEvent]]:
        """Yields the events that come after the transaction's changes: keys that move out, or out and in."""
        for token, destinations in self.out.items():
            sources = tuple(self.into.get(token, ()))
            yield token, PartitionEvent(at, "", token, sources, tuple(destinations))


Event = Change | Children | PartitionStart | PartitionEnd | PartitionEvent
"""A record that a partition holds."""

Record = Event | Heartbeat
"""A record that a query returns."""


@dataclass(slots=True)
class Partition:
    """A partition of the history. It covers the commit timestamps from `start`, and before `end` if it has one.

    `events` are in the order in which a query returns them: by timestamp, then by record_sequence.
    """

    token: str
    start: int
    parents: tuple[str, ...] = ()
    end: int | None = None
    events: list[Event] = field(default_factory=list)
    placement: str = ""
    """The placement whose function returns it; empty in a stream without the option per_placement_tvf."""

    def covers(self, timestamp: int) -> bool:
        """True if it covers that timestamp."""
        return self.start <= timestamp and (self.end is None or timestamp < self.end)


@dataclass(frozen=True, slots=True)
class History:
    """All partitions by token, and all commits from `origin` to `horizon`, both inclusive.

    After the horizon nothing more is committed; time and heartbeats continue.
    """

    mode: PartitionMode
    origin: int
    horizon: int
    partitions: Mapping[str, Partition]

    def initial(self, start: int, placement: str | None = None) -> list[Event]:
        """Returns what a query without a token returns: the partitions that cover `start`, only those of a placement.

        Without a placement they are those of all placements.
        """
        alive = [
            partition.token
            for partition in self.partitions.values()
            if partition.covers(start) and placement in (None, partition.placement)
        ]
        if self.mode == "MUTABLE_KEY_RANGE":
            return [PartitionStart(start, f"{number:08d}", (token,)) for number, token in enumerate(alive)]
        return [Children(start, f"{number:08d}", (Child(token, ()),)) for number, token in enumerate(alive)]

    def changes(self) -> Iterator[Change]:
        """Yields every data change record, partition by partition."""
        for partition in self.partitions.values():
            for event in partition.events:
                if isinstance(event, Change):
                    yield event

    def in_commit_order(self) -> list[Change]:
        """Returns every data change record in commit order."""
        return sorted(
            self.changes(),
            key=lambda change: (change.commit_timestamp, change.server_transaction_id, int(change.record_sequence)),
        )
