"""The metrics of a reader, as Prometheus reads them. What is unknown is absent, never 0."""

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from connector.config.sections import SourceConfig
from connector.core.health.states import StreamState
from connector.core.timestamps import SECOND
from connector.telemetry.consumers import ConsumerStates, delivered
from connector.telemetry.health import raised, retries
from connector.telemetry.metrics import ReaderMetrics
from connector.version import installed_version

_GAUGES: dict[str, tuple[str, Callable[[ReaderMetrics], float | None]]] = {
    "watermark_lag_seconds": ("How far the watermark trails the clock", lambda m: lag(m.watermark)),
    "sealed_lag_seconds": ("How long ago all that was committed was sealed", lambda m: lag(m.spooled)),
    "partitions": ("Partitions that have not finished", lambda m: m.partitions),
    "waiting_partitions": ("Partitions that wait for memory or for the spool", lambda m: m.waiting_partitions),
    "held_bytes": ("Bytes of records held in memory", lambda m: m.held_bytes),
    "spool_bytes": ("Bytes of all files of the epochs in the spool", lambda m: m.spool_bytes),
    "newest_epoch": ("The newest epoch of the spool", lambda m: m.newest_epoch or None),
    "retention_runway_seconds": (
        "How long until Spanner no longer keeps what is to be read next",
        lambda m: runway(m),
    ),
    "stopped_tables": ("Tables that the sink has stopped", lambda m: m.of_reports(len(m.stopped_tables))),
    "shares": ("Shares of the last window that Spark's executors read; 0 if they do not read", lambda m: m.shares),
    "window_span_seconds": ("Commit time that the last window spans", lambda m: m.window_span / SECOND),
    "window_seconds": ("How long reading and sealing the last window took", lambda m: m.window_seconds),
    "slowest_share_seconds": ("How long its slowest share took", lambda m: m.slowest_share_seconds),
    "workers": ("Worker processes that read; 0 if the reader is one process", lambda m: m.workers),
}
_COUNTERS: dict[str, tuple[str, Callable[[ReaderMetrics], float | None]]] = {
    "queries": ("Partition queries sent", lambda m: m.queries),
    "retries": ("Queries that broke without progress and were retried", lambda m: m.retries),
    "heartbeats": ("Heartbeat records", lambda m: m.heartbeats),
    "child_partitions": ("Partitions announced", lambda m: m.child_partitions),
    "data_change_records": ("Data change records received", lambda m: m.records),
    "epochs": ("Epochs sealed", lambda m: m.epochs),
    "worker_restarts": ("Workers that died and were replaced", lambda m: m.worker_restarts),
    "sink_restarts": ("Sink processes that ended with an error of Spark and were restarted", lambda m: m.sink_restarts),
    "standstills": (
        "Times that the watermark was stalled while Spanner's clock advanced, and queries were restarted",
        lambda m: m.standstills,
    ),
    "late_records": (
        "Records that were returned after Spanner had proved that everything up to their timestamp was returned",
        lambda m: m.late_records,
    ),
    "dead_letters": ("Rows that became dead letters since the spool began", lambda m: m.of_reports(m.dead_letters)),
    "incomplete_rows": (
        "Rows that were delivered without columns that Spanner no longer keeps (source.complete_rows)",
        lambda m: m.of_reports(m.incomplete_rows),
    ),
    "incomplete_transactions": ("Transactions with records missing", lambda m: m.incomplete_transactions),
}

_BATCHES = "Micro-batches with events that a sink has delivered since it first ran on the spool"
_EVENTS = "Events that a sink has delivered since it first ran on the spool"
_BYTES = "Bytes of memory of the records that a sink has delivered, of epochs that this process has sealed"


def lag(timestamp: int) -> float | None:
    """Seconds that a timestamp trails the clock; None if it is not known."""
    return max(time.time_ns() - timestamp, 0) / SECOND if timestamp else None


def runway(metrics: ReaderMetrics) -> float | None:
    """Seconds until Spanner no longer keeps what follows the sealed watermark; negative if it is gone."""
    behind = lag(metrics.sealed_watermark)
    return metrics.retention / SECOND - behind if metrics.retention and behind is not None else None


def figures(metrics: ReaderMetrics) -> dict[str, float]:
    """Every gauge and counter without labels that is known, by its name."""
    found = {name: value(metrics) for name, (_, value) in (_GAUGES | _COUNTERS).items()}
    return {name: value for name, value in found.items() if value is not None}


def registry_of(metrics: ReaderMetrics, consumers: ConsumerStates, source: SourceConfig) -> CollectorRegistry:
    """A registry with the metrics of the reader, of the consumers of its spool, and of the process.

    Args:
        metrics: of the reader.
        consumers: of its spool.
        source: the change stream, which one metric names, so that those of several daemons differ.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(metrics, consumers, source))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


class _Collector:
    def __init__(self, metrics: ReaderMetrics, consumers: ConsumerStates, source: SourceConfig) -> None:
        self._metrics = metrics
        self._consumers = consumers
        self._stream = {
            "project": source.project,
            "spanner_instance": source.instance,  # Prometheus has a label instance of its own
            "database": source.database,
            "change_stream": source.change_stream,
            **{f"label_{name}": value for name, value in source.labels.items()},
        }

    def collect(self) -> Iterable[Metric]:
        known = figures(self._metrics)
        for name, (text, _) in _GAUGES.items():
            if name in known:
                yield GaugeMetricFamily(f"spanner_cdc_{name}", text, value=known[name])
        for name, (text, _) in _COUNTERS.items():
            if name in known:
                yield CounterMetricFamily(f"spanner_cdc_{name}", text, value=known[name])
        yield _counts("mods", "Mods sealed", "mod_type", self._metrics.mods_by_type)
        text = "Splits, merges and moves crossed; starts, ends and moves in the mutable mode"
        yield _counts("partition_churn", text, "kind", self._metrics.churn)
        text = "Queries that broke without progress and were retried, by the gRPC code of the error"
        yield _counts("query_retries", text, "code", self._metrics.retries_by_code)
        yield from self._of_tables()
        yield from self._of_consumers()
        histogram = self._metrics.seal_latency
        if histogram.counts.any():
            yield HistogramMetricFamily(
                "spanner_cdc_commit_to_seal_seconds",
                "From a mod's commit in Spanner until its epoch was sealed",
                buckets=histogram.cumulated(),
                sum_value=histogram.total,
            )
        current = self._metrics.state().state
        states = {one.value: float(one is current) for one in StreamState}
        yield _gauges("state", "1 for the state of the stream, 0 for others", "state", states)
        alarms = GaugeMetricFamily("spanner_cdc_alarms", "1 for each alarm that is raised", labels=["name", "severity"])
        for alarm in {alarm.name: alarm for alarm in reversed(raised(self._metrics, self._consumers))}.values():
            alarms.add_metric([alarm.name, alarm.severity], 1)
        yield alarms
        text, now = "How long something has failed that is retried", time.time_ns()
        failing = GaugeMetricFamily("spanner_cdc_failing_seconds", text, labels=["what", "code"])
        for retry in {retry.what: retry for retry in retries(self._metrics, self._consumers, now)}.values():
            failing.add_metric([retry.what, retry.cause.code], (now - retry.since) / SECOND)
        yield failing
        stream = GaugeMetricFamily("spanner_cdc_stream_info", "The change stream that is read", labels=[*self._stream])
        stream.add_metric([*self._stream.values()], 1)
        yield stream
        build = GaugeMetricFamily("spanner_cdc_build_info", "This program", labels=["version", "python"])
        build.add_metric([installed_version(), platform.python_version()], 1)
        yield build

    def _of_tables(self) -> Iterable[Metric]:
        tables = self._metrics.tables.copy()
        text = "Data change records sealed, by table"
        yield _counts("table_records", text, "table", {name: count.records for name, count in tables.items()})
        yield _counts("table_mods", "Mods sealed, by table", "table", {n: count.mods for n, count in tables.items()})
        text = "Bytes of memory of the records sealed, by table"
        yield _counts("table_bytes", text, "table", {name: count.bytes for name, count in tables.items()})

    def _of_consumers(self) -> Iterable[Metric]:
        known, newest, cuts = self._consumers.known, self._metrics.newest_epoch, self._metrics.cuts.copy()
        behind = {one.name: max(newest - one.epoch, 0) for one in known}
        yield _gauges("consumer_lag_epochs", "Epochs that a consumer has not passed", "consumer", behind)
        seconds = {one.name: trails for one in known if (trails := lag(delivered(one, self._metrics))) is not None}
        text = "How long ago all that was committed was delivered"
        yield _gauges("consumer_lag_seconds", text, "consumer", seconds)
        complete = {name: cut.timestamp / SECOND for name, cut in cuts.items()}
        text = "Commit timestamp up to which all tables of a sink are complete, in seconds since 1970"
        yield _gauges("sink_complete_timestamp_seconds", text, "consumer", complete)
        incomplete = {name: len(cut.incomplete) for name, cut in cuts.items()}
        text = "Tables that are not complete at the newest published cut of a sink"
        yield _gauges("sink_incomplete_tables", text, "consumer", incomplete)
        sinks = self._metrics.deliveries.sinks.copy()
        yield _counts("sink_batches", _BATCHES, "consumer", {name: sink.report.batches for name, sink in sinks.items()})
        yield _counts("sink_events", _EVENTS, "consumer", {name: sink.report.events for name, sink in sinks.items()})
        yield _counts("sink_bytes", _BYTES, "consumer", {name: sink.bytes for name, sink in sinks.items()})
        text = "From a mod's commit in Spanner until a sink had delivered it"
        latency = HistogramMetricFamily("spanner_cdc_commit_to_sink_seconds", text, labels=["consumer"])
        for name, sink in sinks.items():
            if sink.latency.counts.any():
                latency.add_metric([name], sink.latency.cumulated(), sink.latency.total)
        yield latency


def _labelled(
    kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, text: str, label: str, values: Mapping[str, float]
) -> Metric:
    family = kind(f"spanner_cdc_{name}", text, labels=[label])
    for value, number in {**values}.items():  # a copy, because the reader's thread changes some of them
        family.add_metric([value], number)
    return family


_gauges, _counts = partial(_labelled, GaugeMetricFamily), partial(_labelled, CounterMetricFamily)
