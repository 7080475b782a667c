"""The alarms of a reader, as its status server reports them."""

import time

from connector.core.health.alarms import Alarm, ConsumerProgress, Facts, alarms
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.metrics import ReaderMetrics


def raised(metrics: ReaderMetrics, consumers: ConsumerStates) -> list[Alarm]:
    """The alarms of now, the errors first."""
    return alarms(facts_of(metrics, consumers))


def facts_of(metrics: ReaderMetrics, consumers: ConsumerStates) -> Facts:
    """What they are made of."""
    watermark = metrics.sealed_watermark or metrics.start
    return Facts(
        time.time_ns(),
        metrics.state(),
        watermark,
        [
            ConsumerProgress(one.name, one.watermark or watermark, max(metrics.newest_epoch - one.epoch, 0))
            for one in consumers.known
        ],
        metrics.spool_bytes,
        metrics.max_bytes,
        sorted(metrics.stopped_tables),
        metrics.dead_letters,
    )
