"""The status server answers what it promises, to those who may ask."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from connector.config.loading import Config
from connector.core.health.retries import Cause
from connector.core.health.states import StateRecord, StreamState
from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.timestamps import SECOND
from connector.spool.lifecycle import ErrorEvent
from connector.spool.manifest import SourceName
from connector.spool.storage.failing import FAILING
from connector.telemetry import server
from connector.telemetry.health import own_retries
from connector.telemetry.metrics import ReaderMetrics, TableCount

SOURCE = SourceName(project="p", instance="ii", database="d", change_stream="s").model_dump()
TOKEN = "1234567890abcdefghij1234567890"


class Client:
    """Asks a status server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)

    async def ask(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, Mapping[str, str]]:
        async with self._session.request(method, self._url + path, headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers.copy()


Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Serve:
    @asynccontextmanager
    async def served(metrics: ReaderMetrics, **status: object) -> AsyncIterator[Client]:
        node = {"source": SOURCE, "spool": {"path": str(tmp_path / "spool")}, "status": {"port": 0, **status}}
        with caplog.at_level(logging.INFO):
            async with server.serving(Config.model_validate(node), metrics), aiohttp.ClientSession() as session:
                fields = [getattr(one, "fields", {}) for one in caplog.records if one.message == "status page"]
                yield Client(session, fields[-1]["url"].rstrip("/"))

    return served


def running(behind: float = 2.0) -> ReaderMetrics:
    metrics = ReaderMetrics()
    metrics.state = lambda: StateRecord(StreamState.RUNNING, 1)
    metrics.watermark = metrics.sealed_watermark = time.time_ns() - int(behind * SECOND)
    return metrics


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_unknown_paths_are_404_and_other_methods_405_with_the_security_headers(serve: Serve) -> None:
    async def test() -> None:
        async with serve(running()) as client:
            assert (await client.ask("/nothing"))[0] == 404
            code, _, headers = await client.ask("/api/status", method="POST")
            assert code == 405
            for _, _, found in [await client.ask("/"), await client.ask("/nothing")]:
                assert found["X-Content-Type-Options"] == "nosniff"
                assert found["Cache-Control"] == "no-store"
                assert "default-src 'none'" in found["Content-Security-Policy"]
            assert "Server" not in headers

    run(test())


def test_lags_are_absent_until_they_are_known(serve: Serve) -> None:
    async def test() -> None:
        async with serve(ReaderMetrics()) as client:
            status = json.loads((await client.ask("/api/status"))[1])
            metrics = (await client.ask("/metrics"))[1]
        assert status["watermark"] == {}
        assert "retention" not in status
        assert "watermark_lag_seconds" not in status["figures"]
        assert "watermark_lag_seconds" not in metrics
        assert "sealed_lag_seconds" not in metrics
        assert "runway" not in metrics
        assert "commit_to_seal" not in metrics
        assert 'spanner_cdc_state{state="Starting"} 1.0' in metrics

    run(test())


def test_it_is_ready_only_while_it_runs_and_what_is_sealed_is_fresh(serve: Serve) -> None:
    async def verdict(metrics: ReaderMetrics) -> tuple[int, str, int]:
        async with serve(metrics) as client:
            code, text, _ = await client.ask("/readyz")
            return code, text, (await client.ask("/healthz"))[0]

    async def test() -> None:
        assert await verdict(running()) == (200, "ok\n", 200)
        assert await verdict(ReaderMetrics()) == (503, "the state is Starting\n", 200)
        code, text, health = await verdict(running(behind=1000))
        assert (code, health) == (503, 200)
        assert "behind" in text

    run(test())


def test_it_is_neither_healthy_nor_ready_while_something_is_retried_for_long(serve: Serve) -> None:
    async def test() -> None:
        metrics, cause = running(), Cause("Spanner does not answer at h:1", "UNAVAILABLE", "refused")
        metrics.failing.failed("spanner", cause, time.time_ns() - 60 * SECOND, part="t")
        async with serve(metrics) as client:
            code, text, _ = await client.ask("/readyz")
            status = json.loads((await client.ask("/api/status"))[1])
            figures = (await client.ask("/metrics"))[1]
        assert code == 503
        assert text.startswith("Spanner does not answer at h:1 (UNAVAILABLE: refused), since ")
        assert not status["health"]["healthy"]
        assert status["health"]["summary"] == text.strip()
        assert 'spanner_cdc_alarms{name="spanner_failing",severity="ERROR"} 1.0' in figures
        assert 'spanner_cdc_failing_seconds{code="UNAVAILABLE",what="spanner"} 6' in figures

    run(test())


def test_a_reader_whose_event_loop_is_stuck_is_unhealthy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serve(running()) as client:
            monkeypatch.setattr("connector.telemetry.status.STUCK_AFTER", -1.0)
            for path in ("/healthz", "/readyz"):
                code, text, _ = await client.ask(path)
                assert code == 503
                assert "event loop" in text

    run(test())


def test_with_a_token_only_the_page_and_the_health_are_open(serve: Serve) -> None:
    async def test() -> None:
        async with serve(running(), token="secret-ü") as client:
            for path in ("/metrics", "/api/status", "/nothing"):
                assert (await client.ask(path))[0] == 401
                assert (await client.ask(path, headers={"Authorization": "Bearer wrong"}))[0] == 401
            allowed = {"Authorization": "Bearer secret-ü"}
            assert (await client.ask("/api/status", headers=allowed))[0] == 200
            assert [(await client.ask(path))[0] for path in ("/", "/healthz", "/readyz")] == [200, 200, 200]

    run(test())


def test_a_probe_without_a_token_learns_that_it_is_not_ready_and_no_reason(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with serve(running(), token="secret") as client:
            monkeypatch.setattr("connector.telemetry.status.STUCK_AFTER", -1.0)
            code, text, _ = await client.ask("/readyz")
            assert (code, text) == (503, "not ready; the reason needs status.token\n")
            code, text, _ = await client.ask("/readyz", headers={"Authorization": "Bearer secret"})
            assert (code, "event loop" in text) == (503, True)

    run(test())


def test_on_loopback_a_name_that_resolves_to_it_is_refused(serve: Serve) -> None:
    async def test() -> None:
        async with serve(running()) as client:
            for host in ("evil.example", "127.0.0.1.evil.example:80", ""):
                assert (await client.ask("/api/status", headers={"Host": host}))[0] == 403
            for host in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
                assert (await client.ask("/api/status", headers={"Host": host}))[0] == 200

    run(test())


def test_a_host_that_is_not_loopback_without_a_token_is_a_warning(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serve(running(), host="0.0.0.0"):
            assert "status.token" in caplog.text

    run(test())


def test_connections_are_bounded_and_those_that_are_idle_for_longest_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST", 3)

    async def test() -> None:
        async with serve(running()) as client:
            opened = []
            for _ in range(5):
                opened.append(await asyncio.open_connection(client.host, client.port))
                assert (await client.ask("/healthz"))[0] == 200, "a probe is answered beside silent connections"
            for reader, _ in opened[:3]:
                assert await ended(reader)
            for _, writer in opened:
                writer.close()

    run(test())


def test_a_burst_of_connections_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST", 3)

    async def test() -> None:
        async with serve(running()) as client:
            opened = await asyncio.gather(*(asyncio.open_connection(client.host, client.port) for _ in range(40)))
            left = {asyncio.create_task(ended(reader)) for reader, _ in opened}
            while len(left) > 3:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for _, writer in opened:
                writer.close()
            await asyncio.gather(*left)

    run(test())


def test_a_connection_without_a_whole_request_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.0)

    async def test() -> None:
        async with serve(running()) as client:
            for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"):
                reader, writer = await asyncio.open_connection(client.host, client.port)
                writer.write(sent)
                assert await ended(reader)
                writer.close()

    run(test())


async def ended(reader: asyncio.StreamReader) -> bool:
    """True once the server has ended a connection without an answer."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_the_status_has_what_its_schema_requires_and_no_whole_token(serve: Serve) -> None:
    metrics = running()
    graph = PartitionGraph([CutPartition(TOKEN, metrics.watermark)], watermark=metrics.watermark)
    metrics.graph = lambda: list(graph)
    metrics.retention = 3600 * SECOND
    metrics.tables["Singers"] = TableCount(1, 2, 3)

    async def test() -> None:
        async with serve(metrics) as client:
            text = (await client.ask("/api/status"))[1]
            schema = json.loads((await client.ask("/api/status/schema"))[1])
        status = json.loads(text)
        of_status = schema["$defs"]["Status"]
        assert set(of_status["required"]) <= status.keys() <= of_status["properties"].keys()
        assert TOKEN not in text
        assert status["partitions"]["graph"][0]["state"] == "waiting"
        assert status["tables"] == [{"table": "Singers", "records": 1, "mods": 2, "bytes": 3}]
        assert 0 < status["retention"]["runway_seconds"] < 3600
        assert status["health"]["ready"]

    run(test())


def test_the_status_follows_a_configuration_that_is_reloaded(serve: Serve) -> None:
    metrics = running()
    metrics.tables |= {"Singers": TableCount(1, 2, 3), "Created": TableCount(1, 1, 1)}

    async def status() -> Any:
        async with serve(metrics) as client:  # which keeps its answer for a moment
            return json.loads((await client.ask("/api/status"))[1])

    async def test() -> None:
        before = await status()
        metrics.max_bytes, metrics.watched, metrics.keeps = 5, ("Albums",), lambda table: table != "Singers"
        after = await status()
        assert (before["spool"]["max_bytes"], after["spool"]["max_bytes"]) == (10 * 1024**3, 5)
        assert [node["table"] for node in before["objects"]] == ["Created", "Singers"]
        assert [node["table"] for node in after["objects"]] == ["Albums", "Created"]

    run(test())


def test_every_metric_is_documented_and_nothing_else(serve: Serve) -> None:
    metrics = running()
    metrics.retention, metrics.newest_epoch, metrics.spool_bytes = SECOND, 1, 0
    metrics.reported({})
    metrics.seal_latency.counts[0] = 1

    async def test() -> None:
        async with serve(metrics) as client:
            text = (await client.ask("/metrics"))[1]
        served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE spanner_cdc_")}
        page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
        documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `spanner_cdc_")}
        assert served == documented
        assert sum(f'state="{name}"' in text for name in StreamState) == len(StreamState)

    run(test())


def test_alarms_and_errors_are_in_the_status_and_in_the_metrics_and_absent_without(serve: Serve) -> None:
    metrics = running()

    async def test() -> None:
        async with serve(metrics) as client:
            well = json.loads((await client.ask("/api/status"))[1])
            assert "spanner_cdc_alarms{" not in (await client.ask("/metrics"))[1]
        assert (well["health"]["healthy"], well["health"]["alarms"], well["errors"]) == (True, [], [])
        assert well["health"]["summary"].startswith("replication is healthy, ")
        metrics.stopped_tables = {"Albums": "why"}
        event = ErrorEvent(time=SECOND, severity="ERROR", code="tables_stopped", message="it was", hint="")
        metrics.errors = lambda: [event]
        async with serve(metrics) as client:
            ill = json.loads((await client.ask("/api/status"))[1])
            assert 'spanner_cdc_alarms{name="tables_stopped",severity="ERROR"} 1.0' in (await client.ask("/metrics"))[1]
            assert (await client.ask("/readyz"))[:2] == (503, "the sink has stopped tables: Albums (why)\n")
        assert ill["health"]["healthy"] is False
        assert ill["health"]["summary"] == "the sink has stopped tables: Albums (why)"
        assert [alarm["name"] for alarm in ill["health"]["alarms"]] == ["tables_stopped"]
        assert ill["errors"] == [
            {"time": "1970-01-01T00:00:01.000000Z", "severity": "ERROR", "code": "tables_stopped", "message": "it was"}
        ]

    run(test())


def test_a_bucket_that_is_not_asked_any_more_is_no_alarm_for_ever() -> None:
    now = time.time_ns()
    for at in (now - 60 * SECOND, now - 20 * SECOND):
        FAILING.failed("storage", Cause("Cloud Storage does not answer"), at, subject="gs://gone")
    assert [retry.subject for retry in own_retries(ReaderMetrics(), now)] == ["gs://gone"]
    assert own_retries(ReaderMetrics(), now + 3600 * SECOND) == []
