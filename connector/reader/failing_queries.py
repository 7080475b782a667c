"""Partitions whose queries fail and are sent again: since when, and why, for alarms and metrics."""

import time
from dataclasses import replace

import grpc

from connector.core.health.retries import SPANNER, WORKERS, Cause
from connector.core.records import partition_name
from connector.errors import UnreachableError
from connector.reader.watermark_watchdog import QueryRestartedError
from connector.spanner.errors import READER, SLOW_HINT, classify, no_answer_hint, retried
from connector.spanner.partition_query import SilentStreamError
from connector.spanner.workers.failures import WorkerEndedError
from connector.telemetry.metrics import ReaderMetrics

_WORKER_HINT = "The log says how it ended. If the machine is out of memory, fewer source.workers need less."


class FailingQueries:
    """Reports to the metrics which partitions are not read.

    Args:
        metrics: know what fails, and Spanner's endpoint.
        heartbeat: the stream's, in nanoseconds: a query that works may return nothing for so long.
    """

    def __init__(self, metrics: ReaderMetrics, *, heartbeat: int) -> None:
        self._metrics = metrics
        self._proof = 2 * heartbeat
        self._since: dict[str, int] = {}
        """The time when each partition's query was sent, or last moved its progress; Unix nanoseconds."""

    def waits(self, token: str) -> None:
        """A query is sent, or pulled from after a pause: from now on it is waited for."""
        self._since[token] = time.time_ns()

    def healed(self, token: str) -> None:
        """A query has moved its partition's progress."""
        self._since[token] = time.time_ns()
        for what in (SPANNER, WORKERS):
            self._metrics.failing.healed(what, part=_part(token))

    def ended(self, token: str) -> None:
        """The partition is not read any more."""
        self.healed(token)
        del self._since[token]

    def failed(self, token: str, error: BaseException | None, text: str) -> None:
        """A query broke without progress, and is sent again.

        Args:
            token: the partition.
            error: the query's; None if it has ended with OK.
            text: says why.
        """
        self._metrics.retried(_code(error))
        self.fell_silent(token, error, text)

    def fell_silent(self, token: str, error: BaseException | None, text: str) -> None:
        """A query has returned nothing for long, perhaps after progress, and is sent again; arguments as before."""
        now = time.time_ns()
        what, other = (WORKERS, SPANNER) if isinstance(error, WorkerEndedError) else (SPANNER, WORKERS)
        lasted = max(now - self._since.get(token, now), 0)
        self._metrics.failing.healed(other, part=_part(token))
        self._metrics.failing.failed(
            what, self._cause(token, error, text), now, part=_part(token), lasted=lasted, proof=self._proof
        )

    def _cause(self, token: str, error: BaseException | None, text: str) -> Cause:
        """The cause of repeated queries; a partition's token is replaced by its name."""
        host, name = self._metrics.endpoint or "its endpoint", partition_name(token)
        text = text.replace(token, name) if token else text
        match error:
            case WorkerEndedError():
                return Cause("worker processes end again and again", "", error.details(), _WORKER_HINT)
            case grpc.RpcError():
                found = classify(error)
                message = found.message.replace(token, name) if token else found.message
                return retried(replace(found, message=message, proxy=self._metrics.proxy), host)
            case SilentStreamError() | QueryRestartedError():
                return Cause(f"Spanner at {host} is silent", _code(error), text, SLOW_HINT)
            case UnreachableError():
                hint = no_answer_hint(READER.section, self._metrics.proxy)
                return Cause(f"Spanner at {host} does not say its time", "", text, hint)
        return Cause(f"queries of Spanner at {host} end too early", "", text, SLOW_HINT)


def _part(token: str) -> str:
    return token or "the initial query"


def _code(error: BaseException | None) -> str:
    """The gRPC code of an error, or the name of its class."""
    if isinstance(error, grpc.RpcError) and callable(code := getattr(error, "code", None)):
        return str(getattr(code(), "name", "UNKNOWN"))
    return type(error).__name__.removesuffix("Error") if error is not None else "UNKNOWN"
