"""Keeps changes back while a backfill is not done.

A backfill's rows are those of one timestamp, and the destination does not say when a row there was written. So they are
applied first, and then the changes, from where the stream was. Changes up to the backfill's timestamp are applied to
rows that have them already. In the end each row has its last change.
"""

import time

from connector import log
from connector.spool.backfill.killed_recordings import KilledRecordings
from connector.spool.backfill.records import unfinished_tables
from connector.spool.reading import Spool

_INTERVAL = 1.0
"""Seconds between two looks while a backfill is not done; before changes are delivered there is always a look."""


class AwaitedBackfills:
    """The backfills of a change stream's spool, without those of which another sink has got rows.

    Args:
        spool: the change stream's.
        sink: the sink's name.
    """

    def __init__(self, spool: Spool, sink: str) -> None:
        self._spool = spool
        self._sink = sink
        self._killed = KilledRecordings(spool)
        self._looked_at = 0.0
        self._names = ""

    def are_awaited(self) -> bool:
        """True if a backfill is not done; the first look that finds one says so on standard error.

        Raises:
            SpoolError: a document of a backfill is corrupt or cannot be read.
        """
        now = time.monotonic()
        if self._names and now - self._looked_at < _INTERVAL:
            return True
        self._looked_at = now
        if self._names:
            self._killed.withdraw_at_intervals()
        names = ", ".join(sorted(unfinished_tables(self._spool, self._sink)))
        if names and not self._names:
            line = f"changes are applied once the backfill is done; not done yet: {names}"
            log.say("spark_sink", line, action="waiting_for_backfill")
        self._names = names
        return names != ""
