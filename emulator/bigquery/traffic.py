"""Counts the requests to the BigQuery double, and injects failures for tests."""

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
    """An injected failure of a request: a gRPC code or an HTTP status, before or after the request is carried out.

    In band it is a response of AppendRows, and the call continues; otherwise the call ends with it. With a storage code
    it is a response that carries this code, with INVALID_ARGUMENT.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    status: int = 0
    after: bool = False
    in_band: bool = False
    storage: StorageCode | None = None

    @property
    def message(self) -> str:
        """The error message."""
        return f"a failure injected by a test: {self.reason}"

    @property
    def reason(self) -> str:
        """The reason in REST, or the code's name."""
        if self.storage is not None:
            return self.storage.name
        return _HTTP[self.status] if self.status else str(self.code.name)


@dataclass(slots=True)
class Counts:
    """Totals: appends that were applied, their rows and bytes, and requests by method.

    A method is AppendRows and its like for gRPC (each request of its stream), tables.insert and its like for REST.
    `unrouted` counts AppendRows calls without the routing header x-goog-request-params, which BigQuery requires for a
    dataset outside its first region.
    """

    appends: int = 0
    rows: int = 0
    bytes: int = 0
    unrouted: int = 0
    requests: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that makes a row invalid."""

    column: str
    value: object
    message: str

    def found_in(self, row: Mapping[str, Any]) -> bool:
        """True if a row has the value."""
        return self.column in row and bool(row[self.column] == self.value)


LARGEST_REQUEST = 10_000_000
"""Bytes of an AppendRows request, as BigQuery limited it until 2026; its page says 20 MB since."""


class Traffic:
    """Counts requests, also by hour and against quotas (`meter`), and decides which of them fail (`failures`)."""

    def __init__(self, meter: Meter) -> None:
        self.counts = Counts()
        self.meter = meter
        self.refused: list[RefusedValue] = []
        self.largest_request = LARGEST_REQUEST
        self._lock = threading.Lock()
        self.failures: list[tuple[str, Failure]] = []

    def fail_next(
        self, kind: str | int, times: int = 1, *, method: str | None = None, after: bool = False, in_band: bool = False
    ) -> None:
        """Makes the next requests of a method fail; see `BigQueryDouble.fail_next`."""
        if isinstance(kind, int):
            if kind not in _HTTP:
                raise ValueError(f"{kind} is not a supported HTTP status: use one of {sorted(_HTTP)}")
            failure = Failure(status=kind, after=after)
        elif kind in StorageCode.__members__:
            failure = Failure(grpc.StatusCode.INVALID_ARGUMENT, in_band=True, storage=StorageCode[kind])
        else:
            failure = Failure(grpc.StatusCode[kind], after=after, in_band=in_band)
        method = method or (_ANY_REST if failure.status else APPEND_ROWS)
        if method not in (_REST if failure.status else _WRITE):
            raise ValueError(f"{method} cannot fail with {kind}")
        if failure.in_band and method != APPEND_ROWS:
            raise ValueError(f"only {APPEND_ROWS} can fail in band")
        with self._lock:
            self.failures += [(method, failure)] * times

    def forget(self) -> None:
        """Removes all failures that have not been injected yet."""
        with self._lock:
            self.failures.clear()

    def request(self, method: str, *, rest: bool = False) -> Failure | None:
        """Counts a request, and returns its failure if one is to be injected; raises RefusedError beyond its quota."""
        self.meter.count(method)
        with self._lock:
            self.counts.requests[method] += 1
            for index, (name, failure) in enumerate(self.failures):
                if name == method or (rest and name == _ANY_REST):
                    del self.failures[index]
                    return failure
        return None

    def appended(self, rows: int, size: int) -> None:
        """Counts an append."""
        with self._lock:
            self.counts.appends += 1
            self.counts.rows += rows
            self.counts.bytes += size

    def unrouted(self) -> None:
        """Counts an AppendRows call without the routing header."""
        with self._lock:
            self.counts.unrouted += 1
