"""Hand-made change streams: each change is a row of Singers with its own SingerId; times are seconds after ORIGIN."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from connector.core.timestamps import SECOND
from emulator import TABLES, Scenario, Table
from emulator.scenario.history import (
    Change,
    Child,
    Children,
    Event,
    History,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
    ReportedColumn,
    ReportedMod,
)
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import ORIGIN, at

HOUR = 3600
DAY = 24 * HOUR * SECOND


def column(
    name: str, code: str, position: int, *, key: bool = False, array: bool = False, pg: str = ""
) -> ReportedColumn:
    """Returns a column as records list it; `pg` is its annotation in the PostgreSQL dialect."""
    return ReportedColumn(name, code, array, key, position, pg)


KEY = column("SingerId", "INT64", 1, key=True)
COLUMNS = (KEY, column("FirstName", "STRING", 2))


def change(instant: int, singer: int, **changed: Any) -> Change:
    """Returns an update of one row, in its own transaction."""
    made = Change(
        commit_timestamp=instant,
        record_sequence="00000000",
        server_transaction_id=f"transaction {singer:04d}",
        is_last_record_in_transaction_in_partition=True,
        table="Singers",
        columns=COLUMNS,
        mods=(ReportedMod({"SingerId": str(singer)}, {"FirstName": f"name {singer}"}, {}),),
        mod_type="UPDATE",
        value_capture_type="NEW_ROW",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
    )
    return replace(made, **changed)


def children_records(instant: int, **children: tuple[str, ...]) -> list[Children]:
    """Returns a child partitions record for each child, as the service sends them; the arguments name its parents."""
    return [
        Children(instant, f"{number:08d}", (Child(token, parents),))
        for number, (token, parents) in enumerate(children.items(), 100)
    ]


def partition(
    token: str, start: float, events: Sequence[Event], *, end: int | None = None, parents: tuple[str, ...] = ()
) -> Partition:
    """Returns a partition that starts `start` seconds after the origin."""
    return Partition(token, at(start), parents, end, [*events])


def stream(
    *partitions: Partition,
    mode: PartitionMode = "IMMUTABLE_KEY_RANGE",
    dialect: Dialect = "googlesql",
    until: float = 30,
    retention: int = DAY,
    tables: tuple[Table, ...] = TABLES,
) -> Scenario:
    """Returns a change stream of these partitions."""
    history = History(mode, ORIGIN, at(until), {made.token: made for made in partitions})
    return Scenario(0, dialect, mode, "NEW_ROW", history, tables, retention=retention)


def split(dialect: Dialect = "googlesql", mode: PartitionMode = "IMMUTABLE_KEY_RANGE", **more: Any) -> Scenario:
    """`left` splits into `west` and `east` at 20, and `right` continues; in commit order the singers are 1 to 8."""
    left: list[Event] = [change(at(5), 1), change(at(10), 2), change(at(20) - 1, 4)]
    if mode == "IMMUTABLE_KEY_RANGE":
        left += children_records(at(20), west=("left",), east=("left",))
        end = at(20)
    else:
        left += [PartitionStart(at(20), f"{n:08d}", (token,)) for n, token in enumerate(("west", "east"), 100)]
        left.append(PartitionEnd(at(20), "00000102", "left"))
        end = at(20) + 1
    return stream(
        partition("left", 0, left, end=end),
        partition("right", 0, [change(at(12), 3), change(at(30), 8)]),
        partition("west", 20, [change(at(20), 5), change(at(27), 7)], parents=("left",)),
        partition("east", 20, [change(at(20) + 1, 6)], parents=("left",)),
        mode=mode,
        dialect=dialect,
        **more,
    )


def merge() -> Scenario:
    """`a` and `b` merge into `both` at 20, and `rest` is a child of `b`; in commit order the singers are 1 to 9."""
    b = [*_changes(range(2, 7)), change(at(20) - 1, 7), *children_records(at(20), both=("a", "b"), rest=("b",))]
    return stream(
        partition("a", 0, [change(at(4), 1), *children_records(at(20), both=("a", "b"))], end=at(20)),
        partition("b", 0, b, end=at(20)),
        partition("both", 20, [change(at(20), 8), change(at(25), 9)], parents=("a", "b")),
        partition("rest", 20, [], parents=("b",)),
    )


def merge_of_strangers() -> Scenario:
    """`p` splits at 10 and `q` at 15, then one child of each merges into `both` at 20; singers 1 to 9 in order."""
    together = children_records(at(20), both=("p2", "q2"))
    return stream(
        partition("p", 0, [change(at(1), 1), *children_records(at(10), p1=("p",), p2=("p",))], end=at(10)),
        partition("q", 0, [*_changes(range(2, 6)), *children_records(at(15), q1=("q",), q2=("q",))], end=at(15)),
        partition("p1", 10, [], parents=("p",)),
        partition("p2", 10, [change(at(16), 6), *together], end=at(20), parents=("p",)),
        partition("q1", 15, [], parents=("q",)),
        partition("q2", 15, [change(at(17), 7), *together], end=at(20), parents=("q",)),
        partition("both", 20, [change(at(20), 8), change(at(25), 9)], parents=("p2", "q2")),
    )


def moved(
    instant: int, token: str, *, sources: tuple[str, ...] = (), destinations: tuple[str, ...] = ()
) -> PartitionEvent:
    """Returns a record of keys that move into a partition, or out of it."""
    return PartitionEvent(instant, "00000050", token, sources, destinations)


def _changes(singers: Iterable[int]) -> list[Event]:
    return [change(at(3 + singer), singer) for singer in singers]
