"""Estimates what a configuration of the BigQuery sink takes of its quotas, and makes BigQuery read, in a day. Pure.

The estimate is an upper bound: every table has changes all the time. Bytes are estimated where the sizes of the tables
are known.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from connector.core.timestamps import SECOND
from spark_sink.sinks.bigquery.pacing.quotas import DAY, HOUR, LOADS, SCANNED, SHARE, STREAMS, Pacing
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, Mode

LEAST_SCANNED = 10 * 2**20
"""The fewest bytes that are billed for a table."""

_TIB = 2**40
_MUCH = _TIB
"""Bytes read in a day above which there is a warning."""


@dataclass(frozen=True, slots=True)
class SinkLoad:
    """The load that a sink puts on BigQuery.

    Attributes:
        mode: the sink's mode.
        tables: their number.
        trigger: Spark's trigger interval, in nanoseconds.
        max_staleness: nanoseconds.
        sizes: bytes of the tables that exist.
    """

    mode: Mode
    tables: int
    trigger: int
    max_staleness: int
    sizes: Collection[int] = ()

    @property
    def interval(self) -> int:
        """Nanoseconds between two micro-batches in which all tables have rows."""
        return max(self.trigger, Pacing.of(self.mode, self.max_staleness).interval(self.tables))

    @property
    def calls_a_day(self) -> int:
        """New streams, or load jobs; there are as many MERGE statements as load jobs."""
        return 0 if self.mode == MERGE else self.tables * (DAY * SECOND // max(1, self.interval))

    @property
    def reads_a_day(self) -> int:
        """The number of times a day that each table is read as a whole; 0 where it never is."""
        if self.mode not in (MERGE, MERGE_LOAD):
            return 0
        return DAY * SECOND // max(SECOND, self.max_staleness if self.mode == MERGE else self.interval)

    @property
    def scanned_a_day(self) -> int:
        """Bytes that BigQuery reads to merge, at most."""
        return self.reads_a_day * sum(max(size, LEAST_SCANNED) for size in self.sizes)


def notes(load: SinkLoad) -> Iterator[str]:
    """The estimate and its warnings, each a line."""
    latency = _span(load.interval)
    if load.mode == MERGE:
        yield f"{load.tables} tables in mode merge: no quota of calls; changes are sent every {_span(load.trigger)}"
    elif load.mode == MERGE_LOAD:
        yield (
            f"{load.tables} tables in mode merge-load: at most {load.calls_a_day:,} load jobs and MERGE statements a"
            f" day, of {LOADS.limit:,} load jobs that a project may run; changes gather for up to {latency}"
        )
    else:
        streams = load.calls_a_day * HOUR // DAY
        yield (
            f"{load.tables} tables in mode {load.mode}: at most {streams:,} new streams an hour, of {STREAMS.limit:,}"
            f" that a project may make in a region. Rows gather for up to {latency} where all tables have some"
        )
    if load.mode == MERGE and not load.max_staleness:
        yield "warning: with sink.max_staleness 0s every query applies the changes, and reads each table as a whole"
        return
    yield from _scans(load)


def _scans(load: SinkLoad) -> Iterator[str]:
    if not load.reads_a_day:
        return
    if not load.sizes:
        yield f"each table is read up to {load.reads_a_day} times a day to merge what changed"
        return
    size, scanned = sum(load.sizes), load.scanned_a_day
    yield (
        f"{len(load.sizes)} tables of {size / 10**9:,.1f} GB are read up to {load.reads_a_day} times a day to merge"
        f" what changed: {scanned / _TIB:,.2f} TiB"
    )
    if scanned > SCANNED.limit * SHARE // 100:
        yield (
            f"warning: that is {100 * scanned // SCANNED.limit} % of the {SCANNED.limit // _TIB} TiB that a project may"
            " read on demand in a day: set a longer sink.max_staleness, or take mode append-only"
        )
    elif scanned > _MUCH:
        yield (
            "warning: that is paid by the TiB where queries are on demand: a longer sink.max_staleness reads less, and"
            " mode append-only nothing"
        )


def _span(nanoseconds: int) -> str:
    seconds = -(-nanoseconds // SECOND)
    if seconds >= HOUR and seconds % HOUR == 0:
        return f"{seconds // HOUR} h"
    return f"{seconds // 60} min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds} s"
