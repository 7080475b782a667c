"""Maintains tables between micro-batches: one table a look, in a tenth of the sink's time at most.

The process that holds the sink's lock does it, so that no change is written meanwhile. A table is looked at some time
after it was written: with many small files it is compacted, and once a day old versions are removed, those excepted
that a published cut needs; very many versions are removed earlier. A failure stops nothing: it is reported until a
later look succeeds, or finds no such table. That look comes even if the table is not written any more, and after a
restart.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable

from connector import log
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from spark_sink.errors import clear_line
from spark_sink.failures import JOB_ERRORS
from spark_sink.sinks.tables.maintenance.record import MaintenanceRecord, TableRecord
from spark_sink.sinks.tables.maintenance.upkeep import Upkeep
from spark_sink.sinks.tables.table_faults import is_missing

_INTERVAL = 600.0
"""Seconds between two looks at a table."""

_PAUSE = 2.0
"""The least seconds between two looks."""

_LEFT_OUT = 60.0
"""Seconds until the next look where each table that is due is left out."""

_PAUSES = 9
"""The factor by which a pause is longer than the look before it."""

_DAY = 24 * 3600 * SECOND
_MILLISECOND = SECOND // 1000


class Maintenance:
    """The maintenance of a sink's tables, which it names as the destination does.

    Args:
        spool: the change stream's.
        consumer: the sink's name.
        keep: the time for which published cuts are kept, in nanoseconds.
        all_tables: whether tables of others are maintained, too, and not only those that a sink has created.
        clock: seconds, monotonic.
        now: Unix nanoseconds.
    """

    def __init__(
        self,
        spool: Spool,
        consumer: str,
        keep: int,
        *,
        all_tables: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._consumer = consumer
        self._keep = keep
        self._all = all_tables
        self._clock = clock
        self._now = now
        self._record = MaintenanceRecord(spool, consumer)
        self._due: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._others: set[str] = set()
        self._failed: set[str] | None = None
        """The tables that are reported as not maintained; None before the report is read."""
        self._next = -math.inf

    def written(self, tables: Iterable[str]) -> None:
        """Is called after a commit to tables."""
        for table in tables:
            if table not in self._others:
                self._due.setdefault(table, self._looked.get(table, -math.inf) + _INTERVAL)

    def next_table(self, excepted: Callable[[], Collection[str]] = frozenset) -> str | None:
        """The table that is due; None if none is, or it is too early.

        Args:
            excepted: returns tables that are left out now; it is asked only if one is due.
        """
        now = self._clock()
        if now < self._next:
            return None
        if self._failed is None:
            self._failed = set(report_of(self._spool, self._consumer).unmaintained)
            self._due = dict.fromkeys(self._failed, now) | self._due
        due = sorted((at, table) for table, at in self._due.items() if at <= now)
        left_out = excepted() if due else ()
        found = next((table for _, table in due if table not in left_out), None)
        if due and found is None:
            self._next = now + _LEFT_OUT
        return found

    def look(self, table: str, upkeep: Upkeep) -> None:
        """Compacts a table and removes its old versions, where that is due; an error is reported, not raised.

        Raises:
            SpoolError: the spool cannot be read or written.
        """
        began = self._clock()
        del self._due[table]
        try:
            is_maintained = self._maintain(table, upkeep)
            if is_maintained or (self._failed and table in self._failed):
                self._report(table, is_maintained=is_maintained)
        except SpoolError:
            raise
        except JOB_ERRORS as error:
            why = "" if is_missing(error) else clear_line(error)
            self._report(table, why)
            if why:
                self._due[table] = self._clock() + _INTERVAL
        finally:
            self._looked[table] = ended = self._clock()
            self._next = ended + max(_PAUSE, _PAUSES * (ended - began))

    def _maintain(self, table: str, upkeep: Upkeep) -> bool:
        """True if something was due and is done."""
        is_created = upkeep.is_created(table)  # is asked first, also for all tables: it fails if there is no table
        if not (self._all or is_created):
            self._others.add(table)
            return False
        known = self._record.of(table)
        if known is None:
            known = TableRecord(since=self._now())
            self._record.put(table, known)
        is_compacted = self._compact(table, upkeep)
        now = self._now()
        is_expired = now - known.last >= _DAY or upkeep.has_many_versions(table, now // _MILLISECOND)
        if is_expired:
            upkeep.expire(table, self._keep // _MILLISECOND, now // _MILLISECOND)
            self._record.put(table, known.model_copy(update={"expired_at": self._now()}))
        return is_compacted or is_expired

    def _compact(self, table: str, upkeep: Upkeep) -> bool:
        before = upkeep.files(table)
        if not before.are_many:
            return False
        upkeep.compact(table)
        after = upkeep.files(table)
        log.say(
            "spark_sink",
            f"table {table}: {before.data + before.deletes} files became {after.data + after.deletes}",
            action="table_compacted",
            table=table,
        )
        return True

    def _report(self, table: str, why: str = "", *, is_maintained: bool = False) -> None:
        """Records the reason why a table is not maintained, or that there is none; and that it was maintained now."""
        before = report_of(self._spool, self._consumer)
        unmaintained = {name: reason for name, reason in before.unmaintained.items() if name != table}
        if why and before.unmaintained.get(table) != why:
            say = f"table {table} is not maintained: {why}"
            log.say("spark_sink", say, action="table_not_maintained", level=logging.WARNING, table=table)
        if why:
            unmaintained[table] = why
        at = self._now() if is_maintained else before.maintained_at
        after = before.model_copy(update={"unmaintained": unmaintained, "maintained_at": at})
        if after != before:
            write_report(self._spool, self._consumer, after)
        self._failed = set(unmaintained)


def forget_failures(spool: Spool, consumer: str) -> None:
    """Removes from a sink's report why tables were not maintained: none is to be maintained any more.

    Raises:
        SpoolError: the spool cannot be read or written.
    """
    before = report_of(spool, consumer)
    if before.unmaintained:
        write_report(spool, consumer, before.model_copy(update={"unmaintained": {}}))
