r"""Records what a workload committed, as values in memory and as lines of a file.

The file has a line before each commit, {"attempt": n, "mods": [...]}, and one after it,
{"committed": n, "commit_timestamp_ns": t}. So after the workload's process is killed, at most the last transaction is
in doubt, and the file says which one: it was committed entirely or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

from emulator.workload.values import Value

ModType = Literal["INSERT", "UPDATE", "DELETE"]
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class PlannedMod:
    """A change of one row, in Spanner's JSON encoding throughout.

    `new_values` are the written columns outside the key: what NEW_VALUES and OLD_AND_NEW_VALUES report. `row` and
    `old_row` are all columns outside the key after and before the change, empty if there is no row: what NEW_ROW and
    old values report.
    """

    table: str
    mod_type: ModType
    keys: Row
    new_values: Row
    row: Row
    old_row: Row


@dataclass(frozen=True, slots=True)
class CommittedMod:
    """A committed change of one row: the fields of `PlannedMod`, and when it was committed.

    `commit_timestamp_ns` is in nanoseconds since 1970, `transaction` counts the workload's commits from 0.
    """

    commit_timestamp_ns: int
    transaction: int
    table: str
    mod_type: ModType
    keys: Row
    new_values: Row
    row: Row
    old_row: Row


def committed(mod: PlannedMod, transaction: int, commit_timestamp_ns: int) -> CommittedMod:
    """Returns a planned mod as committed at that timestamp."""
    return CommittedMod(
        commit_timestamp_ns, transaction, mod.table, mod.mod_type, mod.keys, mod.new_values, mod.row, mod.old_row
    )


class Journal:
    """Appends to a journal file, flushing each line; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", encoding="utf-8", buffering=1) if path else None

    def attempt(self, transaction: int, mods: Iterable[PlannedMod]) -> None:
        """Writes what is about to be committed."""
        if self._file:
            self._line({"attempt": transaction, "mods": [asdict(mod) for mod in mods]})

    def committed(self, transaction: int, commit_timestamp_ns: int) -> None:
        """Writes that it was committed."""
        self._line({"committed": transaction, "commit_timestamp_ns": commit_timestamp_ns})

    def close(self) -> None:
        """Closes the file."""
        if self._file:
            self._file.close()

    def _line(self, content: object) -> None:
        if self._file:
            self._file.write(json.dumps(content, separators=(",", ":")) + "\n")


def read_journal(path: Path) -> tuple[list[CommittedMod], list[PlannedMod]]:
    """Reads a journal file: the committed mods in commit order, and the mods of the transaction in doubt, if any.

    A last line that was cut off by a kill is ignored. Raises ValueError for anything else that is not a journal.
    """
    done: list[CommittedMod] = []
    pending: list[PlannedMod] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        entry = json.loads(line)
        if "attempt" in entry:
            pending = [PlannedMod(**mod) for mod in entry["mods"]]
        else:
            done += [committed(mod, entry["committed"], entry["commit_timestamp_ns"]) for mod in pending]
            pending = []
    return done, pending
