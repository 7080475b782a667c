"""Counts the BigQuery double's requests by kind and hour of its clock, and enforces quotas.

The clock is passed in, so a test can simulate a day in minutes. Jobs that the double does not run (loads, MERGE, the
background jobs that apply changes) are counted with the bytes that they would scan: whole tables, because the double
does not prune.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from emulator.bigquery.refusals import Reason, RefusedError

CREATE = "CreateWriteStream"
CONNECTIONS = "AppendRows connections"
LOADS = "load jobs"
MERGES = "MERGE statements"
APPLIES = "background apply jobs"
SCANNED = "bytes scanned"
LEAST_SCANNED = 10 * 2**20
"""The least bytes that BigQuery bills for a table."""

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota: at most `most` of a kind within `seconds`."""

    most: int
    seconds: int


SERVICE: Mapping[str, Limit] = {
    CREATE: Limit(10_000, _HOUR),
    LOADS: Limit(100_000, 24 * _HOUR),
    SCANNED: Limit(200 * 2**40, 24 * _HOUR),
}
"""BigQuery's quotas: https://cloud.google.com/bigquery/quotas."""

CONNECTIONS_OF_REGION = 5_000
"""The most connections that may be open at a time in a region."""


class Meter:
    """Counts requests and bytes; may be called from many threads.

    Args:
        now: returns the time.

    Attributes:
        limits: the enforced quotas, by kind; none at first.
        most_open: connections that may be open at a time; None for any number.
        peak_open: how many were open at a time, at most.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.limits: dict[str, Limit] = {}
        self.most_open: int | None = None
        self.peak_open = 0
        self._now = now
        self._lock = threading.Lock()
        self._open = 0
        self._hours: dict[str, Counter[int]] = {}
        self._windows: dict[str, deque[tuple[int, int]]] = {}
        self._within: Counter[str] = Counter()

    def count(self, kind: str, amount: int = 1) -> None:
        """Counts something; refuses it where it is beyond its quota, and counts it nevertheless, as BigQuery does.

        Raises:
            RefusedError: the quota is used up.
        """
        second = int(self._now().timestamp())
        with self._lock:
            self._hours.setdefault(kind, Counter())[second // _HOUR] += amount
            limit = self.limits.get(kind)
            if limit is None:
                return
            window = self._windows.setdefault(kind, deque())
            window.append((second, amount))
            self._within[kind] += amount
            while window[0][0] <= second - limit.seconds:
                self._within[kind] -= window.popleft()[1]
            if self._within[kind] <= limit.most:
                return
        raise RefusedError(Reason.QUOTA_EXCEEDED, f"Exceeds '{kind}' quota, status: INSUFFICIENT_TOKENS")

    def opened(self) -> None:
        """Counts a connection; call `closed` when it ends, unless it is refused.

        Raises:
            RefusedError: as many as allowed are open.
        """
        self.count(CONNECTIONS)
        with self._lock:
            if self.most_open is not None and self._open >= self.most_open:
                raise RefusedError(Reason.QUOTA_EXCEEDED, "Exceeds 'AppendRows concurrent connections' quota")
            self._open += 1
            self.peak_open = max(self.peak_open, self._open)

    def closed(self) -> None:
        """Counts the end of a connection."""
        with self._lock:
            self._open -= 1

    def total(self, kind: str) -> int:
        """Returns how many of a kind were counted."""
        with self._lock:
            return sum(self._hours.get(kind, Counter()).values())

    def worst_hour(self, kind: str) -> int:
        """Returns how many of a kind were counted in the hour that had most."""
        with self._lock:
            return max(self._hours.get(kind, Counter()).values(), default=0)

    def kinds(self) -> list[str]:
        """Returns the counted kinds, by name."""
        with self._lock:
            return sorted(self._hours)
