"""Closes a window: the cut at its end, from the reports of all shares. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from connector.core.partitions import CutPartition
from connector.core.records import function_of, partition_name
from connector.core.timestamps import format_rfc3339
from connector.core.windows.window import ShareReport, Window
from connector.errors import StreamError


@dataclass(frozen=True, slots=True)
class Closed:
    """The state that remains when every share of a window has been read."""

    cut: tuple[CutPartition, ...]
    """The cut at the window's ``high``, in order of start and token; it may be used only if there are no orphans."""
    orphans: tuple[CutPartition, ...]
    """The first partitions that start in the window and that no share has read: see :func:`closed`."""
    weights: Mapping[str, int]
    """Bytes of each partition of the cut in this window, by token; none means 0."""
    emptied: Mapping[str, int]
    """The latest end of a partition of each read function that had some in the window and has none in the cut."""


def closed(window: Window, reports: Iterable[ShareReport]) -> Closed:
    """The cut at the window's end.

    A partition that every share declined, because its least parent was never discovered by anyone, is an orphan. A
    reader of the whole cut reads it. Where there are orphans, nothing of the window may be sealed: the window is read
    again with ``deal((*cut_at_low, *orphans), ...)``, with those of all times before, until there are none.

    Args:
        window: what was read.
        reports: one of each share, in any order.

    Raises:
        StreamError: the reports contradict each other, because Spanner has omitted the end of a partition. Nothing of
            the window may be sealed; reading it again is safe.
    """
    ordered = sorted(reports, key=lambda report: report.share)
    cut: dict[str, CutPartition] = {}
    weights: dict[str, int] = {}
    for report in ordered:
        for at in report.cut:
            if at.token not in cut:
                cut[at.token] = at
                weights[at.token] = report.bytes_of.get(at.token, 0)
    by_start = sorted(cut.values(), key=lambda at: (at.start_timestamp, at.token))
    return Closed(
        tuple(by_start), _orphans(window, ordered, cut, _read(window, ordered)), weights, _emptied(ordered, cut)
    )


def _emptied(reports: Iterable[ShareReport], cut: Iterable[str]) -> Mapping[str, int]:
    alive = {function_of(token) for token in cut}
    ends: dict[str, int] = {}
    for report in reports:
        for function, end in report.ends.items():
            if function not in alive:
                ends[function] = max(end, ends.get(function, 0))
    return ends


def _read(window: Window, reports: Sequence[ShareReport]) -> AbstractSet[str]:
    """The tokens that were read, each by one share only, unless the mode has it otherwise."""
    read: dict[str, int] = {}
    for report in reports:
        for token in (*(at.token for at in report.cut), *report.followed, *report.finished):
            if read.setdefault(token, report.share) != report.share and not report.mutable:
                why = f"{partition_name(token)} follows a partition that should have ended before"
                raise _contradiction(window, why)
    return read.keys()


def _orphans(
    window: Window, reports: Sequence[ShareReport], cut: Mapping[str, CutPartition], read: AbstractSet[str]
) -> tuple[CutPartition, ...]:
    orphans: dict[str, CutPartition] = {}
    for report in reports:
        for child, least in zip(report.declined, report.least_parents, strict=True):
            if child.token in read:
                continue
            if least in cut:
                why = f"{partition_name(child.token)} follows {partition_name(least)}, which has not ended"
                raise _contradiction(window, why)
            orphans[child.token] = child
    # Later ones may have a parent that descends from the first, and that follows them once the first is read.
    first = min((at.start_timestamp for at in orphans.values()), default=0)
    return tuple(sorted((at for at in orphans.values() if at.start_timestamp == first), key=lambda at: at.token))


def _contradiction(window: Window, what: str) -> StreamError:
    return StreamError(
        f"the partitions between {format_rfc3339(window.low)} and {format_rfc3339(window.high)} contradict each other:"
        f" {what}",
        hint="Nothing of it was delivered. Start the reader again: it reads all of it again.",
    )
