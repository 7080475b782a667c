"""Partitions that cannot be read are named with the cause; the next progress heals them."""

import time

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from connector.core.health.retries import LASTING, Retry
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from connector.errors import UnreachableError
from connector.reader.failing_queries import FailingQueries
from connector.reader.watermark_watchdog import QueryRestartedError
from connector.spanner.partition_query import SilentStreamError
from connector.spanner.workers.failures import WorkerEndedError
from connector.telemetry.metrics import ReaderMetrics

Code = grpc.StatusCode
START = 1_800_000_000 * SECOND
TOKEN = "a-token-that-is-long-and-is-never-shown"


def broken(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details=details)


def lasting(metrics: ReaderMetrics, *, seconds: int = 40) -> list[Retry]:
    return metrics.failing.lasting(time.time_ns() + seconds * SECOND)


@pytest.mark.parametrize(
    ("error", "what", "words"),
    [
        (broken(Code.UNAVAILABLE, "refused"), "spanner", "Spanner does not answer at h:1 (UNAVAILABLE: refused)"),
        (broken(Code.RESOURCE_EXHAUSTED, "quota"), "spanner", "a quota is exhausted (RESOURCE_EXHAUSTED: quota)"),
        (broken(Code.DEADLINE_EXCEEDED, ""), "spanner", "Spanner at h:1 is too slow (DEADLINE_EXCEEDED)"),
        (broken(Code.UNAVAILABLE, "Getting metadata from plugin failed"), "spanner", "no access token"),
        (broken(Code.UNAVAILABLE, "no session can be created: x"), "spanner", "no session can be created: x"),
        (broken(Code.UNAUTHENTICATED, "x"), "spanner", "does not accept the credentials (UNAUTHENTICATED: x)"),
        (broken(Code.PERMISSION_DENIED, "x"), "spanner", "denies permission (PERMISSION_DENIED: x)"),
        (broken(Code.ABORTED, "x"), "spanner", "calls to Spanner at h:1 break (ABORTED: x)"),
        (
            broken(Code.NOT_FOUND, "Session not found: s"),
            "spanner",
            "Spanner at h:1 no longer knows what is asked for (NOT_FOUND: Session not found: s)",
        ),
        (SilentStreamError("no message for 30 s"), "spanner", "is silent (SilentStream: no message for 30 s)"),
        (QueryRestartedError("nothing new"), "spanner", "is silent (QueryRestarted: nothing new)"),
        (UnreachableError("no clock"), "spanner", "does not say its time (no clock)"),
        (None, "spanner", "end too early (it ended)"),
        (WorkerEndedError("it was ended by SIGKILL"), "workers", "worker processes end"),
    ],
)
def test_each_error_that_is_retried_is_named_with_its_code_and_its_endpoint(
    error: Exception | None, what: str, words: str
) -> None:
    metrics = ReaderMetrics(endpoint="h:1")
    failing = FailingQueries(metrics, heartbeat=SECOND)
    for token in ("t", INITIAL_TOKEN):
        failing.waits(token)
        failing.failed(token, error, str(error) if error else "it ended")
    (retry,) = lasting(metrics)
    assert (retry.what, retry.parts) == (what, 2)
    assert words in str(retry.cause)
    assert retry.cause.hint
    failing.healed("t")
    assert lasting(metrics)[0].parts == 1
    failing.ended(INITIAL_TOKEN)
    assert not lasting(metrics)


def test_a_token_is_never_shown_whole() -> None:
    metrics = ReaderMetrics()
    failing = FailingQueries(metrics, heartbeat=SECOND)
    failing.waits(TOKEN)
    failing.failed(TOKEN, broken(Code.UNAVAILABLE, f"partition {TOKEN}"), "")
    (retry,) = lasting(metrics)
    assert TOKEN not in str(retry.cause)


def test_a_query_that_is_silent_has_failed_since_it_was_last_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, now = ReaderMetrics(), [START]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    failing = FailingQueries(metrics, heartbeat=SECOND)
    failing.waits("t")
    failing.healed("t")
    now[0] += LASTING
    failing.failed("t", SilentStreamError("no message"), "")
    (retry,) = metrics.failing.lasting(now[0] + 5 * SECOND)
    assert retry.since == START
