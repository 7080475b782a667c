"""Versions of Delta whose files are removed, by the table's history. Pure.

VACUUM removes files that a commit has replaced longer ago than its retention. A version that was replaced so long
before a VACUUM is taken for removed, also where some of its files are still used: reading them all would tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_START = "VACUUM START"
_REPLACES_NOTHING = frozenset({_START, "VACUUM END", "ADD COLUMNS", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES"})

_MARGIN = 60_000
"""Milliseconds by which a commit may have replaced files before its own time."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A commit of a table's history.

    Attributes:
        version: its version.
        at: its time, Unix milliseconds.
        operation: as DESCRIBE HISTORY names it.
        parameters: of the operation.
    """

    version: int
    at: int
    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def replaces_files(self) -> bool:
        """True if it may have replaced files of the version before it."""
        appends = self.operation == "WRITE" and self.parameters.get("mode") == "Append"
        return not appends and self.operation not in _REPLACES_NOTHING

    @property
    def retention(self) -> int:
        """The time for which a VACUUM kept replaced files, in milliseconds."""
        return int(
            self.parameters.get("specifiedRetentionMillis") or self.parameters.get("defaultRetentionMillis") or 0
        )


def is_vacuumed(later: Sequence[DeltaCommit]) -> bool:
    """True if files of a version may be removed.

    Args:
        later: every commit after the version.
    """
    replaced_at: int | None = None
    for commit in sorted(later, key=lambda one: one.version):
        if commit.operation == _START and replaced_at is not None:
            if replaced_at - _MARGIN <= commit.at - commit.retention:
                return True
        elif replaced_at is None and commit.replaces_files:
            replaced_at = commit.at
    return False
