"""Draws a scripted change stream from a seed: its whole history, to be served and to be compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random

from connector.core.timestamps import SECOND
from emulator.scenario.capture import CAPTURE_TYPES
from emulator.scenario.history import (
    Children,
    History,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
)
from emulator.scenario.instants import instants
from emulator.scenario.placements import DEFAULT, Placement, Placements, draw_placements
from emulator.scenario.script import Script
from emulator.scenario.steady import ACCOUNTS, Load, steady_partitions
from emulator.scenario.timelines import timelines
from emulator.scenario.transactions import Transactions
from emulator.workload.journal import CommittedMod, committed
from emulator.workload.tables import Dialect, Table

_DIALECTS: tuple[Dialect, ...] = ("googlesql", "postgresql")
_WRONG_MODE = "per_placement_tvf needs the partition mode MUTABLE_KEY_RANGE"
_MODES: tuple[PartitionMode, ...] = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A change stream's history, and the names and settings under which it is served.

    `tables` are the database's tables at the end of the history; `retention` is that of the change
    stream, `version_retention` that of the rows' old versions, and `shortest_heartbeat` the shortest that is accepted;
    all three are in nanoseconds. Without `placements` the stream does not have the option per_placement_tvf.
    """

    seed: int
    dialect: Dialect
    mode: PartitionMode
    value_capture_type: str
    history: History
    tables: tuple[Table, ...]
    project: str = "scripted-project"
    instance: str = "scripted-instance"
    database: str = "scripted-database"
    change_stream: str = "Everything"
    retention: int = 7 * 86_400 * SECOND
    version_retention: int = 3_600 * SECOND
    shortest_heartbeat: int = SECOND // 10
    placements: Placements | None = None
    planned: tuple[CommittedMod, ...] | None = field(default=None, repr=False)
    """The committed mods, if a model of the contents was kept; None if only the history is known."""

    @classmethod
    def generate(
        cls,
        seed: int,
        *,
        origin: int,
        seconds: float,
        dialect: Dialect | None = None,
        mode: PartitionMode | None = None,
        value_capture_type: str | None = "NEW_ROW",
        transactions: int = 200,
        average_size: float = 3.0,
        churn: int = 12,
        first_partitions: int = 3,
        rows_per_table: int = 40,
        schema_change: bool | None = None,
        placements: int | None = 0,
    ) -> Scenario:
        """Draws a scenario from `origin` on, with `transactions` transactions and at most `churn` partition events.

        `average_size` is in mods per transaction, cascading deletes not counted. `schema_change` says whether a column
        is added to a table in the middle. With `placements` beside the default one, the stream has the option
        per_placement_tvf, which only the MUTABLE_KEY_RANGE mode has. Arguments that are None are drawn from the seed.
        The same arguments give the same scenario.

        Raises:
            ValueError: `placements` are asked for in the other mode.
        """
        random = Random(seed)  # noqa: S311 - not a secret
        # All three are always drawn, so that passing one of them does not change the rest of the scenario.
        drawn = random.choice(_DIALECTS), random.choice(_MODES), random.choice(CAPTURE_TYPES)
        chosen_dialect, chosen_mode = dialect or drawn[0], mode or ("MUTABLE_KEY_RANGE" if placements else drawn[1])
        capture_type = value_capture_type or drawn[2]
        horizon = origin + int(seconds * SECOND)
        places = _placements(seed, chosen_mode, origin, horizon, placements)
        lines = timelines(
            random,
            chosen_mode,
            origin,
            horizon,
            churn=churn,
            first_partitions=first_partitions,
            placements=places,
        )
        changed_at = _schema_change(random, transactions, wanted=schema_change)
        database = Transactions(
            random,
            chosen_dialect,
            average_size=average_size,
            rows_per_table=rows_per_table,
            locations=lines.open_at if places else None,
        )
        done = [
            database.commit_and_add_column(at) if number == changed_at else database.commit(at)
            for number, at in enumerate(instants(random, origin, horizon, transactions, lines.marks()))
        ]
        ordered = Script(random, chosen_dialect, chosen_mode, capture_type, lines).write(done)
        in_commit_order = sorted(done, key=attrgetter("commit_timestamp", "id"))
        last = done[-1].commit_timestamp if done else horizon
        return cls(
            seed,
            chosen_dialect,
            chosen_mode,
            capture_type,
            History(chosen_mode, origin, max(horizon, last), lines.partitions),
            database.tables,
            placements=places,
            planned=tuple(
                committed(mod, number, transaction.commit_timestamp)
                for number, transaction in enumerate(in_commit_order)
                for mod in ordered[transaction.id]
            ),
        )

    @property
    def committed(self) -> list[CommittedMod]:
        """All committed mods in commit order; the mods of a record keep their order.

        `transaction` counts the transactions from 0 in that order.
        """
        return list(_committed_mods(self.history)) if self.planned is None else list(self.planned)

    @property
    def emptied(self) -> dict[str, int]:
        """The last timestamp at which partitions of each emptied placement may have records, by its name.

        A reader that has read everything up to then does not need its function again.
        """
        ends: dict[str, int] = {}
        for placement in self.placements.each if self.placements else ():
            own = [one.end for one in self.history.partitions.values() if one.placement == placement.name]
            if placement.emptied is not None:
                ends[placement.name] = max((end or 0 for end in own), default=0) - 1
        return ends

    @property
    def churn(self) -> Counter[str]:
        """The number of splits, merges and moves; in the MUTABLE_KEY_RANGE mode starts, ends and moves.

        Partitions that end and have children count as a split if there are several children, as a merge if there are
        several parents (both are possible), and as a move if there is one of each. In the MUTABLE_KEY_RANGE mode a move
        is a pair of a source and a destination at one timestamp.
        """
        counts: Counter[str] = Counter()
        families: dict[frozenset[str], set[str]] = {}
        for partition in self.history.partitions.values():
            children: set[str] = set()
            for event in partition.events:
                if isinstance(event, Children):
                    children |= {child.token for child in event.children}
                elif isinstance(event, PartitionStart):
                    counts["starts"] += len(event.tokens)
                elif isinstance(event, PartitionEnd):
                    counts["ends"] += 1
                elif isinstance(event, PartitionEvent):
                    counts["moves"] += len(event.destinations)
            if children:
                families.setdefault(frozenset(children), set()).add(partition.token)
        for children_of_all, parents in families.items():
            counts["splits"] += len(children_of_all) > 1
            counts["merges"] += len(parents) > 1
            counts["moves"] += len(children_of_all) == len(parents) == 1
        return counts


def steady(
    seed: int,
    *,
    origin: int,
    seconds: float,
    partitions: int,
    records_per_second_per_partition: float,
    mods_per_record: int = 1,
    churn_per_minute: float = 0.0,
    dialect: Dialect = "googlesql",
    mode: PartitionMode = "IMMUTABLE_KEY_RANGE",
    placements: Sequence[str] = (),
) -> Scenario:
    """Draws a scenario of any size: an even load on one simple table, without a model of its contents.

    `churn_per_minute` is the share of the partitions that split per minute; a merge follows each split, so that there
    are always `partitions` partitions, or one more. Rows come from a small pool, the same on all partitions. With
    `placements` beside the default one, the stream has the option per_placement_tvf; there must be more partitions.

    Raises:
        ValueError: `placements` are asked for in the IMMUTABLE_KEY_RANGE mode.
    """
    if placements and mode != "MUTABLE_KEY_RANGE":
        raise ValueError(_WRONG_MODE)
    each = tuple(Placement(name, origin - 1) for name in (DEFAULT, *placements)) if placements else ()
    random = Random(seed)  # noqa: S311 - not a secret
    horizon = origin + int(seconds * SECOND)
    load = Load(partitions, records_per_second_per_partition, mods_per_record, churn_per_minute)
    names = tuple(placement.name for placement in each) or ("",)
    drawn = steady_partitions(random, dialect, mode, origin, horizon, load, names)
    return Scenario(
        seed,
        dialect,
        mode,
        "NEW_ROW",
        History(mode, origin, horizon, drawn),
        (ACCOUNTS,),
        placements=Placements(each) if each else None,
    )


def _placements(seed: int, mode: PartitionMode, origin: int, horizon: int, count: int | None) -> Placements | None:
    """Draws the placements with a generator of their own, so that the rest of a scenario without them is the same."""
    if count and mode != "MUTABLE_KEY_RANGE":
        raise ValueError(_WRONG_MODE)
    random = Random(f"placements of {seed}")  # noqa: S311 - not a secret
    if count is None:
        count = random.choice((0, 0, 1, 2, 3)) if mode == "MUTABLE_KEY_RANGE" else 0
    return draw_placements(random, origin, horizon, count) if count else None


def _schema_change(random: Random, transactions: int, *, wanted: bool | None) -> int | None:
    """Draws the transaction at which a column is added, in the middle half; None for no schema change."""
    if wanted is None:
        wanted = random.random() < 0.4
    return random.randint(transactions // 4, 3 * transactions // 4) if wanted else None


def _committed_mods(history: History) -> Iterator[CommittedMod]:
    """Yields the committed mods in commit order, as far as the history's records report them."""
    transactions: dict[str, int] = {}
    for change in history.in_commit_order():
        number = transactions.setdefault(change.server_transaction_id, len(transactions))
        for mod in change.mods:
            new, old = mod.new_values, mod.old_values
            yield CommittedMod(change.commit_timestamp, number, change.table, change.mod_type, mod.keys, new, new, old)
