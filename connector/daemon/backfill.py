"""``spanner-cdc backfill``: every row of the watched tables as of one timestamp, delivered like changes.

The timestamp is Spanner's clock, and it is in the spool before anything is read: a spool that does not exist yet is
created with its start right after it. Reading and delivering is done by a process of Spark's, beside the one of the
stream if that runs. A backfill that was stopped or killed continues with what is missing. Backfills of different tables
may be unfinished at the same time: what sinks remember for one is remembered for each table.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.core.health.retries import BACKFILL
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_report import log_done, rejected, reported
from connector.daemon.backfill_requests import Requests
from connector.daemon.due_backfills import due_by_command, header_for_backfill, log_stopped
from connector.daemon.sink_process import (
    BothHalves,
    Patience,
    ReportedAs,
    SinkFailedPermanentlyError,
    SinkProcess,
    SinkProcessError,
)
from connector.errors import ConfigurationError, DataLostError, SpoolError
from connector.log import Log, style_arguments, terminal
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spanner.versions import row_versions
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import RecordedBackfill, backfills, find, spool_path, unfinished_of
from connector.spool.consumers import done
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_background, in_thread

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
    """Starts a backfill or continues each unfinished one, until every row is delivered or ``stop`` is set.

    Args:
        config: the configuration.
        path: its file, for the process of Spark.
        stop: lets what is read be delivered, and ends.
        options: how the tables are read.

    Raises:
        ConfigurationError: a table is not watched, or is in another backfill that is not finished.
        DataLostError: Spanner no longer retains the rows as of the backfill's timestamp.
        SinkFailedPermanentlyError: the backfill is done, but it has stopped tables.
        SpannerCdcError: one clear line; what is in the backfill's spool is kept.
    """
    if options.data_boost and config.source.edition == "omni":
        raise ConfigurationError(["--data-boost: Spanner Omni has no Data Boost: omit it"])
    spool = Spool.at(config.spool.path)
    left = {one.document.number for one in unfinished_of(await in_thread(backfills, spool))}
    is_first = True
    while is_first or (left and not options.tables and not stop.requested):
        async with opened(config.source, started=True) as stream:
            versions = await row_versions(stream.client, stream.dialect)
            header = await in_thread(header_for_backfill, spool, config, stream)
            waits = sink_type(config.sink.type).waits_for_backfill
            recorder = BackfillRecorder(spool, header, stream, versions, Requests.of(stream), reads_parents=waits)
            due = await in_thread(due_by_command, recorder, config, options.tables, left, is_first=is_first)
        if due is None:
            return
        is_first = False
        left -= {due.number, due.continues}
        if due.tables:  # else all that were left are no longer watched
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
    own, halves = Spool.at(spool_path(spool.path, number)), BothHalves()

    def progress() -> int:
        try:
            delivered, one, sealed = done(own, config.sink.name), find(spool, number), own.latest()
        except SpoolError:
            return 0  # unknown progress counts as none
        read = sum(table.partitions for table in one.progress.tables) if one else 0
        return halves.progress(delivered=delivered, read=read, is_idle=delivered >= sealed)

    def is_done() -> bool:
        """True if every row that is to be read is delivered; tables that were resumed meanwhile are read next."""
        with suppress(SpoolError):
            delivered, one = done(own, config.sink.name), find(spool, number)
            if one is None or not one.is_open or one.is_stopped:
                return True
            return not one.is_read and delivered >= own.latest()
        return False

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
            is_done=is_done,
            reported_as=ReportedAs("the process of the backfill", BACKFILL, spool, config.sink.name, str(number)),
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
        log_stopped(state)


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

    async with in_background(drain(), name="stop of the backfill"):
        yield
