"""Follows the change stream's ``retention_period``, which may be altered while it is read.

What is left of it, and the alarm that it runs out, go by it: of a period that was shortened they would say too much.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from connector.core.health.states import RetentionPeriod
from connector.daemon.states.daemon import Lifecycle
from connector.errors import SpannerCdcError
from connector.telemetry.metrics import ReaderMetrics

_INTERVAL = 60.0
"""Seconds between two looks."""


async def follow_retention(
    life: Lifecycle, metrics: ReaderMetrics, request: Callable[[], Awaitable[RetentionPeriod | None]]
) -> None:
    """Requests the period each minute until it is cancelled.

    Args:
        life: records it.
        metrics: of the daemon.
        request: requests the period; None if it is not known now.
    """
    while True:
        await asyncio.sleep(_INTERVAL)
        # The queries meet Spanner's errors, too; a period in an unknown form must not end this for good.
        with suppress(SpannerCdcError, ValueError):
            if (period := await request()) is not None:
                await life.retains(period)
                metrics.retention = life.record.retention.period
