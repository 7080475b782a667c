"""Records backfills, new ones and the rest of those whose timestamp is lost, before anything is read."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from connector.check.backfilled_tables import conditions_of, conditions_of_continued
from connector.check.starts import start_after
from connector.config.backfill_rules import check_bounded
from connector.config.values import parse_duration
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.backfill_requests import Requests
from connector.log import Log
from connector.process import cores
from connector.reader.change_stream import OpenStream
from connector.spanner.versions import RowVersions, row_versions
from connector.spool.backfill.documents import Backfill, Why
from connector.spool.backfill.records import (
    RecordedBackfill,
    backfills,
    check_not_continued,
    find,
    record,
    unfinished_of,
)
from connector.spool.backfill.requests import withdraw_requests
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.writing import sole_writer

_MICROSECOND = 1000
_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class BackfillRecorder:
    """Records backfills of a change stream's tables in its spool.

    Attributes:
        spool: the change stream's.
        header: its header.
        stream: the change stream.
        versions: of the database's rows.
        requests: to Spanner, from another thread.
        reads_parents: whether the tables that rows refer to are read, too, because the sink holds their changes back
            meanwhile: a parent that was committed since would be at the destination neither from them nor from a row.
    """

    spool: Spool
    header: SpoolHeader
    stream: OpenStream
    versions: RowVersions
    requests: Requests
    reads_parents: bool = False

    @classmethod
    async def of(cls, spool: Spool, header: SpoolHeader, stream: OpenStream, *, reads_parents: bool = False) -> Self:
        """The recorder of a stream, which asks Spanner how long it keeps versions of rows."""
        versions = await row_versions(stream.client, stream.dialect)
        return cls(spool, header, stream, versions, Requests.of(stream), reads_parents)

    def first(self, tables: list[TableSchema], *, after: int, why: Why) -> Backfill:
        """Records a backfill that continues no other, with the configured conditions; see :meth:`record`.

        With ``reads_parents`` also of the tables that rows of these refer to.

        Raises:
            ConfigurationError: as of :func:`connector.check.backfilled_tables.conditions_of`, or a table has none and
                the stream is of some placements.
            SpannerCdcError: Spanner cannot be reached, or the disk refuses.
        """
        conditions = conditions_of(self.stream)
        tables = self._with_parents(tables)
        check_bounded(self.stream.config.placements, (table.table for table in tables), conditions)
        return self.record(tables, after=after, why=why, conditions=conditions)

    def continued(self, one: RecordedBackfill) -> Backfill:
        """The same backfill; or one of its unfinished tables at a new timestamp, if its own is lost or a table is gone.

        Raises:
            ConfigurationError: as of :meth:`first`, of tables that are not read.
            SpoolError: another process has just continued it.
            SpannerCdcError: Spanner cannot be reached, or the disk refuses.
        """
        number, at = one.document.number, format_rfc3339(one.document.timestamp)
        left = set(one.progress.unfinished)
        conditions, changed = conditions_of_continued(self.stream, one.document, left)
        tables = [table for table in self.stream.kept_tables if table.table in left]
        gone = left.difference(table.table for table in tables)
        is_retained = self.stream.now <= one.document.timestamp + parse_duration(self.versions.period) or one.is_read
        is_sealed = one.document.is_repair and not one.progress.lost
        if not (is_sealed or one.is_read):
            check_bounded(self.stream.config.placements, (table.table for table in tables), conditions)
        is_same = not gone and (not changed or one.is_read)
        if is_sealed or (one.is_open and is_retained and is_same):
            kind = one.document.kind
            _log.info(
                f"a {kind} continues", action="a_backfill_continues", number=number, timestamp=at, tables=len(left)
            )
            return one.document
        too_old = one.progress.why_lost or "the rows of a backfill are no longer retained"
        other = "tables of a backfill have other conditions now" if changed else too_old
        why = "tables of a backfill are no longer watched" if gone else other
        _log.warning(
            f"{why}; what is left is read at a new timestamp, and nothing is missed: the stream has every change since",
            action="backfill_at_new_timestamp",
            number=number,
            timestamp=at,
            tables=", ".join(table.table for table in tables),
            omitted=", ".join(sorted(gone)),
        )
        why_again: Why = "command" if one.document.is_repair else one.document.why
        with sole_writer(
            one.spool
        ):  # its process would deliver rows of the earlier timestamp beside those of the later
            check_not_continued(self.spool, number)
            newest = find(self.spool, number)
            tables = [table for table in tables if newest is None or table.table in newest.progress.unfinished]
            known = backfills(self.spool)
            widened = self._with_parents(tables, known)
            check_bounded(self.stream.config.placements, (table.table for table in widened), conditions)
            also = {table.table for table in widened if table not in tables}
            withdraw_requests(self.spool, also, "stop")  # of an earlier backfill
            return self.record(widened, after=len(known), why=why_again, continues=number, conditions=conditions)

    def _with_parents(self, tables: list[TableSchema], known: Sequence[RecordedBackfill] = ()) -> list[TableSchema]:
        """Tables, and those that their rows need; see ``reads_parents``.

        Args:
            tables: the tables.
            known: backfills whose unfinished tables are not added.

        Raises:
            SpannerCdcError: Spanner cannot be reached.
        """
        if not (self.reads_parents and tables):
            return tables
        names, rules = {table.table for table in tables}, self.stream.config.backfill
        needed = self.requests.relations().with_parents(names) - names
        for one in unfinished_of(known):
            needed.difference_update(one.progress.unfinished)
        also = [
            table
            for table in self.stream.kept_tables
            if table.table in needed and not (rules is not None and rules.excludes(table.table))
        ]
        if also:
            _log.info(
                "tables that others refer to are read, too, because their changes wait for the backfill",
                action="backfill_reads_parents",
                tables=", ".join(sorted(names)),
                too=", ".join(table.table for table in also),
            )
        return [*tables, *also]

    def record(
        self,
        tables: list[TableSchema],
        *,
        after: int,
        why: Why,
        continues: int = 0,
        conditions: Mapping[str, str] | None = None,
        fill: Callable[[Spool, Backfill], None] | None = None,
    ) -> Backfill:
        """Records a backfill of tables, parents first, at a timestamp of Spanner's clock.

        Args:
            tables: the tables.
            after: how many backfills there are.
            why: what started it.
            continues: the backfill whose unfinished tables these are, or 0.
            conditions: in SQL, by the names of the tables whose rows must satisfy them.
            fill: as of :func:`connector.spool.backfill.records.record`.

        Raises:
            SpannerCdcError: Spanner cannot be reached, or the disk refuses.
        """
        # At or after the timestamp before the stream's start, so that no change lies between the two.
        least = -(-(self.header.start - 1) // _MICROSECOND) * _MICROSECOND

        def timestamp() -> int:
            if self.spool.latest() == 0 and after == 0:  # no change can have been delivered
                return least
            return max(start_after(self.requests.clock()) - 1, least)

        by_name = {table.table: table for table in tables}
        if not continues:  # of an earlier backfill
            withdraw_requests(self.spool, by_name)
        document = record(
            self.spool,
            self.header,
            [by_name[name] for name in self.requests.relations().parents_first(by_name)],
            timestamp=timestamp,
            as_of=self.requests.tables,
            after=after,
            why=why,
            dialect=self.stream.dialect.name,
            continues=continues,
            version_retention_period=self.versions.period,
            conditions=conditions,
            now=time.time_ns(),
            fill=fill,
        )
        _log.info(
            f"{document.kind} recorded",
            action="backfill_recorded",
            number=document.number,
            timestamp=format_rfc3339(document.timestamp),
            tables=", ".join(table.table for table in tables),
        )
        if fill is None:
            _warn_of_period(self.versions, [table.table for table in tables])
        return document


def _warn_of_period(versions: RowVersions, tables: list[str]) -> None:
    """Warns, before anything is read, of a backfill that probably takes longer than Spanner keeps old versions."""
    seconds, period = versions.seconds(tables, cores()), parse_duration(versions.period) / SECOND
    if seconds is not None and seconds > period / 2:
        _log.warning(
            "the backfill may take longer than the database keeps old versions of rows, and could not be finished at"
            " its timestamp: set a longer version_retention_period first",
            estimated_s=round(seconds),
            version_retention_period=versions.period,
        )
