"""The daemon's alarms: each is logged and kept as an event when it begins, and logged when it ends."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from connector.commands.states.daemon import Lifecycle
from connector.commands.threads import finished_in_thread
from connector.core.health.alarms import AlarmLog, ConsumerProgress, Facts, alarms
from connector.core.timestamps import parse
from connector.errors import SpoolError
from connector.log import Log
from connector.spool.consumers import Consumer, consumers
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics

INTERVAL = 10.0
"""Seconds between two looks."""

_log = Log(__name__)


class Watch:
    """The alarms of a daemon, whatever its state: retention also runs out while it is paused.

    Args:
        life: the daemon's states, which keep the events.
        spool: its spool.
        metrics: of the daemon.

    Attributes:
        start: the watermark of a spool without epochs, nanoseconds since 1970; 0 while it is not known.
    """

    def __init__(self, life: Lifecycle, spool: Spool, metrics: ReaderMetrics) -> None:
        self._life = life
        self._spool = spool
        self._metrics = metrics
        self.start = 0

    async def run(self) -> None:
        """Raises alarms until it is cancelled."""
        log = AlarmLog()
        while True:
            with suppress(SpoolError):  # whoever else reads the spool reports it
                await self._look(log)
            await asyncio.sleep(INTERVAL)

    async def _look(self, log: AlarmLog) -> None:
        metrics, life = self._metrics, self._life
        known = await finished_in_thread(functools.partial(consumers, self._spool))
        watermark = metrics.sealed_watermark or self.start
        facts = Facts(
            time.time_ns(),
            life.record,
            watermark,
            _progress(known, metrics.newest_epoch, watermark),
            metrics.spool_bytes,
            metrics.max_bytes,
            sorted(metrics.stopped_tables),
            metrics.dead_letters,
        )
        started, ended = log.changes(alarms(facts))
        for alarm in started:
            write = _log.error if alarm.severity == "ERROR" else _log.warning
            write(alarm.message, alarm=alarm.name, hint=alarm.hint)
            await life.report(alarm.name, alarm.message, severity=alarm.severity, hint=alarm.hint)
        for alarm in ended:
            _log.info("an alarm has ended", alarm=alarm.name)


@asynccontextmanager
async def watching(life: Lifecycle, spool: Spool, metrics: ReaderMetrics) -> AsyncIterator[Watch]:
    """Raises alarms while the context is open; arguments as of :class:`Watch`."""
    watch = Watch(life, spool, metrics)
    task = asyncio.create_task(watch.run(), name="alarms")
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.wait({task})


def _progress(known: Sequence[Consumer], latest: int, watermark: int) -> list[ConsumerProgress]:
    """How far consumers are; an identity that is not known counts as the newest epoch's, which raises no alarm."""
    return [
        ConsumerProgress(
            one.consumer,
            parse(one.at.partition("/")[0]) if one.at and one.epoch < latest else watermark,
            max(latest - one.epoch, 0),
        )
        for one in known
    ]
