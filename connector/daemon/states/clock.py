"""Compares this machine's clock with Spanner's: lags, alarms and what is left of the retention go by the former."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from connector.core.health.alarms import CLOCK_OFF
from connector.daemon.states.daemon import Lifecycle
from connector.errors import SpannerCdcError

_INTERVAL = 10.0
"""Seconds between two looks."""


async def compare_clocks(life: Lifecycle, request: Callable[[], Awaitable[int]], watermark: Callable[[], int]) -> None:
    """Compares the clocks until it is cancelled: at first, and while the watermark is far from this machine's.

    Args:
        life: records how far this machine's clock is ahead.
        request: requests Spanner's clock, in nanoseconds since 1970.
        watermark: returns the reader's watermark.
    """
    is_due = True
    while True:
        if is_due:
            before = time.time_ns()
            with suppress(SpannerCdcError):  # which the queries meet, too
                spanner = await request()
                ahead = (before + time.time_ns()) // 2 - spanner
                await life.compared(ahead if abs(ahead) >= CLOCK_OFF else 0)
        await asyncio.sleep(_INTERVAL)
        is_due = life.record.clock_ahead != 0 or abs(time.time_ns() - watermark()) >= CLOCK_OFF
