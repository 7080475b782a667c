"""Which epochs a micro-batch takes, and how they are shared out among tasks. Pure.

A micro-batch takes whole groups: single epochs, or, for files that hold a minute, all epochs of a minute of commit
time. What an epoch weighs comes from its manifest, or from a summary of many.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from connector.core.timestamps import MINUTE
from connector.spool.summaries import EpochSummary

SMALLEST_TASK = 1024 * 1024
"""Bytes below which a second task costs more than it saves."""


@dataclass(frozen=True, slots=True)
class EpochWeight:
    """What an epoch holds; ``minute`` counts since 1970, None if the epoch is empty.

    ``schemas`` is what the epochs have in common after which all tables have the same schemas. ``bytes`` is of its
    segments; ``tables`` are those that have rows; ``oldest`` is the first commit timestamp, 0 if the epoch is empty;
    ``summary`` is what was known of it, None where it was made by hand.
    """

    epoch: int
    minute: int | None
    rows: int
    bytes: int
    files: int
    schemas: str = ""
    tables: frozenset[str] = frozenset()
    oldest: int = 0
    summary: EpochSummary | None = None

    @classmethod
    def of(cls, epoch: EpochSummary, admits: Callable[[str], bool]) -> "EpochWeight":
        """The weight of an epoch, of whose tables only those that ``admits`` says count."""
        oldest = epoch.first_commit_timestamp
        minute = None if oldest is None else oldest // MINUTE
        tables = frozenset(table for table in epoch.tables if admits(table))
        rows = sum(epoch.tables[table] for table in tables)
        return cls(epoch.epoch, minute, rows, epoch.size, epoch.files, epoch.schemas, tables, oldest or 0, epoch)


@dataclass(frozen=True, slots=True)
class Group:
    """Epochs up to ``last`` that a micro-batch takes together or not at all."""

    last: int
    rows: int
    bytes: int
    files: int


def by_epoch(epochs: Iterable[EpochWeight]) -> Iterator[Group]:
    """Each epoch by itself."""
    for epoch in epochs:
        yield Group(epoch.epoch, epoch.rows, epoch.bytes, epoch.files)


def up_to_change(epochs: Iterable[EpochWeight]) -> Iterator[EpochWeight]:
    """The epochs up to the first in which a table's schema is another than in those before it."""
    schemas: str | None = None
    for epoch in epochs:
        if epoch.rows:
            if schemas not in (None, epoch.schemas):
                return
            schemas = epoch.schemas
        yield epoch


def by_minute(epochs: Iterable[EpochWeight], watermark: int, *, final: bool) -> Iterator[Group]:
    """The epochs of each minute that ``watermark`` has passed.

    Empty epochs go with the minute before them. The last minute is held back until the watermark, which is
    inclusive, has reached its last nanosecond, or the stream is at its end (``final``).
    """
    held: list[EpochWeight] = []
    minute: int | None = None
    for epoch in epochs:
        if epoch.minute is not None and minute is not None and epoch.minute != minute:
            yield _together(held)
            held = []
        held.append(epoch)
        if epoch.minute is not None:
            minute = epoch.minute
    if held and (minute is None or final or watermark >= (minute + 1) * MINUTE - 1):
        yield _together(held)


def _together(epochs: Sequence[EpochWeight]) -> Group:
    return Group(
        epochs[-1].epoch,
        sum(epoch.rows for epoch in epochs),
        sum(epoch.bytes for epoch in epochs),
        sum(epoch.files for epoch in epochs),
    )


def admitted(groups: Iterable[Group], limit: ReadLimit) -> int | None:
    """The last epoch that a micro-batch takes: as many whole groups as the limit allows, and at least one.

    None if there is no group.
    """
    match limit:
        case ReadMaxRows(max_rows=most):
            weigh = _rows
        case ReadMaxBytes(max_bytes=most):
            weigh = _bytes
        case ReadMaxFiles(max_files=most):
            weigh = _files
        case _:
            return max((group.last for group in groups), default=None)
    last: int | None = None
    total = 0
    for group in groups:
        total += weigh(group)
        if last is not None and total > most:
            break
        last = group.last
    return last


def _rows(group: Group) -> int:
    return group.rows


def _bytes(group: Group) -> int:
    return group.bytes


def _files(group: Group) -> int:
    return group.files


def packed(sizes: Sequence[int], most: int) -> list[range]:
    """Cuts a sequence into runs of at most ``most`` each, or of one that is larger, as long as they get."""
    edges: list[int] = []
    total = 0
    for index, size in enumerate(sizes):
        if not edges or total + size > most:
            edges.append(index)
            total = 0
        total += size
    return [range(first, last) for first, last in pairwise([*edges, len(sizes)])]


def tasks_of(size: int, cores: int) -> int:
    """How many tasks so many bytes are worth."""
    return max(1, min(cores, size // SMALLEST_TASK))


def runs(sizes: Sequence[int], cores: int) -> list[range]:
    """Cuts a sequence into runs of about equal size: at most one a core, and none that is not worth a task."""
    total = sum(sizes)
    most = tasks_of(total, cores)
    edges = [0]
    passed = 0
    for index, size in enumerate(sizes):
        if index > edges[-1] and len(edges) < most and (passed + size / 2) * most >= len(edges) * total:
            edges.append(index)
        passed += size
    edges.append(len(sizes))
    return [range(first, last) for first, last in pairwise(edges) if first < last]
