"""Serves the status page ``/`` as JSON and ``/metrics`` for Prometheus, on loopback unless configured otherwise."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

import orjson
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from connector.config import StatusConfig
from connector.core.timestamps import SECOND, format_rfc3339
from connector.log import Log
from connector.telemetry.metrics import ReaderMetrics

_log = Log(__name__)

_GAUGES: dict[str, tuple[str, Callable[[ReaderMetrics], float]]] = {
    "watermark_lag_seconds": ("How far the watermark trails the clock", lambda m: _lag(m.watermark)),
    "sealed_lag_seconds": ("How far what is sealed trails the clock", lambda m: _lag(m.sealed_watermark)),
    "partitions": ("Partitions that have not finished", lambda m: m.partitions),
    "waiting_partitions": ("Partitions that wait for memory or for the spool", lambda m: m.waiting_partitions),
    "held_bytes": ("Bytes of records held in memory", lambda m: m.held_bytes),
    "spool_bytes": ("Bytes of all files of the epochs in the spool", lambda m: m.spool_bytes),
    "stopped_tables": ("Tables that the sink has stopped", lambda m: len(m.stopped_tables)),
    "shares": ("Shares of the last window that Spark's executors read; 0 if they do not read", lambda m: m.shares),
    "window_span_seconds": ("Commit time that the last window spans", lambda m: m.window_span / SECOND),
    "window_seconds": ("How long reading and sealing the last window took", lambda m: m.window_seconds),
    "slowest_share_seconds": ("How long its slowest share took", lambda m: m.slowest_share_seconds),
    "workers": ("Worker processes that read; 0 if the reader is one process", lambda m: m.workers),
}
_COUNTERS: dict[str, tuple[str, Callable[[ReaderMetrics], float]]] = {
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
    "dead_letters": ("Rows that became dead letters since the spool began", lambda m: m.dead_letters),
    "incomplete_rows": (
        "Rows that were delivered without columns that Spanner no longer keeps (source.complete_rows)",
        lambda m: m.incomplete_rows,
    ),
    "incomplete_transactions": ("Transactions with records missing", lambda m: m.incomplete_transactions),
}


def _lag(timestamp: int) -> float:
    return max(time.time_ns() - timestamp, 0) / SECOND if timestamp else 0.0


class _Collector:
    def __init__(self, metrics: ReaderMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        for name, (text, value) in _GAUGES.items():
            yield GaugeMetricFamily(f"spanner_cdc_{name}", text, value=value(self._metrics))
        for name, (text, value) in _COUNTERS.items():
            yield CounterMetricFamily(f"spanner_cdc_{name}", text, value=value(self._metrics))
        mods = CounterMetricFamily("spanner_cdc_mods", "Mods sealed", labels=["mod_type"])
        for mod_type, count in dict(self._metrics.mods_by_type).items():
            mods.add_metric([mod_type], count)
        yield mods
        churn = CounterMetricFamily(
            "spanner_cdc_partition_churn",
            "Splits, merges and moves crossed; starts, ends and moves in the mutable mode",
            labels=["kind"],
        )
        for kind, count in dict(self._metrics.churn).items():
            churn.add_metric([kind], count)
        yield churn


def snapshot(metrics: ReaderMetrics) -> dict[str, object]:
    """The content of the status page."""
    node: dict[str, object] = {
        "watermark": format_rfc3339(metrics.watermark) if metrics.watermark else None,
        "sealed_watermark": format_rfc3339(metrics.sealed_watermark) if metrics.sealed_watermark else None,
        "mods": dict(metrics.mods_by_type),
        "partition_churn": dict(metrics.churn),
        "why_stopped": dict(metrics.stopped_tables),
        "backfills": list(metrics.backfills),
        "window": metrics.window or None,
        "window_in_progress": metrics.window_in_progress or None,
    }
    for table in (_GAUGES, _COUNTERS):
        node.update((name, value(metrics)) for name, (_, value) in table.items())
    return node


class _Server(ThreadingMixIn, WSGIServer):
    """Uses a thread for each connection, so that one that stays silent, as those of browsers do, delays no other."""

    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    timeout = 10
    """Seconds that a connection may stay silent."""

    def log_message(self, *args: object) -> None:
        """Requests are not logged."""


@asynccontextmanager
async def serving(config: StatusConfig, metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Serves the status while the context is open; without a free port it only logs a warning."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    prometheus = make_wsgi_app(registry)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/metrics":
            body: Iterable[bytes] = prometheus(environ, start_response)
            return body
        start_response("200 OK", [("Content-Type", "application/json")])
        return [orjson.dumps(snapshot(metrics), option=orjson.OPT_INDENT_2)]

    try:
        server = make_server(config.host, config.port, application, _Server, _QuietHandler)
    except OSError as error:
        _log.warning(
            "no status page is served: choose another status.port",
            host=config.host,
            port=config.port,
            reason=error.strerror or str(error),
        )
        yield
        return
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="status", daemon=True)
    thread.start()
    _log.info("status page", url=f"http://{config.host}:{server.server_port}/")
    try:
        yield
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
