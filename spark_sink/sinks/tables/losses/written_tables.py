"""Tables that somebody has dropped, or set back to an older state: they lack rows until a backfill brings them.

A table says itself up to which epoch it is, and leaves out what it has. So it continues from any state, also from one
without what the sink has committed. The sink's report in the spool has the id of each table and an epoch that it was
seen to have: another id, or a smaller epoch, is a loss. It is recorded before the table is written again, because the
next commit has a larger epoch.

The number of Iceberg is lost with its snapshots, and the one of Delta may expire: a table of the same id without any
number has lost nothing.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connector import log
from connector.spool.backfill.equal_tables import equal_tables
from connector.spool.backfill.records import RecordedBackfill, backfills
from connector.spool.sink_report import SinkReport, WrittenTable, report_of, write_report
from spark_sink.sinks.shared.feed import Feed


@dataclass(frozen=True, slots=True)
class TableNow:
    """A table at the destination.

    Attributes:
        id: its own; empty if it is not known.
        epoch: its last epoch.
        is_new: true if it surely has had none, where that is 0.
        up_to: the commit timestamp up to which it may have changes; 0 before it is written.
    """

    id: str
    epoch: int
    is_new: bool = False
    up_to: int = 0


Met = Callable[[Mapping[str, TableNow]], None]
"""Is called with the tables that are about to be written, by their names in the source."""


class WrittenTables:
    """The tables of a sink, as its report has them.

    Args:
        feed: the spool that is delivered.
        consumer: the sink's name.

    Raises:
        SpoolError: from every method, if the spool cannot be read or written.
    """

    def __init__(self, feed: Feed, consumer: str) -> None:
        self._feed = feed
        self._consumer = consumer

    def met(self, tables: Mapping[str, TableNow]) -> None:
        """Is called before tables are written; records and names those that have lost rows.

        Args:
            tables: by their names in the source.
        """
        known = report_of(self._feed.spool, self._consumer).written
        due = {table: now for table, now in tables.items() if table in known and _has_lost(known[table], now)}
        if not due:
            return
        recorded = backfills(self._feed.stream)
        lost = {table: self._needed(table, known[table], now, recorded) for table, now in due.items()}
        report = report_of(self._feed.stream, self._consumer)
        after = report.loses(lost)
        if after == report:
            return  # a later epoch of a backfill
        write_report(self._feed.stream, self._consumer, after)
        for table in due:
            log.say(
                "spark_sink",
                f"table {table} lacks rows: it was dropped, replaced, or set back to an older state at the destination"
                f" since the sink wrote it. It continues, and its cuts are incomplete until `spanner-cdc backfill"
                f" --table {table}` is done",
                action="rows_lost",
                level=logging.WARNING,
                table=table,
            )

    def after(self, report: SinkReport, tables: Mapping[str, TableNow]) -> SinkReport:
        """The report after tables were written."""
        known = report.written
        written = {
            table: WrittenTable(
                id=now.id, epoch=now.epoch, up_to=max(now.up_to, known[table].up_to if table in known else 0)
            )
            for table, now in tables.items()
        }
        return report.model_copy(update={"written": {**known, **written}})

    def _needed(self, table: str, before: WrittenTable, now: TableNow, recorded: list[RecordedBackfill]) -> int:
        """The commit timestamp as of which a backfill must be, to have what a table lost.

        It is later than that of each whose rows may be lost, too.
        """
        lost = [
            one.document.timestamp
            for one in recorded
            if any(of.table == table for of in one.document.tables) and not self._is_there(one, table, before, now)
        ]
        if (equal := equal_tables(self._feed.stream, self._consumer).get(table)) is not None:
            lost.append(equal)
        of_stream = 0 if self._feed.is_backfill else before.up_to
        return max(of_stream, *(at + 1 for at in lost), 0)

    def _is_there(self, one: RecordedBackfill, table: str, before: WrittenTable, now: TableNow) -> bool:
        """True if all rows of a backfill that were written to a table are in the one that is there now."""
        if one.spool.path == self._feed.spool.path:
            return False
        report = report_of(one.spool, self._consumer)
        if (found := report.written.get(table)) is not None:
            return found.id == now.id != before.id
        return not report.last or bool(report.written)  # it has written none yet, unless an older program has


def _has_lost(before: WrittenTable, now: TableNow) -> bool:
    if before.id and now.id and before.id != now.id:
        return True
    return now.epoch < before.epoch and (now.epoch > 0 or now.is_new)
