"""The work at a destination that is due when a backfill ends, done by whichever process learns of it.

While a backfill is not done a sink keeps what its rows must be compared with: deleted rows, or notes of changes. No
micro-batch may come after the backfill, so a sink looks by itself: before its first micro-batch, and at intervals,
between micro-batches or while none comes. A sink that ends, and a backfill that ends without a running sink, look once
more. What is due follows from what is stored, so that a process that was killed leaves it to the next one.

Only the process that holds the sink's lock does it: while it does, no micro-batch of changes keeps anything new.
"""

import math
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.errors import SpoolInUseError
from connector.spool.backfill.killed_recordings import KilledRecordings
from connector.spool.backfill.records import unfinished_tables
from connector.spool.consumers import sink_lock
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.idling import interval_of
from spark_sink.sinks.shared.delivery import Delivery


@runtime_checkable
class Settling(Protocol):
    """A delivery for which the end of a backfill makes something due; its other methods are those of a Delivery."""

    consumer: str

    def is_due(self, unfinished: frozenset[str]) -> bool:
        """True if there is something to do.

        Args:
            unfinished: the tables of which a backfill is not done.

        Raises:
            SpoolError: the spool cannot be read.
        """

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        """Does it; the sink's lock is held.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: it is not done; the next look repeats it.
        """


class Settlement:
    """Looks whether something is due, and has it done.

    Args:
        delivery: of any sink.
        config: names the spool.
        check: raises SpoolInUseError if another sink has taken over.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        delivery: Delivery | Settling,
        config: Config,
        check: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delivery = delivery if isinstance(delivery, Settling) else None
        self._spool = Spool.at(absolute(config.spool.path))
        self._check = check
        self._clock = clock
        self._interval = interval_of(self._spool.storage)
        self._killed = KilledRecordings(self._spool, clock)
        self._next = -math.inf

    def look(self, spark: SparkSession) -> None:
        """Does what is due.

        Raises:
            SpannerCdcError, PySparkException, Py4JError: see :class:`Settling`; or the spool cannot be read.
        """
        if self._delivery is None:
            return
        self._next = self._clock() + self._interval
        self._killed.withdraw_at_intervals()
        unfinished = unfinished_tables(self._spool)
        if self._delivery.is_due(unfinished):
            self._check()
            self._delivery.settle(spark, unfinished)

    def look_at_intervals(self, spark: SparkSession) -> None:
        """As :meth:`look`, but not sooner than an interval after the last one; errors as there."""
        if self._clock() >= self._next:
            self.look(spark)


def settle_without_sink(delivery: Delivery | Settling, config: Config, spark: SparkSession) -> None:
    """Does what is due unless the sink runs.

    Whoever holds the sink's lock looks once more after it was freed: either the caller gets the lock, or its holder
    sees what the caller has recorded before.

    Args:
        delivery: of the change stream.
        config: names the change stream's spool.
        spark: a session.

    Raises:
        SpannerCdcError, PySparkException, Py4JError: see :class:`Settling`.
    """
    if not isinstance(delivery, Settling):
        return
    spool = Spool.at(absolute(config.spool.path))
    while delivery.is_due(unfinished_tables(spool)):
        try:
            with spool.storage.locked(sink_lock(delivery.consumer), "the sink runs"):
                delivery.settle(spark, unfinished_tables(spool))
        except SpoolInUseError:
            return
