"""The versions of rows, computed from all events at once in plain Python: what destinations are compared with. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

Row = dict[str, object]


@dataclass(frozen=True)
class Event:
    """A change of a row, or a row of a backfill; ``values`` has the columns that it names.

    Attributes:
        at: the commit timestamp, Unix nanoseconds.
        kind: INSERT, UPDATE or DELETE.
        sequence: the record sequence.
        was_read: whether it is a row of a backfill.
    """

    key: int
    at: int
    kind: str
    values: Mapping[str, object]
    sequence: int = 0
    was_read: bool = False

    @property
    def number(self) -> str:
        return f"{self.at:016X}/{self.sequence:016X}/{0:016X}"


@dataclass(frozen=True)
class Version:
    """A version of a row.

    Attributes:
        values: those of all columns.
        captured: the columns that are known, if not all are.
        start, end: change sequence numbers.
    """

    key: int
    values: Row
    captured: tuple[str, ...] | None
    kind: str
    start: str
    end: str | None = None


def versions_of(events: Iterable[Event], columns: Sequence[str]) -> list[Version]:
    """The versions in the order of their keys and of time."""
    found: list[Version] = []
    by_key = sorted(events, key=lambda event: (event.key, event.number, event.kind))
    for _, of_key in groupby(by_key, lambda event: event.key):
        found += _of_key(of_key, columns)
    return found


def _of_key(events: Iterable[Event], columns: Sequence[str]) -> list[Version]:
    found: list[Version] = []
    state: Row | None = None
    for _, of_commit in groupby(events, lambda event: event.at):
        changes = list(of_commit)
        before = state
        for event in changes:
            if event.kind == "DELETE":
                state = None
            elif event.kind == "INSERT":
                state = {name: event.values.get(name) for name in columns}
            else:
                state = {**(state or {}), **event.values}
        kind = changes[-1].kind
        if kind == "INSERT" and state == before and all(event.was_read for event in changes):
            continue
        number = changes[-1].number
        if before is not None:
            found[-1] = replace(found[-1], end=number)
        if state is not None:
            captured = None if len(state) == len(columns) else tuple(name for name in columns if name in state)
            values = {name: state.get(name) for name in columns}
            found.append(Version(changes[-1].key, values, captured, kind, number))
    return found
