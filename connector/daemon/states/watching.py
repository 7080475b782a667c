"""The daemon's alarms: each is logged and kept as an event when it begins, and logged when it ends."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from connector.daemon.states.daemon import Lifecycle
from connector.log import Log
from connector.spool.lifecycle import LONGEST_TEXT, ErrorEvent
from connector.spool.reading import Spool
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

INTERVAL = 10.0
"""Seconds between two looks."""

_MOST_TABLES = 20
"""Tables with events of their own at the same time: those of hundreds would leave no other event in the list."""

_MORE_TABLES = "more_tables"
_log = Log(__name__)


class _Fault(NamedTuple):
    code: str
    table: str
    message: str


async def watch(life: Lifecycle, spool: Spool, metrics: ReaderMetrics) -> None:
    """Raises alarms until it is cancelled, whether the daemon reads or is paused.

    Args:
        life: the daemon's states, which keep the events.
        spool: its spool.
        metrics: of the daemon.
    """
    consumers, tables = ConsumerStates(spool), _TableFaults(life.errors)
    while True:
        await in_thread(consumers.read)
        started, ended = metrics.alarms.changes(raised(metrics, consumers), time.time_ns())
        for alarm in started:
            write = _log.error if alarm.severity == "ERROR" else _log.warning
            write(alarm.message, action="alarm_raised", alarm=alarm.name, hint=alarm.hint)
            await life.report(alarm.name, alarm.message, severity=alarm.severity, hint=alarm.hint)
        for alarm in ended:
            _log.info("an alarm has ended", alarm=alarm.name)
        for fault in tables.started(metrics):
            await life.report(fault.code, fault.message, severity="ERROR", table=fault.table)
        if started or ended:
            await life.breathe()  # `status` reads it from the spool
        await asyncio.sleep(INTERVAL)


class _TableFaults:
    """The faults of single tables, each reported by itself: an alarm names all of them together, once.

    Args:
        errors: those that are recorded, so that a restarted daemon does not repeat them.
    """

    def __init__(self, errors: Sequence[ErrorEvent]) -> None:
        self._known = {_Fault(one.code, one.table, one.message) for one in errors if one.table}
        self._reported = frozenset(self._known)
        self._has_more = any(one.code == _MORE_TABLES for one in errors)

    def started(self, metrics: ReaderMetrics) -> list[_Fault]:
        """Those that have started since the last call: tables that a sink has stopped, or that cannot be read.

        Of more than 20 tables at the same time the others are one fault without a table.
        """
        faults = [_Fault("table_stopped", table, why) for table, why in metrics.stopped_tables.items()]
        newest = {table["table"]: (one["number"], table) for one in metrics.backfills for table in one["tables"]}
        for name, (number, table) in newest.items():
            if table["state"] == "failed":
                faults.append(_Fault("backfill_failed", name, f"backfill {number}: {table['why']}"))
        current = {fault._replace(message=fault.message[:LONGEST_TEXT]) for fault in faults}
        started = sorted(current - self._known)
        # Until the reports are read, nothing is known of the faults that are recorded; then one that ended may recur.
        is_known = metrics.earlier_restarts is not None
        self._known = current if is_known else self._known | current
        reported = self._reported & current if is_known else self._reported
        found = started[: max(_MOST_TABLES - len(reported), 0)]
        self._reported = reported.union(found)
        had_more, has_more = self._has_more, len(found) < len(started)
        self._has_more = has_more or (had_more and not (is_known and len(current) <= _MOST_TABLES))
        if has_more and not had_more:
            text = "more tables are stopped or cannot be read: `spanner-cdc status CONFIG --objects` names all"
            found.append(_Fault(_MORE_TABLES, "", text))
        return found
