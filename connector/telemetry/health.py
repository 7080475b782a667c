"""The alarms of a reader, as its status server reports them."""

import time

from connector.core.health.alarms import AHEAD, BEHIND, Alarm, ConsumerLag, Facts, Mended, alarms
from connector.core.health.retries import DAEMON, STORAGE, Retry, merged
from connector.core.health.states import WatermarkHolder
from connector.core.partitions.partition import PartitionState
from connector.core.records import partition_name
from connector.core.timestamps import SECOND
from connector.spool.lifecycle import late_stops
from connector.spool.storage.failing import FAILING
from connector.telemetry.consumers import ConsumerStates, delivered
from connector.telemetry.metrics import ReaderMetrics

_ABANDONED = 180 * SECOND
"""A bucket that has not been asked for so long after it failed is not retried any more: pauses are shorter."""


def raised(metrics: ReaderMetrics, consumers: ConsumerStates) -> list[Alarm]:
    """The alarms of now, the errors first."""
    return alarms(facts_of(metrics, consumers))


def facts_of(metrics: ReaderMetrics, consumers: ConsumerStates) -> Facts:
    """The facts from which the alarms are derived."""
    now, watermark = time.time_ns(), metrics.sealed_watermark or metrics.start
    return Facts(
        now,
        metrics.state(),
        watermark,
        [
            ConsumerLag(
                one.name,
                delivered(one, metrics),
                max(metrics.newest_epoch - one.epoch, 0),
                one.recorded,
                one.is_stray,
            )
            for one in consumers.known
        ],
        metrics.spool_bytes or 0,
        metrics.max_bytes,
        dict(metrics.stopped_tables),
        metrics.dead_letters_left,
        holder(metrics),
        Mended(metrics.standstills, metrics.standstill_at),
        Mended(metrics.sink_restarts, metrics.sink_restart_at, metrics.sink_restart_why),
        retries(metrics, consumers, now),
        metrics.failed_sinks,
        metrics.complete,
        metrics.kept_less,
        late_stops(metrics.errors()),
        consumers.refused,
        consumers.missing,
        consumers.unfinished,
    )


def retries(metrics: ReaderMetrics, consumers: ConsumerStates, now: int) -> list[Retry]:
    """The retries that have failed for long: of this process, of others, and of the manager that restarts it."""
    restarts = [retry for retry in metrics.state().retries if retry.what == DAEMON]
    return merged([*restarts, *own_retries(metrics, now), *consumers.retries])


def own_retries(metrics: ReaderMetrics, now: int) -> list[Retry]:
    """The retries of this process that have failed for long."""
    storage = [one for one in FAILING.lasting(now) if one.what == STORAGE and now - one.last < _ABANDONED]
    return [*metrics.failing.lasting(now), *storage]


def holder(metrics: ReaderMetrics) -> WatermarkHolder | None:
    """The partition that holds the watermark of a reader that is behind, if there are others."""
    if time.time_ns() - max(metrics.sealed_watermark or metrics.start, metrics.complete) <= BEHIND:
        return None
    alive = [one for one in metrics.graph() if one.state is not PartitionState.FINISHED]
    if len(alive) < 2:
        return None
    lowest = min(alive, key=lambda one: one.progress)
    ahead = sum(one.progress - lowest.progress >= AHEAD for one in alive)
    return WatermarkHolder(partition_name(lowest.token), lowest.progress, ahead)
