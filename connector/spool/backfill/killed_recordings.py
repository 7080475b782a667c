"""Recordings of backfills that were killed, withdrawn by processes that run for long.

A backfill or a repair is announced before it is recorded, and sinks keep changes back, or keep what its rows must be
compared with, from then on. A command that is killed in between leaves the announcement to nobody.
"""

import math
import time
from collections.abc import Callable

from connector.spool.backfill.records import withdraw
from connector.spool.reading import Spool

INTERVAL = 30.0
"""Seconds between two looks: a look reads the folder of backfills."""


class KilledRecordings:
    """The recordings in a spool that were killed.

    Args:
        spool: the change stream's.
        clock: seconds, monotonic.
    """

    def __init__(self, spool: Spool, clock: Callable[[], float] = time.monotonic) -> None:
        self._spool = spool
        self._clock = clock
        self._looked = -math.inf

    def withdraw_at_intervals(self) -> None:
        """Withdraws what was killed, unless the last look was less than an interval ago.

        Raises:
            SpoolError: the disk refuses.
        """
        if self._clock() - self._looked >= INTERVAL:
            self._looked = self._clock()
            withdraw(self._spool)
