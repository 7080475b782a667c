"""The backfills that are due: those that are not finished, and new ones, which are recorded before anything is read."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from connector.check.backfilled_tables import conditions_of, conditions_of_continued, tables_of
from connector.check.starts import start_after
from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.config.values import parse_duration
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.backfill_requests import Requests
from connector.errors import ConfigurationError, SpoolError
from connector.log import Log
from connector.process import cores
from connector.reader.change_stream import OpenStream
from connector.spanner.versions import RowVersions
from connector.spool.backfill.documents import Backfill, Why
from connector.spool.backfill.records import (
    RecordedBackfill,
    backfills,
    check_movable,
    check_not_continued,
    find,
    record,
)
from connector.spool.backfill.requests import withdraw_requests
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.storage.store import contents
from connector.spool.writing import initialize, sole_writer

_MICROSECOND = 1000
_log = Log(__name__)


def due_at_start(
    spool: Spool, header: SpoolHeader, stream: OpenStream, versions: RowVersions, requests: Requests
) -> list[Backfill]:
    """The backfill of ``source.backfill``, recorded if the spool has none, and others that are not done.

    One whose timestamp is lost is recorded again. The caller holds the spool's lock.
    """
    known = backfills(spool)
    unfinished, due = unfinished_of(known), list[Backfill]()
    for one in unfinished:
        if one.is_stopped:
            log_stopped(one)
        else:
            due.append(_continued(spool, header, stream, versions, requests, one))
    if not unfinished and all(one.document.is_repair for one in known):
        tables, after = tables_of(stream), len(known)
        due.append(first_recorded(spool, header, stream, versions, requests, tables, after=after, why="start"))
    return [document for document in due if document.tables]


def due_by_command(
    spool: Spool,
    config: Config,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
    patterns: tuple[str, ...],
    left: Collection[int],
    *,
    is_first: bool,
) -> Backfill | None:
    """The backfill that a command delivers next; None if there is no other.

    Args:
        spool: the change stream's.
        config: the configuration.
        stream: the change stream.
        versions: of the database's rows.
        requests: to Spanner, from another thread.
        patterns: of the tables that the command names; empty for all.
        left: the numbers of those that were not finished when it began, and that it has not tried.
        is_first: whether it has delivered none yet.

    Raises:
        ConfigurationError: see :func:`connector.daemon.backfill.backfill`.
        SpoolError: all tables that are left are stopped, or the spool cannot be read or written.
        SpannerCdcError: Spanner cannot be reached.
    """
    header = _header(spool, config, stream)
    known = backfills(spool)
    unfinished = unfinished_of(known)
    tables = tables_of(stream, patterns)
    names = frozenset(table.table for table in tables)
    one = _continuable(unfinished, names if patterns else None, left)
    if one is not None:
        return _continued(spool, header, stream, versions, requests, one)
    if not is_first:
        return None
    if unfinished and not patterns:
        if all(one.is_stopped for one in unfinished):
            raise _all_stopped(unfinished)
        return None  # another process has just recorded one
    if unfinished and sink_type(config.sink.type).waits_for_backfill:
        number = unfinished[0].document.number
        why = "its rows may need those of other tables: run `spanner-cdc backfill CONFIG` without --table to finish it"
        raise ConfigurationError([f"--table: backfill {number} into another Spanner database is not finished; {why}"])
    return first_recorded(spool, header, stream, versions, requests, tables, after=len(known), why="command")


def _continuable(
    unfinished: Sequence[RecordedBackfill], names: frozenset[str] | None, left: Collection[int]
) -> RecordedBackfill | None:
    """The unfinished backfill that a command continues; None if there is none.

    Args:
        unfinished: in order.
        names: the tables that the command names; None if it names none.
        left: the numbers of those that it may continue without naming tables.

    Raises:
        ConfigurationError: one has some of these tables.
        SpoolError: the tables that it has left are stopped.
    """
    if names is None:
        return next((one for one in unfinished if not one.is_stopped and one.document.number in left), None)
    for one in unfinished:
        if {table.table for table in one.document.tables} == names:
            if one.is_stopped:
                raise _all_stopped([one])
            return one
        if names.intersection(one.progress.unfinished):
            has = f"backfill {one.document.number} of {', '.join(sorted(one.progress.unfinished))} is not finished"
            how = "run `spanner-cdc backfill CONFIG` without --table to finish it"
            raise ConfigurationError([f"--table: {has}: {how}"])
    return None


def _all_stopped(unfinished: Sequence[RecordedBackfill]) -> SpoolError:
    """The error for a command that could only continue backfills whose tables users have stopped."""
    numbers = " and ".join(str(one.document.number) for one in unfinished)
    left = ", ".join(table for one in unfinished for table in one.progress.unfinished)
    return SpoolError(
        f"backfill {numbers} is not finished: its tables {left} are stopped",
        hint="`spanner-cdc backfill CONFIG --resume TABLE` resumes one.",
    )


def unfinished_of(known: Collection[RecordedBackfill]) -> list[RecordedBackfill]:
    """The backfills that are not done and that no other continues, in order; no two of them have the same table."""
    continued = {one.document.continues for one in known}
    return [one for one in known if not one.progress.is_done and one.document.number not in continued]


def _continued(
    spool: Spool,
    header: SpoolHeader,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
    one: RecordedBackfill,
) -> Backfill:
    """The same backfill; or one of its unfinished tables at a new timestamp, if its own is lost or a table is gone."""
    number, at = one.document.number, format_rfc3339(one.document.timestamp)
    left = set(one.progress.unfinished)
    conditions, changed = conditions_of_continued(stream, one.document, left)
    tables = [table for table in stream.kept_tables if table.table in left]
    gone = left.difference(table.table for table in tables)
    is_retained = stream.now <= one.document.timestamp + parse_duration(versions.period) or one.is_read
    is_sealed = one.document.is_repair and not one.progress.lost
    is_same = not gone and (not changed or one.is_read)
    if is_sealed or (one.is_open and is_retained and is_same):
        kind = one.document.kind
        _log.info(f"a {kind} continues", action="a_backfill_continues", number=number, timestamp=at, tables=len(left))
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
    with sole_writer(one.spool):  # its process would deliver rows of the earlier timestamp beside those of the later
        check_not_continued(spool, number)
        newest = find(spool, number)
        tables = [table for table in tables if newest is None or table.table in newest.progress.unfinished]
        return recorded(
            spool,
            header,
            stream,
            versions,
            requests,
            tables,
            after=len(backfills(spool)),
            why=why_again,
            continues=number,
            conditions=conditions,
        )


def first_recorded(
    spool: Spool,
    header: SpoolHeader,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
    tables: list[TableSchema],
    *,
    after: int,
    why: Why,
) -> Backfill:
    """Records a backfill that continues no other, with the configured conditions; see :func:`recorded`.

    Raises:
        ConfigurationError: as of :func:`connector.check.backfilled_tables.conditions_of`.
        SpannerCdcError: Spanner cannot be reached, or the disk refuses.
    """
    conditions = conditions_of(stream)
    return recorded(spool, header, stream, versions, requests, tables, after=after, why=why, conditions=conditions)


def recorded(
    spool: Spool,
    header: SpoolHeader,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
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
        spool: the change stream's spool.
        header: its header.
        stream: the change stream.
        versions: of the database's rows.
        requests: to Spanner, from another thread.
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
    least = -(-(header.start - 1) // _MICROSECOND) * _MICROSECOND

    def timestamp() -> int:
        if spool.latest() == 0 and after == 0:  # no change can have been delivered
            return least
        return max(start_after(requests.clock()) - 1, least)

    by_name = {table.table: table for table in tables}
    if not continues:  # of an earlier backfill
        withdraw_requests(spool, by_name)
    document = record(
        spool,
        header,
        [by_name[name] for name in requests.relations().parents_first(by_name)],
        timestamp=timestamp,
        as_of=requests.tables,
        after=after,
        why=why,
        dialect=stream.dialect.name,
        continues=continues,
        version_retention_period=versions.period,
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
        _warn_of_period(versions, [table.table for table in tables])
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


def _header(spool: Spool, config: Config, stream: OpenStream) -> SpoolHeader:
    """The spool's header; a spool without epochs gets its start right after the timestamp of now.

    Raises:
        ConfigurationError: source.start would put the start elsewhere than a backfill decides, or has decided.
        SpoolInUseError: a daemon is about to create it.
    """
    before = contents(spool.storage, "spool.json")
    if before is not None:
        header = spool.check_source(config.source.name, config.source.rules_fingerprint)
        if spool.latest() > 0 or header.requested_start == config.source.start:
            return header
        check_movable(spool, header)
    if config.source.start != "now":
        raise ConfigurationError(
            [f"source.start: a backfill decides where a new spool starts; leave it at now, not {config.source.start}"]
        )
    with sole_writer(spool):
        return initialize(
            spool,
            config.source.name,
            start_after(stream.now),
            config.source.start,
            stream.stream.tables,
            default_schema=stream.source.default_schema,
            placements=stream.placements,
            columns=config.source.rules_fingerprint,
            before=before,
        )


def log_stopped(one: RecordedBackfill) -> None:
    """Warns that a backfill has only stopped tables left."""
    _log.warning(
        "the tables that a backfill has left are stopped; `spanner-cdc backfill CONFIG --resume TABLE` resumes one",
        action="backfill_stopped",
        number=one.document.number,
        tables=", ".join(one.progress.unfinished),
    )
