"""Makes the document of ``/api/status`` from the metrics, and judges whether the process is alive and ready."""

import platform
import time
from dataclasses import asdict
from typing import TypeVar

from connector.config.loading import Config
from connector.core.health.alarms import Alarm, alarms, summary
from connector.core.health.hints import with_paths
from connector.core.health.states import StreamState
from connector.core.timestamps import SECOND, format_rfc3339
from connector.telemetry import document
from connector.telemetry.consumers import ConsumerState, ConsumerStates, delivered
from connector.telemetry.document import UNSET, Status
from connector.telemetry.exporter import figures, lag, runway
from connector.telemetry.health import facts_of
from connector.telemetry.history import RecentHistory
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.objects import error_node, objects_of
from connector.version import documentation, installed_version

_Number = TypeVar("_Number", int, float)

STUCK_AFTER = 30.0
"""Seconds without a turn of the reader's event loop after which the process counts as stuck."""
READY_WITHIN = 300.0
"""Seconds that the sealed watermark may trail the clock while the reader counts as ready."""


class Reporter:
    """Reports on a reader.

    Args:
        config: its configuration.
        metrics: its metrics.
        consumers: those of its spool.

    Attributes:
        turned: the monotonic clock's time, in seconds, of the last turn of the reader's event loop.
        history: what is remembered.
    """

    def __init__(self, config: Config, metrics: ReaderMetrics, consumers: ConsumerStates) -> None:
        self._config = config
        self._metrics = metrics
        self._consumers = consumers
        self.turned = time.monotonic()
        self.history = RecentHistory()

    def stuck(self) -> str:
        """The reason why the process counts as stuck; empty if it does not."""
        silent = time.monotonic() - self.turned
        return f"the reader's event loop has not run for {silent:.0f} s" if silent > STUCK_AFTER else ""

    def unready(self) -> str:
        """The reason why the reader is not ready; empty if it is."""
        if reason := self.stuck():
            return reason
        if errors := [alarm for alarm in alarms(facts_of(self._metrics, self._consumers)) if alarm.severity == "ERROR"]:
            return errors[0].message
        state = self._metrics.state().state
        if state is not StreamState.RUNNING:
            return f"the state is {state.value}"
        behind = lag(self._metrics.spooled)
        if behind is None:
            return "nothing is sealed yet"
        return f"what is sealed is {behind:.0f} s behind" if behind > READY_WITHIN else ""

    def status(self) -> Status:
        """The document of now."""
        metrics, config, now = self._metrics, self._config, time.time_ns()
        churn = dict(metrics.churn)
        graph = self.history.graph()
        states = self.history.states
        return Status(
            version=1,
            time=format_rfc3339(now),
            build=document.Build(installed_version(), platform.python_version(), documentation() or UNSET),
            source=config.source.name.model_dump(),
            state=self._state(),
            health=self._health(),
            watermark=document.Watermark(
                watermark=_timestamp(metrics.watermark),
                lag_seconds=_or_unset(lag(metrics.watermark)),
                sealed=_timestamp(metrics.spooled),
                sealed_lag_seconds=_or_unset(lag(metrics.spooled)),
            ),
            partitions=document.Partitions(
                alive=metrics.partitions,
                churn=churn,
                splits=churn.get("splits", 0),
                merges=churn.get("merges", 0),
                moves=churn.get("moves", 0),
                graph=graph,
                reading=states["reading"] if states else UNSET,
                waiting=states["waiting"] if states else UNSET,
            ),
            history=list(self.history.points),
            tables=self.history.tables(metrics),
            mods=dict(metrics.mods_by_type),
            epochs=document.Epochs(metrics.epochs, metrics.sealed_mods, metrics.newest_epoch or UNSET),
            buffer=document.Buffer(metrics.held_bytes),
            spool=document.SpoolNode(
                config.spool.path, metrics.max_bytes or config.spool.max_bytes, _or_unset(metrics.spool_bytes)
            ),
            consumers=[_consumer(one, metrics) for one in self._consumers.known],
            sink=document.SinkNode(
                config.sink.type,
                metrics.sink_restarts,
                _or_unset(metrics.of_reports(metrics.dead_letters_left)),
                dict(metrics.stopped_tables),
            ),
            queries=document.Queries(metrics.queries, dict(metrics.retries_by_code)),
            errors=[error_node(event) for event in metrics.errors()],
            backfills=list(metrics.backfills),
            objects=objects_of(
                {*metrics.watched, *filter(metrics.keeps, metrics.tables.copy())},
                metrics.backfills,
                metrics.stopped_tables,
                metrics.errors(),
                metrics.state().state,
                is_complete=metrics.state().is_complete,
            ),
            figures=figures(metrics),
            retention=self._retention(),
            window=dict(metrics.window) or UNSET,
            window_in_progress=dict(metrics.window_in_progress) or UNSET,
        )

    def _state(self) -> document.StreamStateNode:
        record = self._metrics.state()
        since = format_rfc3339(record.since) if record.since else UNSET
        reason, hint = self._named(record.reason), self._named(record.hint)
        return document.StreamStateNode(record.state.value, since, reason or UNSET, hint or UNSET)

    def _named(self, text: str) -> str:
        """A text whose commands name the configuration and the spool that this process has."""
        return with_paths(text, config=self._config.file, spool=self._config.spool.path)

    def _health(self) -> document.Health:
        stuck, unready = self.stuck(), self.unready()
        facts = facts_of(self._metrics, self._consumers)
        raised = alarms(facts)
        return document.Health(
            healthy=not stuck and not any(alarm.severity == "ERROR" for alarm in raised),
            ready=not unready,
            summary=stuck or self._named(summary(facts, raised)),
            alarms=[self._alarm(alarm) for alarm in raised],
        )

    def _alarm(self, alarm: Alarm) -> dict[str, str]:
        node = {name: self._named(value) for name, value in asdict(alarm).items() if value}
        since = self._metrics.alarms.since(alarm)
        return node | ({"since": format_rfc3339(since)} if since else {})

    def _retention(self) -> "document.Retention | document.UnsetType":
        if not self._metrics.retention:
            return UNSET
        is_default = self._metrics.state().retention.is_default
        seconds, left = self._metrics.retention / SECOND, runway(self._metrics)
        if left is None:
            return document.Retention(seconds, is_default)
        return document.Retention(seconds, is_default, left, round(1 - left / seconds, 6))


def _consumer(one: ConsumerState, metrics: ReaderMetrics) -> document.ConsumerNode:
    node = document.ConsumerNode(
        one.name, one.epoch, max(metrics.newest_epoch - one.epoch, 0), _or_unset(lag(delivered(one, metrics)))
    )
    node.destination = one.destination or UNSET
    if one.incomplete:
        node.incomplete_before = format_rfc3339(max(one.incomplete.values()))
        node.tables_incomplete_before = sorted(one.incomplete)
    sink = metrics.deliveries.sinks.get(one.name)
    if sink is not None:
        node.batches, node.events = sink.report.batches, sink.report.events
        node.delivered_at = _timestamp(sink.report.delivered_at)
    cut = metrics.cuts.get(one.name)
    if cut is not None:
        node.complete_up_to, node.incomplete_tables = format_rfc3339(cut.timestamp), cut.incomplete
    at, unmaintained = metrics.maintenance.get(one.name, (0, {}))
    node.maintained_at, node.unmaintained_tables = _timestamp(at), unmaintained or UNSET
    return node


def _timestamp(timestamp: int) -> "str | document.UnsetType":
    return format_rfc3339(timestamp) if timestamp else UNSET


def _or_unset(value: _Number | None) -> "_Number | document.UnsetType":
    return UNSET if value is None else value
