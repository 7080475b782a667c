"""Streams in which rows of Singers are written several times, and the changes that a reader delivers."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from emulator import Scenario
from emulator.scenario.history import Change, Event, Partition, PartitionMode, PartitionStart, ReportedMod
from emulator.workload.journal import ModType
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import at
from tests.peers.histories import change, children_records, partition, stream
from tests.peers.served import events_of_spool

MUTABLE: PartitionMode = "MUTABLE_KEY_RANGE"
Told = tuple[int, str, str | None]
"""A row's key, the mod type, and its name; None where the event has none."""


def write(seconds: float, singer: int, mod_type: ModType, name: str | None = None, **more: Any) -> Change:
    """A write to one row, so many seconds after the origin, in a transaction of its own."""
    values = {} if name is None else {"FirstName": name}
    return change(
        at(seconds),
        singer,
        server_transaction_id=more.pop("transaction", f"{singer} at {seconds}"),
        mod_type=mod_type,
        mods=(ReportedMod({"SingerId": str(singer)}, values, {}),),
        **more,
    )


def split_at(
    seconds: float, before: Sequence[Event], low: Sequence[Event], high: Sequence[Event], mode: PartitionMode
) -> list[Partition]:
    """A partition that Spanner splits in two: in the mutable mode it goes on with the low keys."""
    if mode == MUTABLE:
        announced = PartitionStart(at(seconds), "00000100", ("high",))
        return [partition("whole", 0, [*before, announced, *low]), partition("high", seconds, [*high])]
    children = children_records(at(seconds), low=("whole",), high=("whole",))
    return [
        partition("whole", 0, [*before, *children], end=at(seconds)),
        partition("low", seconds, [*low], parents=("whole",)),
        partition("high", seconds, [*high], parents=("whole",)),
    ]


def one_partition(*events: Event, dialect: Dialect, mode: PartitionMode, until: float = 30, **more: Any) -> Scenario:
    """A stream with one partition that lasts."""
    return stream(partition("one", 0, [*events]), dialect=dialect, mode=mode, until=until, **more)


def told(spool: Path) -> list[Told]:
    """The changes of rows that the sealed epochs hold, in order."""
    found = ((event["source_metadata"]["mod_type"], json.loads(event["payload"])) for event in events_of_spool(spool))
    return [(int(payload["SingerId"]), mod_type, payload.get("FirstName")) for mod_type, payload in found]


def of(changes: Iterable[Change]) -> list[Told]:
    """The same of these changes, in commit order."""
    ordered = sorted(changes, key=lambda one: (one.commit_timestamp, one.server_transaction_id, one.record_sequence))
    return [
        (int(str(mod.keys["SingerId"])), one.mod_type, mod.new_values.get("FirstName"))  # type: ignore[misc]
        for one in ordered
        for mod in one.mods
    ]
