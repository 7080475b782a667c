"""Closes a window: the cut at its end, from the reports of all shares. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector.core.partitions import CutPartition
from connector.core.windows.window import ShareReport, Window


@dataclass(frozen=True, slots=True)
class Closed:
    """What remains when every share of a window has been read."""

    cut: tuple[CutPartition, ...]
    """The cut at the window's ``high``, in order of start and token; true only without orphans."""
    orphans: tuple[CutPartition, ...]
    """Partitions that no share followed, though they start in the window: see :func:`closed`."""
    weights: Mapping[str, int]
    """Bytes of each partition of the cut in this window, by token; none means 0."""


def closed(window: Window, reports: Iterable[ShareReport]) -> Closed:
    """The cut at the window's end.

    A partition that every share declined, because its least parent was never discovered by anyone, is an orphan: a
    reader of everything reads it. Where there are orphans nothing of the window may be sealed. It is read again with
    ``deal((*cut at low, *orphans), ...)``: they are parts of that cut.
    """
    ...
