"""BigQuery's quotas, and how a sink that makes calls in micro-batches keeps within them. Pure.

The limits are those of https://cloud.google.com/bigquery/quotas, read in August 2026. A sink takes :data:`SHARE` of a
quota and no more, because others use the project too. One timestamp counts its calls (:class:`Spent`): each call moves
it by a span of time, and a micro-batch may start when the time for its calls has passed. So a micro-batch with few
tables comes soon, one with many gathers longer, and a restarted sink continues from the recorded timestamp.
"""

from dataclasses import dataclass

from connector.core.timestamps import SECOND
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, Mode

HOUR, DAY = 3600, 86400
"""Seconds."""

SHARE = 50
"""Percent of a quota that the sink takes in the long run."""

_BURST = 10
"""Percent of a quota that an idle sink may take at once, in addition."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A number of calls, or of bytes, in a number of seconds."""

    name: str
    limit: int
    seconds: int

    def span(self, calls: int) -> int:
        """Nanoseconds in which the sink's share of the quota allows this number of calls."""
        return calls * self.seconds * SECOND * 100 // (self.limit * SHARE)

    @property
    def burst(self) -> int:
        """Nanoseconds of its share that an idle sink may take in advance."""
        return self.span(self.limit * _BURST // 100)


STREAMS = Quota("CreateWriteStream calls", 10_000, HOUR)
"""Per project and region. The default stream needs none."""
LOADS = Quota("load jobs", 100_000, DAY)
"""Per project. The limit of 1,500 per table does not matter: each load of the sink creates a staging table."""
SCANNED = Quota("bytes scanned by queries", 200 * 2**40, DAY)
"""Per project, where queries are paid on demand."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The quota that a sink has spent, as Unix nanoseconds; 0 where it has spent nothing yet.

    ``paid_until`` is when the sink's share covers all calls so far, ``started`` when its last micro-batch started.
    """

    paid_until: int = 0
    started: int = 0


@dataclass(frozen=True, slots=True)
class Pacing:
    """Decides when the next micro-batch may start.

    Attributes:
        quota: what its calls count against; None where there is no limit.
        gather: nanoseconds for which changes gather, whatever the quota.
    """

    quota: Quota | None
    gather: int = 0

    @classmethod
    def of(cls, mode: Mode, max_staleness: int) -> "Pacing":
        """The pacing of a mode; ``max_staleness`` in nanoseconds.

        ``merge`` appends to the tables' default streams, for which there is no such quota, and BigQuery applies the
        changes within max_staleness. In ``merge-load`` the sink does both.
        """
        if mode == MERGE:
            return cls(None)
        return cls(LOADS, max_staleness) if mode == MERGE_LOAD else cls(STREAMS)

    def interval(self, calls: int) -> int:
        """Nanoseconds between micro-batches with this number of calls, in the long run."""
        return max(self.gather, self.quota.span(calls) if self.quota else 0)

    def due(self, spent: Spent, calls: int, *, oldest: int, full: bool) -> int:
        """The timestamp, in nanoseconds since 1970, from which on a micro-batch may start.

        Args:
            spent: what was spent before.
            calls: the calls that it will make.
            oldest: when the oldest of its changes was committed.
            full: whether it holds as much as one may, so that waiting saves no call.
        """
        gathered = 0 if full else self.gather + min(spent.started, oldest)
        if self.quota is None:
            return gathered
        advance = max(0, self.quota.burst - self.quota.span(calls))
        return max(gathered, spent.paid_until - advance)

    def believed(self, spent: Spent, now: int) -> Spent:
        """The part of the recorded spending that is possible by ``now``.

        What a clock that was fast recorded is moved back so that it started now; otherwise changes would be held back
        for as long as the clock was fast.
        """
        fast = max(0, spent.started - now)
        periods = 2 * self.quota.seconds * SECOND if self.quota else 0
        return Spent(min(spent.paid_until - fast, now + periods), spent.started - fast)

    def with_more(self, spent: Spent, calls: int, now: int) -> Spent:
        """The spending if the last micro-batch made this number of calls more than were counted."""
        span = self.quota.span(calls) if self.quota else 0
        return self.believed(Spent(spent.paid_until + span, spent.started), now)

    def after(self, spent: Spent, calls: int, now: int) -> Spent:
        """The spending once a micro-batch, or a retry of one, has started.

        Overspending counts for no longer than the quota's period; so does a clock that was set back.
        """
        if self.quota is None:
            return Spent(0, now)
        since = min(max(spent.paid_until, now), now + self.quota.seconds * SECOND)
        return Spent(min(since + self.quota.span(calls), now + 2 * self.quota.seconds * SECOND), now)
