"""The daemon's alarms: each is logged and kept as an event when it begins, and logged when it ends."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from connector.commands.spool_sink import SpoolSink
from connector.commands.states.daemon import Lifecycle
from connector.commands.threads import finished_in_thread
from connector.core.health.alarms import AlarmLog, ConsumerProgress, Facts, alarms
from connector.core.timestamps import parse
from connector.errors import SpoolError
from connector.log import Log
from connector.spool.consumers import Consumer, consumers
from connector.telemetry.metrics import ReaderMetrics

INTERVAL = 10.0
"""Seconds between two looks."""

_log = Log(__name__)


@asynccontextmanager
async def watching(life: Lifecycle, sink: SpoolSink, metrics: ReaderMetrics, max_bytes: int) -> AsyncIterator[None]:
    """Raises alarms while the context is open.

    Args:
        life: the daemon's states, which keep the events.
        sink: seals epochs.
        metrics: of the daemon.
        max_bytes: of the spool.
    """
    task = asyncio.create_task(_watch(life, sink, metrics, max_bytes), name="alarms")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _watch(life: Lifecycle, sink: SpoolSink, metrics: ReaderMetrics, max_bytes: int) -> None:
    log = AlarmLog()
    while True:
        with suppress(SpoolError):  # whoever else reads the spool reports it
            known = await finished_in_thread(functools.partial(consumers, sink.spool))
            facts = Facts(
                time.time_ns(),
                life.record,
                sink.watermark,
                _progress(known, sink.writer.epoch, sink.watermark),
                metrics.spool_bytes,
                max_bytes,
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
        await asyncio.sleep(INTERVAL)


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
