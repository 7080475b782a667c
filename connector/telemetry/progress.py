"""Logs the progress of a reader every ten seconds."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from connector.core.timestamps import SECOND, format_rfc3339
from connector.log import Log
from connector.telemetry.metrics import ReaderMetrics

INTERVAL = 10.0
"""Seconds between two lines."""

_log = Log(__name__)


@asynccontextmanager
async def reporting(metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Logs the progress while the context is open, and once more at its end."""
    task = asyncio.create_task(_report_on(metrics), name="progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        _report(metrics)


async def _report_on(metrics: ReaderMetrics) -> None:
    while True:
        await asyncio.sleep(INTERVAL)
        _report(metrics)


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
