"""The progress of a reader: a line on a terminal, in a log one line a minute."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TextIO

from connector.core.timestamps import SECOND, format_rfc3339
from connector.log import Log, draw
from connector.progress import REDRAW, bar
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_background

INTERVAL = 60.0
"""Seconds between two lines of a log."""

_CAUGHT_UP = 30 * SECOND
"""The lag, in nanoseconds, below which a reader has caught up: a bar would show nothing."""

_log = Log(__name__)


@asynccontextmanager
async def reporting(
    metrics: ReaderMetrics, screen: TextIO | None = None, *, end: int | None = None
) -> AsyncIterator[None]:
    """Reports the progress while the context is open, and logs it once more at its end.

    Args:
        metrics: of the reader.
        screen: a terminal, on which a line is drawn instead of those of the log: with a bar, as long as the reader is
            catching up.
        end: the reader's end in nanoseconds since 1970, or None.
    """
    try:
        async with in_background(_report_on(metrics, screen, end), name="progress"):
            yield
    finally:
        if screen is not None:
            draw(screen, "")
        _report(metrics)


async def _report_on(metrics: ReaderMetrics, screen: TextIO | None, end: int | None) -> None:
    first = 0
    while True:
        await asyncio.sleep(INTERVAL if screen is None else REDRAW)
        if screen is None:
            _report(metrics)
            continue
        first = first or metrics.watermark
        draw(screen, status_line(metrics, first, end, time.time_ns()))


def status_line(metrics: ReaderMetrics, first: int, end: int | None, now: int) -> str:
    """The line of a terminal.

    Args:
        metrics: of the reader.
        first: the first watermark that was known; 0 if none is.
        end: the reader's end, or None.
        now: all in nanoseconds since 1970.
    """
    counts = f"{metrics.sealed_mods:,} mods  {metrics.epochs:,} epochs  {metrics.partitions} partitions"
    if not metrics.watermark:
        return f"reading  {counts}"
    target = now if end is None else min(end, now)
    left = target - metrics.watermark
    lag = max(now - metrics.watermark, 0) / SECOND
    behind = f"{lag:.1f} s behind" if lag < 60 else f"{timedelta(seconds=round(lag))} behind"
    if left < _CAUGHT_UP or target <= first:
        return f"reading  {behind}  {counts}"
    share = (metrics.watermark - first) / (target - first)
    return f"catching up {bar(share)} {share:.0%}  {behind}  {counts}"


def _report(metrics: ReaderMetrics) -> None:
    _log.info(
        "progress",
        watermark=format_rfc3339(metrics.watermark) if metrics.watermark else "none",
        behind_s=round(max(time.time_ns() - metrics.watermark, 0) / SECOND, 1) if metrics.watermark else "unknown",
        mods=metrics.sealed_mods,
        epochs=metrics.epochs,
        partitions=metrics.partitions,
        held_mb=round(metrics.held_bytes / 1e6, 1),
        **metrics.churn,
    )
