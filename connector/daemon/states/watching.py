"""The daemon's alarms: each is logged and kept as an event when it begins, and logged when it ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from connector.daemon.states.daemon import Lifecycle
from connector.log import Log
from connector.spool.reading import Spool
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

INTERVAL = 10.0
"""Seconds between two looks."""

_log = Log(__name__)


@asynccontextmanager
async def watching(life: Lifecycle, spool: Spool, metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Raises alarms while the context is open, whether the daemon reads or is paused.

    Args:
        life: the daemon's states, which keep the events.
        spool: its spool.
        metrics: of the daemon.
    """
    task = asyncio.create_task(_watch(life, ConsumerStates(spool), metrics), name="alarms")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _watch(life: Lifecycle, consumers: ConsumerStates, metrics: ReaderMetrics) -> None:
    while True:
        await in_thread(consumers.read)
        started, ended = metrics.alarms.changes(raised(metrics, consumers), time.time_ns())
        for alarm in started:
            write = _log.error if alarm.severity == "ERROR" else _log.warning
            write(alarm.message, action="alarm_raised", alarm=alarm.name, hint=alarm.hint)
            await life.report(alarm.name, alarm.message, severity=alarm.severity, hint=alarm.hint)
        for alarm in ended:
            _log.info("an alarm has ended", alarm=alarm.name)
        if started or ended:
            await life.breathe()  # `status` reads it from the spool
        await asyncio.sleep(INTERVAL)
