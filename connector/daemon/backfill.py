"""``spanner-cdc backfill``: every row of the watched tables as of one timestamp, delivered like changes.

The timestamp is Spanner's clock, and it is in the spool before anything is read: a spool that does not exist yet is
created with its start right after it. Reading and delivering is done by a process of Spark's, beside the one of the
stream if that runs. A backfill that was stopped or killed continues with what is missing.
"""

import asyncio
import functools
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from connector.check.backfilled_tables import conditions_of, conditions_of_continued, tables_of
from connector.check.starts import start_after
from connector.config.loading import Config
from connector.config.values import parse_duration
from connector.core.health.retries import BACKFILL
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.backfill_report import log_done, rejected, reported
from connector.daemon.backfill_requests import Requests
from connector.daemon.sink_process import (
    Patience,
    ReportedAs,
    SinkFailedPermanentlyError,
    SinkProcess,
    SinkProcessError,
)
from connector.errors import ConfigurationError, DataLostError, SpoolError
from connector.log import Log, style_arguments, terminal
from connector.process import cores
from connector.reader.change_stream import OpenStream, opened
from connector.reader.stopping import StopRequest
from connector.spanner.versions import RowVersions, row_versions
from connector.spool.backfill.documents import Backfill, Why
from connector.spool.backfill.records import RecordedBackfill, backfills, check_movable, find, record, spool_path
from connector.spool.backfill.requests import withdraw_requests
from connector.spool.consumers import find as find_consumer
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.storage.store import contents
from connector.spool.writing import initialize, sole_writer
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

_MICROSECOND = 1000
_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """The options for reading the tables.

    Attributes:
        tables: patterns of the tables to read; empty for all that the configuration keeps.
        data_boost: whether Spanner reads with compute resources of its own, which are billed.
        rpc_priority: low, medium or high.
    """

    tables: tuple[str, ...] = ()
    data_boost: bool = False
    rpc_priority: str = "medium"


async def backfill(
    config: Config,
    path: Path,
    stop: StopRequest,
    *,
    options: BackfillOptions = BackfillOptions(),
) -> None:
    """Starts a backfill or continues an unfinished one, until every row is delivered or ``stop`` is set.

    Args:
        config: the configuration.
        path: its file, for the process of Spark.
        stop: lets what is read be delivered, and ends.
        options: how the tables are read.

    Raises:
        ConfigurationError: a table is not watched, or a backfill of other tables is not finished.
        DataLostError: Spanner no longer retains the rows as of the backfill's timestamp.
        SinkFailedPermanentlyError: the backfill is done, but it has stopped tables.
        SpannerCdcError: one clear line; what is in the backfill's spool is kept.
    """
    if options.data_boost and config.source.edition == "omni":
        raise ConfigurationError(["--data-boost: Spanner Omni has no Data Boost: omit it"])
    spool = Spool.at(config.spool.path)
    async with opened(config.source, started=True) as stream:
        versions = await row_versions(stream.client, stream.dialect)
        due = await in_thread(
            functools.partial(_due_by_command, spool, config, stream, versions, Requests.of(stream), options.tables)
        )
    if not due.tables:  # all that were left are no longer watched
        return
    stop.reading = True
    metrics = ReaderMetrics()
    await delivered(config, path, stop, due, options=options, metrics=metrics, screen=terminal())
    check_rejected(find(spool, due.number))


def check_rejected(one: RecordedBackfill | None) -> None:
    """Checks that no table was stopped by a backfill that is done: its rows are not at the destination.

    Raises:
        SinkFailedPermanentlyError: one was.
    """
    if one is not None and one.progress.is_done and (stopped := rejected(one).stopped):
        whys = "; ".join(f"{table}: {why}" for table, why in sorted(stopped.items()))
        name = f"{one.document.kind} {one.document.number}"
        raise SinkFailedPermanentlyError(
            f"{name} is done, but rows of tables that it stopped are dead letters: {whys}",
            hint="Once they are mended, stop the sink, and run `spanner-cdc dead-letters replay`.",
        )


def due_at_start(
    spool: Spool, header: SpoolHeader, stream: OpenStream, versions: RowVersions, requests: Requests
) -> Backfill | None:
    """The backfill of ``source.backfill``: recorded if the spool has none, and again if its timestamp is lost.

    The caller holds the spool's lock. None if it is done.
    """
    known = backfills(spool)
    unfinished = unfinished_of(known)
    if unfinished is not None and unfinished.is_stopped:
        _log_stopped(unfinished)
        return None
    if unfinished is not None:
        document = _continued(spool, header, stream, versions, requests, unfinished, after=len(known))
        return document if document.tables else None
    if not all(one.document.is_repair for one in known):
        return None
    return first_recorded(spool, header, stream, versions, requests, tables_of(stream), after=len(known), why="start")


def _due_by_command(
    spool: Spool,
    config: Config,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
    patterns: tuple[str, ...],
) -> Backfill:
    header = _header(spool, config, stream)
    known = backfills(spool)
    unfinished = unfinished_of(known)
    if unfinished is not None and unfinished.is_stopped:
        left = ", ".join(unfinished.progress.unfinished)
        raise SpoolError(
            f"backfill {unfinished.document.number} is not finished: its tables {left} are stopped",
            hint="`spanner-cdc backfill CONFIG --resume TABLE` resumes one.",
        )
    tables = tables_of(stream, patterns)
    if unfinished is None:
        return first_recorded(spool, header, stream, versions, requests, tables, after=len(known), why="command")
    names = {table.table for table in unfinished.document.tables}
    if patterns and {table.table for table in tables} != names:
        number = unfinished.document.number
        other = f"backfill {number} of {', '.join(sorted(names))} is not finished"
        raise ConfigurationError([f"--table: {other}: run `spanner-cdc backfill CONFIG` without --table to finish it"])
    return _continued(spool, header, stream, versions, requests, unfinished, after=len(known))


def unfinished_of(known: Collection[RecordedBackfill]) -> RecordedBackfill | None:
    """The first backfill that is not done and that no other continues; a new one is made only when there is none."""
    continued = {one.document.continues for one in known}
    left = (one for one in known if not one.progress.is_done and one.document.number not in continued)
    return next(left, None)


def _continued(
    spool: Spool,
    header: SpoolHeader,
    stream: OpenStream,
    versions: RowVersions,
    requests: Requests,
    one: RecordedBackfill,
    *,
    after: int,
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
        return recorded(
            spool,
            header,
            stream,
            versions,
            requests,
            tables,
            after=after,
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


async def delivered(
    config: Config,
    path: Path,
    stop: StopRequest,
    document: Backfill,
    *,
    options: BackfillOptions,
    metrics: ReaderMetrics,
    patience: Patience = Patience(),  # noqa: B008 - frozen
    screen: TextIO | None = None,
) -> None:
    """Runs the process that reads and delivers a backfill, until it is done or until ``stop``.

    Raises:
        DataLostError: Spanner no longer retains the rows as of its timestamp.
        SinkProcessError: the process ended with a final error, or too often without progress.
    """
    spool, number = Spool.at(config.spool.path), document.number
    own = Spool.at(spool_path(spool.path, number))

    def progress() -> int:
        try:
            consumer, one = find_consumer(own, config.sink.name), find(spool, number)
        except SpoolError:
            return 0  # unknown progress counts as none
        sealed = sum(table.partitions for table in one.progress.tables) if one else 0
        return sealed + (consumer.epoch if consumer else 0)

    how = ["--rpc-priority", options.rpc_priority, *(["--data-boost"] if options.data_boost else [])]
    command = [sys.executable, "-P", "-m", "spark_sink", str(path), "--backfill", str(number), *how, *style_arguments()]
    while True:
        process = SinkProcess(
            command,
            progress=progress,
            stop=stop,
            drain=config.drain_timeout / SECOND,
            metrics=metrics,
            patience=patience,
            reported_as=ReportedAs("the process of the backfill", BACKFILL, spool, config.sink.name),
        )
        async with _drained_when_stopped(process, stop), reported(spool, document, screen):
            try:
                await process.run()
            except SinkProcessError as error:
                one = find(spool, number)
                if one is None or not one.progress.lost:
                    raise
                raise _lost(one) from error
        state = find(spool, number)
        if state is None or stop.requested or not state.is_open or state.is_read or state.is_stopped:
            break
        left = len(state.progress.unfinished)  # resumed while the process delivered what the others have
        _log.info("a backfill continues", action="a_backfill_continues", number=number, tables=left)
    if state is not None and state.progress.is_done:
        log_done(state)
    elif state is not None and state.is_stopped:
        _log_stopped(state)


def _log_stopped(one: RecordedBackfill) -> None:
    _log.warning(
        "the tables that a backfill has left are stopped; `spanner-cdc backfill CONFIG --resume TABLE` resumes one",
        action="backfill_stopped",
        number=one.document.number,
        tables=", ".join(one.progress.unfinished),
    )


def log_failure(error: BaseException, *, stream_continues: bool = True) -> None:
    """Logs the error of a backfill beside a stream: its changes are retained for a limited time."""
    if stream_continues:
        _log.error(
            "the backfill has ended with an error; the stream continues, and a restart continues the backfill",
            error=error,
        )
    else:
        _log.error(
            "the backfill has ended with an error, and the sink delivers no changes without it; a restart continues it",
            error=error,
        )


def _lost(one: RecordedBackfill) -> DataLostError:
    """The error for a backfill that cannot be finished at its timestamp."""
    at, left = format_rfc3339(one.document.timestamp), ", ".join(one.progress.unfinished)
    why, hint = one.progress.why_lost, "Run it again: those tables are read at a new timestamp, without a gap."
    if not why:
        why = f"Spanner no longer retains the rows as of {at}"
        hint += " A longer version_retention_period of the database, or more executors, give it more time."
    return DataLostError(f"backfill {one.document.number}: {why}; not done: {left}", hint=hint)


@asynccontextmanager
async def _drained_when_stopped(process: SinkProcess, stop: StopRequest) -> AsyncIterator[None]:
    async def drain() -> None:
        await stop.wait()
        process.finish(again=False)

    draining = asyncio.create_task(drain(), name="stop of the backfill")
    try:
        yield
    finally:
        draining.cancel()
        await asyncio.wait({draining})
