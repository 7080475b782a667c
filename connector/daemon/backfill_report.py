"""Reports of backfills: their tables' states in ``spool`` and on the status page, and lines of progress."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TextIO

from connector.config.values import parse_duration
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError
from connector.log import Log, draw
from connector.progress import REDRAW
from connector.progress import bar as share_drawn
from connector.spool.backfill.completeness import incomplete_tables
from connector.spool.backfill.documents import Backfill, BackfillProgress
from connector.spool.backfill.records import RecordedBackfill, find
from connector.spool.reading import Spool
from connector.spool.sink_report import NOTHING, SinkReport, reports_of, stopped_by
from connector.threads import in_background

Report = dict[str, Any]
Line = dict[str, str | int | float]

_INTERVAL = 5.0
"""Seconds between two lines about the progress."""

_NAMED_TABLES = 5

_log = Log(__name__)


class BackfillStates:
    """The state of each backfill of a spool, for frequent calls: those that are done are read once.

    Args:
        spool: the change stream's spool.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._done: list[Report] = []

    def current(self) -> list[Report]:
        """As :func:`described` describes them.

        Raises:
            SpoolError: a document is corrupt or cannot be read.
        """
        found = list(self._done)
        while (one := find(self._spool, len(found) + 1)) is not None:
            found.append(described(one))
            if one.progress.is_done and len(self._done) == len(found) - 1:
                self._done.append(found[-1])
        return found


def rejected(one: RecordedBackfill) -> SinkReport:
    """The rows of a backfill that became dead letters, and the tables that were stopped and are not replayed.

    Raises:
        SpoolError: that cannot be read.
    """
    found = reports_of(one.spool).values()
    return NOTHING.after(1, sum(report.refused for report in found), stopped_by(found))


def log_done(one: RecordedBackfill) -> None:
    """Logs that a backfill is done, and what of it is not at the destination."""
    number, tables = one.document.number, one.progress.tables
    kind = one.document.kind
    rows = sum(table.rows for table in tables)
    _log.info(f"{kind} done", action="backfill_done", number=number, tables=len(tables), rows=rows)
    found = rejected(one)
    if found.refused:
        _log.error(
            f"rows of the {kind} became dead letters: mend what `spanner-cdc dead-letters list` names, stop the sink,"
            " and run `spanner-cdc dead-letters replay`",
            action="backfill_rejected",
            number=number,
            dead_letters=found.refused,
            stopped_tables=", ".join(sorted(found.stopped)),
        )


def described(one: RecordedBackfill) -> Report:
    """A backfill and the state of each of its tables, for JSON."""
    document = one.document
    return {
        "number": document.number,
        "timestamp": format_rfc3339(document.timestamp),
        "why": document.why,
        "continues": document.continues or None,
        "done": one.progress.is_done,
        "lost": one.progress.lost,
        "dead_letters": rejected(one).refused,
        "tables": [table.model_dump(mode="json") for table in one.progress.tables],
    }


def lines_of(one: Report) -> list[str]:
    """A line for a backfill, and one for each of its tables."""
    tables = one["tables"]
    done = sum(table["state"] == "done" for table in tables)
    rest = "; what is left can only be read at a new timestamp, by the next run" if one["lost"] else ""
    dead_letters = f", {one['dead_letters']} rows became dead letters" if one["dead_letters"] else ""
    kind = "repair" if one["why"] == "repair" else "backfill"
    counts = f"{done} of {len(tables)} tables done{dead_letters}{rest}"
    lines = [f"  {kind} {one['number']} as of {one['timestamp']}: {counts}"]
    for table in tables:
        why = f": {table['why']}" if table["why"] else ""
        lines.append(
            f"    {table['table']}: {table['state']}, {table['partitions']} of {table['planned'] or '?'} partitions,"
            f" {table['rows']} rows, {table['bytes']} bytes{why}"
        )
    return lines


def healed(gap: Report) -> str:
    """The end of a line about a gap: the tables that a backfill has read again, and those that sinks have repaired."""
    tables, repaired = gap["healed"], gap["repaired"]
    ends = [f"; equal to Spanner since at sink {sink}: {', '.join(names)}" for sink, names in repaired.items()]
    if tables:
        ends.insert(0, f"; read again by a backfill since, except for rows deleted within it: {', '.join(tables)}")
    return "".join(ends) or (
        "; `spanner-cdc backfill CONFIG` reads the tables again, `spanner-cdc verify CONFIG --repair` what differs"
    )


def incompleteness(spool: Spool, consumer: str) -> Report:
    """The tables of a sink that are incomplete before its start; empty if nothing is known to be missing.

    Raises:
        SpoolError: a document is corrupt or cannot be read.
    """
    found = incomplete_tables(spool, consumer)
    if not found:
        return {}
    return {"incomplete_before": format_rfc3339(max(found.values())), "tables_incomplete_before": sorted(found)}


def lacking(consumer: Report) -> str:
    """The end of a line about a consumer: which tables are incomplete, by :func:`incompleteness`."""
    tables = consumer.get("tables_incomplete_before")
    if tables is None:
        return ""
    more = f" and {len(tables) - _NAMED_TABLES} more" if len(tables) > _NAMED_TABLES else ""
    return f"; incomplete before {consumer['incomplete_before']}: {', '.join(tables[:_NAMED_TABLES])}{more}"


@asynccontextmanager
async def reported(spool: Spool, document: Backfill, screen: TextIO | None = None) -> AsyncIterator[None]:
    """Logs the progress of a backfill at intervals and at its end; on a terminal, draws a bar instead until the end.

    Warns, once, where at the present speed its rows will not be retained until its end.
    """
    number = document.number
    expires = document.timestamp + parse_duration(document.version_retention_period)
    is_warned = False
    started = time.monotonic()
    first: BackfillProgress | None = None

    async def report() -> None:
        nonlocal first, is_warned
        try:
            one = await asyncio.to_thread(find, spool, number)
        except SpoolError:  # of a bucket that does not answer now; the process reports what matters
            return
        if one is not None:
            first = first or one.progress
            line = _line(one.progress, first, time.monotonic() - started)
            if screen is None:
                _log.info(document.kind, action="backfill", number=number, **line)
            else:
                draw(screen, bar(line))
            left, kept = line["seconds_left"], (expires - time.time_ns()) // SECOND
            if not is_warned and isinstance(left, int) and left > kept:
                is_warned = True
                _log.warning(
                    "at this speed Spanner will not retain the rows of the backfill until its end; what is left then"
                    " is read at a new timestamp by the next run",
                    number=number,
                    seconds_left=left,
                    retained_s=kept,
                )

    async def keep_reporting() -> None:
        while True:
            await asyncio.sleep(_INTERVAL if screen is None else REDRAW)
            await report()

    try:
        async with in_background(keep_reporting(), name="progress of the backfill"):
            yield
    finally:
        if screen is not None:
            draw(screen, "")
            screen = None
        await report()


def bar(line: Line) -> str:
    """The fields of a line of progress, with a bar of the partitions that are read."""
    read, _, planned = str(line["partitions"]).partition("/")
    share = int(read) / int(planned) if planned.isdecimal() and int(planned) else 0
    left = line["seconds_left"]
    rest = f"{timedelta(seconds=left)} left" if isinstance(left, int) else "time left unknown"
    return (
        f"{share_drawn(share)} {read}/{planned} partitions  {line['rows']:,} rows  {line['mb']:,} MB"
        f"  {line['tables_done']} tables  {rest}"
    )


def _line(now: BackfillProgress, first: BackfillProgress, seconds: float) -> Line:
    """The fields of a line: sums of all tables, and the time that is left if it continues at this speed."""
    read, planned = _partitions(now)
    since = read - _partitions(first)[0]
    is_planned = all(table.planned for table in now.tables)
    left = round((planned - read) * seconds / since) if since > 0 and is_planned else None
    return {
        "partitions": f"{read}/{planned if is_planned else '?'}",
        "rows": sum(table.rows for table in now.tables),
        "mb": round(sum(table.bytes for table in now.tables) / 1e6, 1),
        "tables_done": f"{sum(table.state == 'done' for table in now.tables)}/{len(now.tables)}",
        "seconds_left": "unknown" if left is None else left,
    }


def _partitions(progress: BackfillProgress) -> tuple[int, int]:
    return sum(table.partitions for table in progress.tables), sum(table.planned for table in progress.tables)
