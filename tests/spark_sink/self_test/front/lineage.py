"""The partitions of a change stream of the mode MUTABLE_KEY_RANGE, which grow while records are added. Pure.

Keys are hashed to places, as in `emulator.scenario.timelines`; each partition owns the places from its own to the next
one's. A split moves the upper places of a partition to a new one: their changes up to then are on the source, later
ones on the destination. The partition of the last split ends, and all of its places move.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from zlib import crc32

import orjson

from emulator.scenario.history import (
    Change,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionStart,
    ReportedColumn,
    ReportedMod,
)
from emulator.scenario.timelines import WHOLE, draw_token
from emulator.workload.journal import ModType

_FIRST = 4
"""Partitions at first."""

_first = itemgetter(0)


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A data change record of the underlying change stream."""

    commit_timestamp: int
    server_transaction_id: str
    record_sequence: int
    table: str
    columns: tuple[ReportedColumn, ...]
    mods: tuple[ReportedMod, ...]
    mod_type: ModType
    value_capture_type: str
    transaction_tag: str


@dataclass(slots=True)
class Lineage:
    """Distributes records over partitions.

    Attributes:
        origin: the start of the first partitions, Unix nanoseconds.
        placements: whose functions read the partitions; empty for one function.
        copies: how often the mod of a number is recorded, where that is not once: a planted fault.
        partitions: all of them by token, with what each has recorded.
    """

    origin: int
    placements: Sequence[str] = ()
    copies: Mapping[int, int] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    _tiles: list[tuple[int, str]] = field(default_factory=list)
    _random: Random = field(default_factory=lambda: Random(31))
    _mods: int = 0

    def __post_init__(self) -> None:
        names = self.placements or ("",)
        for number in range(_FIRST):
            token = self._start(self.origin, names[number % len(names)])
            self._tiles.append((WHOLE * number // _FIRST, token))

    def add(self, transaction: Sequence[SourceRecord]) -> None:
        """Adds all records of a transaction, each divided by the partitions that own its keys."""
        divided: list[tuple[str, SourceRecord, list[ReportedMod]]] = []
        for record in transaction:
            by_owner: dict[str, list[ReportedMod]] = {}
            for mod in record.mods:
                copies = self.copies.get(self._mods, 1)
                self._mods += 1
                if copies:
                    by_owner.setdefault(self.owner(_place(record.table, mod.keys)), []).extend([mod] * copies)
            divided += [(token, record, mods) for token, mods in by_owner.items()]
        last = {token: number for number, (token, _, _) in enumerate(divided)}
        for number, (token, record, mods) in enumerate(divided):
            self.partitions[token].events.append(
                Change(
                    record.commit_timestamp,
                    f"{number:08d}",
                    record.server_transaction_id,
                    last[token] == number,
                    record.table,
                    record.columns,
                    tuple(mods),
                    record.mod_type,
                    record.value_capture_type,
                    len(divided),
                    len(last),
                    record.transaction_tag,
                )
            )

    def split(self, at: int, key: str, ends: bool) -> None:
        """Moves the places from that of a key on to a new partition, and all others to another if the source ends."""
        place = crc32(key.encode())
        index = bisect_right(self._tiles, place, key=_first) - 1
        low, source = self._tiles[index]
        placement = self.partitions[source].placement
        tiles = [(low, self._start(at, placement) if ends else source)]
        if place > low:
            tiles.append((place, self._start(at, placement)))
        self._tiles[index : index + 1] = tiles
        started = tuple(token for _, token in tiles if token != source)
        events = self.partitions[source].events
        events.append(PartitionStart(at, "00000000", started))
        events.append(PartitionEvent(at, "00000001", source, destinations=started))
        for token in started:
            self.partitions[token].events.append(PartitionEvent(at, "00000000", token, sources=(source,)))
        if ends:
            events.append(PartitionEnd(at, "00000002", source))
            self.partitions[source].end = at + 1

    def owner(self, place: int) -> str:
        """The partition that owns a place now."""
        return self._tiles[bisect_right(self._tiles, place, key=_first) - 1][1]

    def _start(self, at: int, placement: str) -> str:
        token = draw_token(self._random)
        self.partitions[token] = Partition(token, at, placement=placement)
        return token


def _place(table: str, keys: Mapping[str, object]) -> int:
    return crc32(orjson.dumps([table, *keys.values()]))
