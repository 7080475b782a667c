"""The sinks' reports and the states of backfills, in the daemon's metrics, whether it reads or is paused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from connector.daemon.backfill_report import BackfillStates
from connector.errors import SpoolError
from connector.spool.reading import Spool
from connector.spool.sink_report import reports_of
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import first_of, in_background

INTERVAL = 1.0
"""Seconds between two looks."""

_LOOKS_OF_A_BUCKET = 5
"""Times as long between two looks in a bucket, where each one costs."""

_PATIENCE = 2.0
"""Seconds for which the daemon's start waits for the first look."""


@asynccontextmanager
async def collecting(spool: Spool, metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Copies them into the metrics while the context is open; a report that cannot be read ends no daemon.

    Args:
        spool: the daemon's.
        metrics: of the daemon; it has what is in the spool once the context is entered, unless reading that takes long.
    """
    filled = BackfillStates(spool)

    async def keep_collecting() -> None:
        pause = INTERVAL * (_LOOKS_OF_A_BUCKET if spool.storage.rewrite_interval else 1)
        while True:
            with suppress(SpoolError):
                reports = await asyncio.to_thread(reports_of, spool)
                metrics.backfills = await asyncio.to_thread(filled.current)
                metrics.reported(reports, of_backfills=sum(one["dead_letters"] for one in metrics.backfills))
            looked.set()
            await asyncio.sleep(pause)

    looked = asyncio.Event()
    async with in_background(keep_collecting(), name="sink reports"):
        await first_of(looked.wait(), within=_PATIENCE)
        yield
