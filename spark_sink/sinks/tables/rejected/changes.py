"""The decision which changes of a table are dead letters, and which are written. Pure.

A change is rejected if one of its values cannot be cast. What follows depends on the mode of the tables.

- ``append``: the rejected change alone is a dead letter.
- ``merge``: an UPDATE that lacks columns cannot be merged without the changes before it. So it follows the rejected
  change of its row, until an INSERT or a DELETE of the row. That one is written, and is a dead letter, too: a marker,
  by which a replay knows that the earlier dead letters of the row are of no use. A later change with all columns is
  written: a replay compares change sequence numbers.
- ``history``: every later change of the row follows, and so do the other changes of the same commit timestamp, because
  these are one version.

The decision depends on the changes and on the open dead letters alone, so that it is the same for a micro-batch that is
repeated.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

FOLLOWS = "an earlier change of its row is a dead letter"
"""The reason of a change that follows a rejected one."""

MARKS = "it is written, and earlier changes of its row are dead letters"
"""The reason of a marker."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row.

    Attributes:
        uuid: of its event.
        epoch: its epoch.
        sequence: its change sequence number.
        key: the key of its row, as text; empty if its payload is damaged.
        kind: INSERT, UPDATE or DELETE.
        is_whole: true if it needs no earlier change of its row.
        why: the reason why it is rejected; empty if it is not.
    """

    uuid: str
    epoch: int
    sequence: str
    key: str
    kind: str
    is_whole: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class OpenDeadLetter:
    """A dead letter that is not replayed yet; it has the attributes of its change, and its reason."""

    uuid: str
    epoch: int
    sequence: str
    key: str
    reason: str

    @property
    def is_marker(self) -> bool:
        """True if its change is written."""
        return self.reason == MARKS


@dataclass(frozen=True, slots=True)
class Division:
    """The dead letters among the changes of a table.

    Attributes:
        dead_letters: the changes that are dead letters, in order, each with the reason.
        left_out: the uuids of those that are not written.
    """

    dead_letters: Sequence[tuple[Change, str]]
    left_out: frozenset[str]


def divided(mode: str, changes: Iterable[Change], opened: Iterable[OpenDeadLetter]) -> Division:
    """Decides which changes of a table are dead letters.

    Args:
        mode: of the tables.
        changes: the rejected ones, and all others of the rows of these and of ``opened``.
        opened: the open dead letters of the table. Those of the changes themselves do not count: they are of an
            attempt that was not completed.
    """
    known = {change.uuid: change for change in changes}
    by_key: dict[str, list[Change | OpenDeadLetter]] = defaultdict(list)
    for change in known.values():
        by_key[change.key].append(change)
    for one in opened:
        if one.uuid not in known:
            by_key[one.key].append(one)
    found: list[tuple[Change, str]] = []
    for of_key in by_key.values():
        found += _DIVIDED[mode](sorted(of_key, key=lambda one: one.sequence))
    found.sort(key=lambda one: one[0].sequence)
    return Division(found, frozenset(change.uuid for change, why in found if why != MARKS))


def superseded(dead_letters: Collection[OpenDeadLetter]) -> frozenset[str]:
    """The uuids of dead letters that a replay does not write: markers, and what is older than one of its row."""
    newest: dict[str, str] = {}
    for one in dead_letters:
        if one.is_marker:
            newest[one.key] = max(one.sequence, newest.get(one.key, ""))
    return frozenset(one.uuid for one in dead_letters if one.sequence <= newest.get(one.key, ""))


def _rejected(of_key: Sequence[Change | OpenDeadLetter]) -> list[tuple[Change, str]]:
    return [(one, one.why) for one in of_key if isinstance(one, Change) and one.why]


def _merged(of_key: Sequence[Change | OpenDeadLetter]) -> list[tuple[Change, str]]:
    found: list[tuple[Change, str]] = []
    waits = False
    for one in of_key:
        if isinstance(one, OpenDeadLetter):
            waits = not one.is_marker
        elif one.why:
            found.append((one, one.why))
            waits = True
        elif waits and one.kind != "UPDATE":
            found.append((one, MARKS))
            waits = False
        elif waits and not one.is_whole:
            found.append((one, FOLLOWS))
    return found


def _versioned(of_key: Sequence[Change | OpenDeadLetter]) -> list[tuple[Change, str]]:
    first = min((commit_of(one.sequence) for one in of_key if isinstance(one, OpenDeadLetter) or one.why), default="")
    return [
        (one, one.why or FOLLOWS)
        for one in of_key
        if first and isinstance(one, Change) and commit_of(one.sequence) >= first
    ]


def commit_of(sequence: str) -> str:
    """The commit timestamp in a change sequence number."""
    return sequence.partition("/")[0]


_DIVIDED: Mapping[str, Callable[[Sequence[Change | OpenDeadLetter]], list[tuple[Change, str]]]] = {
    "append": _rejected,
    "merge": _merged,
    "history": _versioned,
}
