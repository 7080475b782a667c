"""The progress of something that takes longer than a few seconds: a line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self, TextIO

from connector.log import Log, draw

_BAR = 20
"""Characters of the bar."""

REDRAW = 0.5
"""Seconds between two drawings."""

LINE_INTERVAL = 10.0
"""Seconds between two lines of a log, by default."""


class Progress:
    """Reports how far something is, as often as people can read it; it may be called for each row.

    On a terminal one line is drawn again and again, and is removed at the end. Elsewhere a line is logged at intervals,
    the first one after the first interval, so that what is done at once is not mentioned.

    Args:
        log: where lines are logged.
        what: what is done, as the lines' message.
        screen: the terminal, or None.
        total: how much there is to do, or None where that is not known.
        interval: seconds between two lines.
        clock: seconds.
    """

    def __init__(
        self,
        log: Log,
        what: str,
        screen: TextIO | None,
        total: float | None = None,
        *,
        interval: float = LINE_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._what = what
        self._screen = screen
        self._total = total
        self._interval = interval if screen is None else REDRAW
        self._clock = clock
        self._started = self._shown = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if self._screen is not None:
            draw(self._screen, "")

    def show(self, done: float, *, total: float | None = None, **fields: object) -> None:
        """It is this far; shown if the last time is long enough ago.

        Args:
            done: of ``total``.
            total: how much there is to do, where that has changed.
            fields: counts and names, never a row's values.
        """
        now = self._clock()
        self._total = self._total if total is None else total
        if now - self._shown < self._interval:
            return
        self._shown = now
        share = min(1.0, done / self._total) if self._total else None
        left = (now - self._started) * (1 - share) / share if share else None
        if self._screen is not None:
            draw(self._screen, _drawn(self._what, share, left, fields))
        else:
            known = {} if share is None else {"percent": round(100 * share, 1)}
            more = {} if left is None else {"seconds_left": round(left)}
            self._log.info(self._what, **known, **fields, **more)


def bar(share: float | None) -> str:
    """A bar for a share of 1; empty if the share is not known."""
    full = int(_BAR * (share or 0))
    return f"[{'#' * full}{'-' * (_BAR - full)}]"


def _drawn(what: str, share: float | None, left: float | None, fields: dict[str, object]) -> str:
    """The line of a terminal."""
    counts = "  ".join(
        f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}" for name, value in fields.items()
    )
    if share is None:
        return f"{what}  {counts}"
    rest = "" if left is None else f"  {timedelta(seconds=round(left))} left"
    return f"{what} {bar(share)} {share:.0%}  {counts}{rest}"
