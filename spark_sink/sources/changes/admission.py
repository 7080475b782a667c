"""Decides which epochs a micro-batch takes, and distributes them among tasks. Pure.

A micro-batch takes whole groups: single epochs or, where a file holds a minute, all epochs of a minute of commit time.
The weight of an epoch comes from its manifest or from a summary of manifests.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from connector.core.timestamps import MINUTE
from connector.spool.summaries import EpochSummary
from spark_sink.sources.changes.read_limits import ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

SMALLEST_TASK = 1024 * 1024
"""Size in bytes below which a further task costs more than it saves."""


@dataclass(frozen=True, slots=True)
class EpochWeight:
    """The size and content of an epoch, as far as admission needs them.

    Attributes:
        epoch: the number of the epoch.
        minute: the minute of its commit timestamps, counted from 1970; None if the epoch is empty.
        rows: the number of its rows.
        bytes: the size of its segments.
        files: the number of its segments.
        schemas: equal for epochs after which all tables have the same schemas.
        tables: the tables that have rows.
        oldest: the first commit timestamp; 0 if the epoch is empty.
        summary: the summary that the weight was computed from, if any.
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
        """The weight of an epoch, counting only the tables that ``admits`` accepts."""
        oldest = epoch.first_commit_timestamp
        minute = None if oldest is None else oldest // MINUTE
        tables = frozenset(table for table in epoch.tables if admits(table))
        rows = sum(epoch.tables[table] for table in tables)
        return cls(epoch.epoch, minute, rows, epoch.size, epoch.files, epoch.schemas, tables, oldest or 0, epoch)


@dataclass(frozen=True, slots=True)
class Group:
    """The epochs up to ``last`` that a micro-batch takes together or not at all."""

    last: int
    rows: int
    bytes: int
    files: int


def by_epoch(epochs: Iterable[EpochWeight]) -> Iterator[Group]:
    """A group for each epoch."""
    for epoch in epochs:
        yield Group(epoch.epoch, epoch.rows, epoch.bytes, epoch.files)


def up_to_change(epochs: Iterable[EpochWeight]) -> Iterator[EpochWeight]:
    """The epochs before the first one in which the schema of a table has changed."""
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
    """The last epoch of the next micro-batch: as many whole groups as the limit allows, and at least one.

    None if there is no group.
    """
    match limit:
        case ReadMaxRows(max_rows=most):
            weigh = attrgetter("rows")
        case ReadMaxBytes(max_bytes=most):
            weigh = attrgetter("bytes")
        case ReadMaxFiles(max_files=most):
            weigh = attrgetter("files")
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


def packed(sizes: Sequence[int], most: int) -> list[range]:
    """Divides a sequence into the longest runs of at most ``most`` each; a larger item is a run by itself."""
    edges: list[int] = []
    total = 0
    for index, size in enumerate(sizes):
        if not edges or total + size > most:
            edges.append(index)
            total = 0
        total += size
    return [range(first, last) for first, last in pairwise([*edges, len(sizes)])]


def tasks_of(size: int, cores: int) -> int:
    """The number of tasks for this many bytes: at most one for each core."""
    return max(1, min(cores, size // SMALLEST_TASK))


def runs(sizes: Sequence[int], cores: int) -> list[range]:
    """Divides a sequence into runs of about equal size, as many as :func:`tasks_of` allows."""
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
