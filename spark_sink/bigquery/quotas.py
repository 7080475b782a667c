"""BigQuery's quotas, and how a sink that makes calls in micro-batches keeps within them. Pure.

The numbers are those of https://cloud.google.com/bigquery/quotas, read in August 2026. A sink takes :data:`SHARE` of a
quota and no more, for others use the project too. What it takes is counted by one moment (:class:`Spent`): each call
is paid with a span of time, and a micro-batch may begin when the time for its calls has passed. So one that has few
tables comes soon, one that has many gathers longer, and whoever knows the moment goes on where the one before ended.
"""

from dataclasses import dataclass

from connector.core.timestamps import SECOND
from spark_sink.bigquery.table import MERGE, MERGE_LOAD, Mode

HOUR, DAY = 3600, 86400
"""Seconds."""

SHARE = 50
"""Percent of a quota that the sink takes in the long run."""

_BURST = 10
"""Percent of a quota that may be taken at once, on top of that, by a sink that was idle."""


@dataclass(frozen=True, slots=True)
class Quota:
    """So many calls, or bytes, in so many seconds."""

    name: str
    limit: int
    seconds: int

    def span(self, calls: int) -> int:
        """Nanoseconds in which the sink's share of the quota allows so many calls."""
        return calls * self.seconds * SECOND * 100 // (self.limit * SHARE)

    @property
    def burst(self) -> int:
        """Nanoseconds of its share that an idle sink may take in advance."""
        return self.span(self.limit * _BURST // 100)


STREAMS = Quota("CreateWriteStream calls", 10_000, HOUR)
"""Per project and region. The default stream needs none."""
LOADS = Quota("load jobs", 100_000, DAY)
"""Per project. One table takes 1,500; each load of the sink makes a table of its own."""
SCANNED = Quota("bytes scanned by queries", 200 * 2**40, DAY)
"""Per project, where queries are paid on demand."""
CONNECTIONS = 5_000
"""Open at a time, per project in a region; 20,000 in the multi-regions US and EU."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a sink has spent, in nanoseconds since 1970; 0 where it has spent nothing yet.

    ``paid_until`` is the moment that pays for all calls so far, ``begun`` when it last began a micro-batch.
    """

    paid_until: int = 0
    begun: int = 0


@dataclass(frozen=True, slots=True)
class Pacing:
    """When the next micro-batch may begin.

    Attributes:
        quota: what its calls are counted against; None where there is nothing to keep within.
        gather: nanoseconds that changes gather for, whatever the quota.
    """

    quota: Quota | None
    gather: int = 0

    @classmethod
    def of(cls, mode: Mode, max_staleness: int) -> "Pacing":
        """The pacing of a mode; ``max_staleness`` in nanoseconds.

        ``merge`` appends to the tables' default streams, for which there is no such quota, and BigQuery applies the
        changes when max_staleness says so. ``merge-load`` does that itself.
        """
        if mode == MERGE:
            return cls(None)
        return cls(LOADS, max_staleness) if mode == MERGE_LOAD else cls(STREAMS)

    def interval(self, calls: int) -> int:
        """Nanoseconds between micro-batches of so many calls, in the long run."""
        return max(self.gather, self.quota.span(calls) if self.quota else 0)

    def due(self, spent: Spent, calls: int, *, oldest: int, full: bool) -> int:
        """The moment, in nanoseconds since 1970, from which on a micro-batch may begin.

        Args:
            spent: what was spent before.
            calls: what it will take.
            oldest: when the oldest of its changes was committed.
            full: whether it holds as much as one may; waiting would not save any call.
        """
        gathered = 0 if full else self.gather + min(spent.begun, oldest)
        if self.quota is None:
            return gathered
        advance = max(0, self.quota.burst - self.quota.span(calls))
        return max(gathered, spent.paid_until - advance)

    def believed(self, spent: Spent, now: int) -> Spent:
        """What was spent, as far as it can have been by ``now``.

        What was noted by a clock that was fast is moved back until it began now; so nothing is held back for as long as
        the clock was fast.
        """
        fast = max(0, spent.begun - now)
        periods = 2 * self.quota.seconds * SECOND if self.quota else 0
        return Spent(min(spent.paid_until - fast, now + periods), spent.begun - fast)

    def with_more(self, spent: Spent, calls: int, now: int) -> Spent:
        """What is spent if the micro-batch that was begun last took so many calls more than was counted."""
        span = self.quota.span(calls) if self.quota else 0
        return self.believed(Spent(spent.paid_until + span, spent.begun), now)

    def after(self, spent: Spent, calls: int, now: int) -> Spent:
        """What is spent once a micro-batch, or the first try of one again, has begun.

        What was overspent counts for no longer than the quota does; so does a clock that was set back.
        """
        if self.quota is None:
            return Spent(0, now)
        since = min(max(spent.paid_until, now), now + self.quota.seconds * SECOND)
        return Spent(min(since + self.quota.span(calls), now + 2 * self.quota.seconds * SECOND), now)
