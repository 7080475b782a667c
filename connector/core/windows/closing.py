"""Closes a window: the cut at its end, from the reports of all shares. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector.core.partitions import CutPartition
from connector.core.records import partition_name
from connector.core.timestamps import format_rfc3339
from connector.core.windows.window import Share, ShareReport, Window
from connector.errors import StreamError


@dataclass(frozen=True, slots=True)
class Closed:
    """What remains when every share of a window has been read."""

    cut: tuple[CutPartition, ...]
    """The cut at the window's ``high``, in order of start and token; it may be used only if there are no orphans."""
    orphans: tuple[CutPartition, ...]
    """Partitions that start in the window and that nobody has read: see :func:`closed`."""
    weights: Mapping[str, int]
    """Bytes of each partition of the cut in this window, by token; none means 0."""


def closed(window: Window, shares: Iterable[Share], reports: Iterable[ShareReport], *, mutable: bool = False) -> Closed:
    """The cut at the window's end.

    A partition that every share declined, because its least parent was never discovered by anyone, is an orphan. A
    reader of the whole cut reads it. Where there are orphans, nothing of the window may be sealed: the window is read
    again with ``deal((*cut_at_low, *orphans), ...)``, until there are none.

    Args:
        window: what was read.
        shares: as they were dealt.
        reports: one of each share, in any order.
        mutable: whether the change stream is in the MUTABLE_KEY_RANGE mode, where two shares may read one partition.

    Raises:
        StreamError: the reports contradict each other, because Spanner has omitted the end of a partition. Nothing of
            the window may be sealed; reading it again is safe.
    """
    by_share = {report.share: report for report in sorted(reports, key=lambda report: report.share)}
    dealt = {at.token: share.number for share in shares for at in share.cut}
    assert by_share.keys() >= set(dealt.values()), "a share has no report"
    if not mutable:
        _check_read_once(window, dealt, by_share.values())
    cut: dict[str, CutPartition] = {}
    weights: dict[str, int] = {}
    for report in by_share.values():
        for at in report.cut:
            if cut.setdefault(at.token, at) is at:
                weights[at.token] = report.bytes_of.get(at.token, 0)
    ordered = sorted(cut.values(), key=lambda at: (at.start_timestamp, at.token))
    return Closed(tuple(ordered), _orphans(window, dealt.keys(), by_share.values(), cut), weights)


def _orphans(
    window: Window, dealt: Iterable[str], reports: Iterable[ShareReport], cut: Mapping[str, CutPartition]
) -> tuple[CutPartition, ...]:
    followed = {token for report in reports for token in report.followed}.union(dealt)
    orphans: dict[str, CutPartition] = {}
    for report in reports:
        for child, least in zip(report.declined, report.least_parents, strict=True):
            if child.token in followed:
                continue
            if least in cut:
                raise _contradiction(
                    window, f"{partition_name(least)} has not ended, but {partition_name(child.token)} follows it"
                )
            orphans[child.token] = child
    return tuple(sorted(orphans.values(), key=lambda at: (at.start_timestamp, at.token)))


def _check_read_once(window: Window, dealt: Mapping[str, int], reports: Iterable[ShareReport]) -> None:
    times = Counter(dealt.keys())
    for report in reports:
        times.update(report.followed)
    for token, count in times.items():
        if count > 1:
            raise _contradiction(window, f"{partition_name(token)} was announced by a partition that should have ended")


def _contradiction(window: Window, what: str) -> StreamError:
    return StreamError(
        f"the partitions between {format_rfc3339(window.low)} and {format_rfc3339(window.high)} contradict each other:"
        f" {what}",
        hint="Nothing of it was delivered. Start the reader again: it reads all of it again.",
    )
