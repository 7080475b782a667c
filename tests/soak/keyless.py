"""Adds a table with PRIMARY KEY(), which has at most one row, and its changes to a scenario."""

from bisect import bisect_right
from dataclasses import replace
from operator import attrgetter
from random import Random

from emulator.scenario.history import Change, Partition, ReportedColumn, ReportedMod
from emulator.scenario.scenario import Scenario
from emulator.workload.journal import ModType
from emulator.workload.tables import Column, Table

TABLE = Table("Keyless", (Column("V", "STRING"),), key_length=0)
_COLUMNS = (ReportedColumn("V", "STRING", array=False, is_primary_key=False, ordinal_position=1),)
_TURNS: tuple[ModType, ...] = ("INSERT", "UPDATE", "UPDATE", "DELETE")
_CHANGES = 10


def with_keyless_table(scenario: Scenario, random: Random) -> Scenario:
    """Returns the scenario with the table and its transactions."""
    history = scenario.history
    taken = {event.timestamp for partition in history.partitions.values() for event in partition.events}
    drawn = {random.randrange(history.origin + 1, history.horizon) for _ in range(_CHANGES)}
    row: str | None = None
    for number, at in enumerate(sorted(drawn - taken)):
        mod_type = _TURNS[number % len(_TURNS)]
        new = None if mod_type == "DELETE" else f"value {number}"
        alive = [one for one in history.partitions.values() if one.start < at and one.covers(at) and _is_open(one, at)]
        mod = ReportedMod(
            {},
            {} if new is None else {"V": new},
            {} if row is None or "OLD" not in scenario.value_capture_type else {"V": row},
        )
        change = Change(
            at, "00000000", f"keyless-{number}", True, TABLE.name, _COLUMNS, (mod,), mod_type,
            scenario.value_capture_type, 1, 1,
        )  # fmt: skip
        _put(random.choice(alive), change)
        row = new
    return replace(scenario, tables=(*scenario.tables, TABLE), planned=None)


def _is_open(partition: Partition, at: int) -> bool:
    """True if the partition does not end before or at the instant; its last record may be the one that ends it."""
    return partition.end is None or at < partition.end - 1


def _put(partition: Partition, change: Change) -> None:
    place = bisect_right(partition.events, change.timestamp, key=attrgetter("timestamp"))
    partition.events.insert(place, change)
