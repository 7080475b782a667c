"""The record of ``source.tables``, and the tables that it has excluded for a while: their changes are not in the spool.

``excluded.json`` is written by the reader's process before it seals the first epoch with other patterns than before.
Without that file all tables were kept, or it is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from connector.core.filters import RecordFilter
from connector.spool.manifest import Document, DocumentPart, Timestamp
from connector.spool.reading import Spool, to_json

_PATH = "excluded.json"


class _Chosen(DocumentPart):
    """The patterns that hold for what was committed after a timestamp."""

    after: Timestamp
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class _Record(Document):
    """``excluded.json``, in order."""

    chosen: tuple[_Chosen, ...]


@dataclass(frozen=True, slots=True)
class ExcludedRange:
    """Commit timestamps, after one up to another, of which the spool has no changes of some tables."""

    after: int
    up_to: int
    kept: RecordFilter

    def lacks(self, table: str) -> bool:
        """True if the table was excluded."""
        return not self.kept.keeps(table)


def keep_patterns(spool: Spool, include: Sequence[str], exclude: Sequence[str], watermark: int) -> None:
    """Records the patterns that hold after a watermark, if they differ from those before. The caller holds the lock.

    Raises:
        SpoolError: the record is corrupt, of a newer version, or cannot be read or written.
    """
    now = _Chosen(after=watermark, include=tuple(include), exclude=tuple(exclude))
    recorded = _recorded(spool)
    before = tuple(one for one in recorded if one.after < watermark)  # nothing was sealed with later ones
    last = before[-1] if before else _Chosen(after=0)
    is_same = (now.include, now.exclude) == (last.include, last.exclude)
    known = before if is_same else (*before, now)
    if known != recorded:
        spool.storage.replace(_PATH, to_json(_Record(chosen=known)))


def excluded_ranges(spool: Spool) -> list[ExcludedRange]:
    """The ranges that have ended, in order: what a table that is excluded now lacks is of no account.

    Raises:
        SpoolError: the record is corrupt, of a newer version, or cannot be read.
    """
    return [
        ExcludedRange(one.after, following.after, RecordFilter(one.include, one.exclude))
        for one, following in pairwise(_recorded(spool))
    ]


def _recorded(spool: Spool) -> tuple[_Chosen, ...]:
    found = spool.find(_PATH, _Record, "it is not a valid record of source.tables")
    return found.chosen if found else ()
