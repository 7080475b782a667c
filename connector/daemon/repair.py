"""``spanner-cdc verify --repair``: delivers the rows that differ at a destination, as they are in Spanner.

A repair is a backfill of these rows alone (:mod:`connector.daemon.backfill`). Its timestamp is chosen once its tables
count as unfinished, so that a sink remembers what later changes delete. Its rows are read before it is recorded, and
then delivered by the process of a backfill. One that was killed meanwhile continues with what is not delivered.
"""

import time
from contextlib import suppress
from pathlib import Path

from connector.config.loading import Config
from connector.daemon.backfill import BackfillOptions, check_rejected, delivered
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_report import rejected
from connector.errors import ConfigurationError, SpoolError
from connector.log import Log, terminal
from connector.proof.verify.differing_keys import DifferingKeys
from connector.proof.verify.repairing import RepairFiller, StoppedError
from connector.proof.verify.report import RepairReport, VerifyReport
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.equal_tables import keep_equal
from connector.spool.backfill.records import RecordedBackfill, backfills, find, record, unfinished_of, withdraw
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, stopped_by
from connector.spool.writing import sole_writer
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

_log = Log(__name__)


async def finish_earlier(config: Config, path: Path, stop: StopRequest) -> None:
    """Delivers what an earlier repair has left, before anything is compared.

    Args:
        config: the configuration.
        path: its file, for the process of Spark.
        stop: lets what is read be delivered, and ends.

    Raises:
        ConfigurationError: a backfill is not finished: its rows would count as missing.
        SpoolMismatchError: the spool holds another change stream, or is written with other rules for columns.
        SpannerCdcError: one clear line.
    """
    spool = Spool.at(config.spool.path)
    with suppress(FileNotFoundError):
        await in_thread(spool.check_source, config.source.name, config.source.rules_fingerprint)
    await in_thread(withdraw, spool)
    for one in await in_thread(backfills, spool):
        number = one.document.number
        if one.progress.is_done or await in_thread(_is_continued, spool, number):
            continue
        if not one.document.is_repair:
            raise _not_finished(spool, one)
        if one.progress.lost:
            await in_thread(_give_up, spool, one)
            continue
        _log.info("an earlier repair is finished first", number=number)
        await _delivered(config, path, stop, one.document)


async def repair(config: Config, path: Path, stop: StopRequest, keys: DifferingKeys, report: RepairReport) -> None:
    """Delivers the rows with these keys as they are now in Spanner.

    Args:
        config: the configuration.
        path: its file, for the process of Spark.
        stop: lets what is read be delivered, and ends.
        keys: of the rows.
        report: gets the repair's timestamp, and is marked once it is delivered.

    Raises:
        ConfigurationError: a table is stopped; or a backfill was recorded while rows were compared, and is not
            finished.
        DataLostError: it could not be merged: run it again.
        SinkFailedPermanentlyError: it is done, but it has stopped tables.
        SpannerCdcError: one clear line; what is recorded is delivered by the next run.
    """
    spool = Spool.at(config.spool.path)
    header = spool.check_source(config.source.name, config.source.rules_fingerprint)
    await in_thread(_check_stopped, spool, config.sink.name, keys)
    size = config.spool.max_bytes
    fill = RepairFiller(config.source, config.envelope.stream_name, keys, size, lambda: stop.requested).fill
    async with opened(config.source, started=True) as stream:
        tables = [table for table in stream.stream.tables if table.table in keys.tables]
        known = await in_thread(backfills, spool)
        if unfinished := unfinished_of(known):  # since the comparison began
            raise _not_finished(spool, unfinished[0])
        recorder = await BackfillRecorder.of(spool, header, stream)
        try:
            document = await in_thread(recorder.record, tables, after=len(known), why="repair", fill=fill)
        except StoppedError:  # nothing is left of it
            return
    report.timestamp = document.timestamp
    await _delivered(config, path, stop, document)
    found = find(spool, document.number)
    if found is not None and found.progress.is_done:
        report.is_delivered, report.dead_letters = True, rejected(found).refused


def _check_stopped(spool: Spool, sink: str, keys: DifferingKeys) -> None:
    """Checks that no table is stopped: its dead letters are older than the repair, and would bring deleted rows back.

    Raises:
        ConfigurationError: one is, by the stream or by a backfill.
        SpoolError: that cannot be read.
    """
    stopped = stopped_by(report_of(one, sink) for one in (spool, *(known.spool for known in backfills(spool))))
    if found := [table for table in keys.tables if table in stopped]:
        which = f"table {found[0]} is" if len(found) == 1 else f"tables {', '.join(found)} are"
        line = (
            f"--repair: {which} stopped at sink {sink}: mend it, and run `spanner-cdc dead-letters replay CONFIG` first"
        )
        raise ConfigurationError([f"{line}, or name other tables with --tables"])


def keep_equality(config: Config, report: VerifyReport) -> None:
    """Records which tables the destination has as Spanner has them, so that gaps and its start leave them complete.

    Args:
        config: the configuration.
        report: of a comparison, whose differences are repaired.

    Raises:
        SpoolError: the record cannot be read or written.
    """
    keep_equal(Spool.at(config.spool.path), config.sink.name, report.equal_tables, report.timestamp)


def _not_finished(spool: Spool, one: RecordedBackfill) -> ConfigurationError:
    unfinished = f"{one.document.kind} {one.document.number} of the spool at {spool.path} is not finished"
    return ConfigurationError([f"--repair: {unfinished}: run `spanner-cdc backfill CONFIG` first"])


async def _delivered(config: Config, path: Path, stop: StopRequest, document: Backfill) -> None:
    stop.reading = True
    options, metrics = BackfillOptions(), ReaderMetrics()
    spool = Spool.at(config.spool.path)
    try:
        await delivered(config, path, stop, document, options=options, metrics=metrics, screen=terminal())
    finally:
        _warn_unless_done(spool, document.number)
    check_rejected(find(spool, document.number))


def _warn_unless_done(spool: Spool, number: int) -> None:
    with suppress(SpoolError):
        found = find(spool, number)
        if found is not None and found.is_open:
            _log.warning(
                "the repair is not finished: the next `spanner-cdc verify CONFIG --repair`, or the next start of"
                " `spanner-cdc run`, continues it; until then a sink into another Spanner database waits",
                number=number,
            )


def _is_continued(spool: Spool, number: int) -> bool:
    return any(one.document.continues == number for one in backfills(spool))


def _give_up(spool: Spool, one: RecordedBackfill) -> None:
    """Ends a repair that could not be merged at its timestamp: the rows that still differ are found again.

    Another one, without tables, continues it, so that no sink remembers anything for it.
    """
    _log.warning("an earlier repair is given up", number=one.document.number, reason=one.progress.why_lost)
    with sole_writer(one.spool):  # its process would still deliver
        record(
            spool,
            spool.header(),
            (),
            timestamp=lambda: one.document.timestamp,
            why="repair",
            dialect=one.document.dialect,
            continues=one.document.number,
            now=time.time_ns(),
        )
