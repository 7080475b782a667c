"""What passes the BigQuery double: counted, and made to fail where a test wants it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from emulator.bigquery.meter import Meter
from emulator.bigquery.refusals import StorageCode

APPEND_ROWS = "AppendRows"
_WRITE = {APPEND_ROWS, "CreateWriteStream", "GetWriteStream", "FinalizeWriteStream", "BatchCommitWriteStreams"}
_ANY_REST = "REST"
_REST = {_ANY_REST, "datasets.get", "datasets.insert", "jobs.get", "jobs.getQueryResults", "jobs.insert", "jobs.query",
         "tables.delete", "tables.get", "tables.insert", "tables.list", "tables.patch"}  # fmt: skip
_HTTP = {429: "rateLimitExceeded", 500: "internalError", 502: "badGateway", 503: "backendError"}


@dataclass(frozen=True, slots=True)
class Failure:
    """What happens to a request: a gRPC code or an HTTP status, before the request's work is done or after it.

    In band it is an answer of AppendRows, and the connection lives; else the connection's call ends with it. With a
    storage code it is an answer that carries that, with INVALID_ARGUMENT.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    status: int = 0
    after: bool = False
    in_band: bool = False
    storage: StorageCode | None = None

    @property
    def message(self) -> str:
        """What a person reads."""
        return f"a failure that a test asked for: {self.reason}"

    @property
    def reason(self) -> str:
        """The reason of REST, or the code's name."""
        if self.storage is not None:
            return self.storage.name
        return _HTTP[self.status] if self.status else str(self.code.name)


@dataclass(slots=True)
class Counts:
    """What has passed: appends with rows that were applied, their rows, bytes of them, and requests by method.

    A method is AppendRows and its like for gRPC (each request of its stream), tables.insert and its like for REST.
    `unrouted` counts AppendRows calls without the routing header x-goog-request-params, which BigQuery needs where a
    dataset is not in its first region.
    """

    appends: int = 0
    rows: int = 0
    bytes: int = 0
    unrouted: int = 0
    requests: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value for which a row is refused."""

    column: str
    value: object
    message: str

    def found_in(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has it."""
        return self.column in row and bool(row[self.column] == self.value)


class Traffic:
    """Counts requests, also by hour and against quotas (`meter`), and tells which of them fail."""

    def __init__(self, meter: Meter) -> None:
        self.counts = Counts()
        self.meter = meter
        self.refused: list[RefusedValue] = []
        self._lock = threading.Lock()
        self._failures: list[tuple[str, Failure]] = []

    def fail_next(
        self, kind: str | int, times: int = 1, *, method: str | None = None, after: bool = False, in_band: bool = False
    ) -> None:
        """Lets the next requests of a method fail; see `BigQueryDouble.fail_next`."""
        if isinstance(kind, int):
            if kind not in _HTTP:
                raise ValueError(f"no failure of REST: {kind}; there are {sorted(_HTTP)}")
            failure = Failure(status=kind, after=after)
        elif kind in StorageCode.__members__:
            failure = Failure(grpc.StatusCode.INVALID_ARGUMENT, in_band=True, storage=StorageCode[kind])
        else:
            failure = Failure(grpc.StatusCode[kind], after=after, in_band=in_band)
        method = method or (_ANY_REST if failure.status else APPEND_ROWS)
        if method not in (_REST if failure.status else _WRITE):
            raise ValueError(f"{method} does not fail with {kind}")
        if failure.in_band and method != APPEND_ROWS:
            raise ValueError(f"only {APPEND_ROWS} fails in band")
        with self._lock:
            self._failures += [(method, failure)] * times

    def pending(self) -> int:
        """How many failures have not struck yet."""
        return len(self._failures)

    def forget(self) -> None:
        """Lets no request fail any more."""
        with self._lock:
            self._failures.clear()

    def met(self, method: str, *, rest: bool = False) -> Failure | None:
        """Counts a request, and gives how it fails, if it does; refuses it where its quota is used up."""
        self.meter.count(method)
        with self._lock:
            self.counts.requests[method] += 1
            for index, (name, failure) in enumerate(self._failures):
                if name == method or (rest and name == _ANY_REST):
                    del self._failures[index]
                    return failure
        return None

    def appended(self, rows: int, size: int) -> None:
        """Counts an append."""
        with self._lock:
            self.counts.appends += 1
            self.counts.rows += rows
            self.counts.bytes += size

    def unrouted(self) -> None:
        """Counts a call that does not say where it is to go."""
        with self._lock:
            self.counts.unrouted += 1
