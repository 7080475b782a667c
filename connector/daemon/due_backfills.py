"""The backfills that are due: those that are not finished, and new ones."""

from collections.abc import Collection, Sequence
from contextlib import suppress

from connector.check.backfilled_tables import tables_of
from connector.check.starts import start_after
from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.errors import ConfigurationError, SpoolError, SpoolInUseError
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import RecordedBackfill, backfills, check_movable, unfinished_of
from connector.spool.reading import Spool, SpoolHeader
from connector.spool.storage.store import contents
from connector.spool.writing import initialize, sole_writer

_log = Log(__name__)


def due_at_start(recorder: BackfillRecorder) -> list[Backfill]:
    """The backfill of ``source.backfill``, recorded if the spool has none, and others that are not done.

    One whose timestamp is lost is recorded again. The caller holds the spool's lock.
    """
    known = backfills(recorder.spool)
    unfinished, due = unfinished_of(known), list[Backfill]()
    for one in unfinished:
        if one.is_stopped:
            log_stopped(one)
        else:
            due.append(recorder.continued(one))
    if not unfinished and all(one.document.is_repair for one in known):
        due.append(recorder.first(tables_of(recorder.stream), after=len(known), why="start"))
    return [document for document in due if document.tables]


def interrupted_repairs(spool: Spool) -> list[Backfill]:
    """The repairs that are recorded and not done, and that no process delivers."""
    found = []
    for one in unfinished_of(backfills(spool)):
        if one.document.is_repair and one.is_open:
            with suppress(SpoolInUseError), sole_writer(one.spool):
                found.append(one.document)
    for document in found:
        _log.info("a repair continues", action="a_backfill_continues", number=document.number)
    return found


def due_by_command(
    recorder: BackfillRecorder, config: Config, patterns: tuple[str, ...], left: Collection[int], *, is_first: bool
) -> Backfill | None:
    """The backfill that a command delivers next; None if there is no other.

    Args:
        recorder: of the change stream's backfills.
        config: the configuration.
        patterns: of the tables that the command names; empty for all.
        left: the numbers of those that were not finished when it began, and that it has not tried.
        is_first: whether it has delivered none yet.

    Raises:
        ConfigurationError: see :func:`connector.daemon.backfill.backfill`.
        SpoolError: all tables that are left are stopped, or the spool cannot be read or written.
        SpannerCdcError: Spanner cannot be reached.
    """
    known = backfills(recorder.spool)
    unfinished = unfinished_of(known)
    tables = tables_of(recorder.stream, patterns)
    names = frozenset(table.table for table in tables)
    one = _continuable(unfinished, names if patterns else None, left, has_parents=recorder.reads_parents)
    if one is not None:
        return recorder.continued(one)
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
    return recorder.first(tables, after=len(known), why="command")


def _continuable(
    unfinished: Sequence[RecordedBackfill], names: frozenset[str] | None, left: Collection[int], *, has_parents: bool
) -> RecordedBackfill | None:
    """The unfinished backfill that a command continues; None if there is none.

    Args:
        unfinished: in order.
        names: the tables that the command names; None if it names none.
        left: the numbers of those that it may continue without naming tables.
        has_parents: whether backfills have tables beside those that a command names.

    Raises:
        ConfigurationError: one has some of these tables.
        SpoolError: the tables that it has left are stopped.
    """
    if names is None:
        return next((one for one in unfinished if not one.is_stopped and one.document.number in left), None)
    for one in unfinished:
        tables = {table.table for table in one.document.tables}
        is_left = has_parents and names <= tables and not names.isdisjoint(one.progress.unfinished)
        if not one.document.is_repair and (names == tables or is_left):
            if one.is_stopped:
                raise _all_stopped([one])
            return one
        if names.intersection(one.progress.unfinished):
            unread = ", ".join(sorted(one.progress.unfinished))
            has = f"{one.document.kind} {one.document.number} of {unread} is not finished"
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


def header_for_backfill(spool: Spool, config: Config, stream: OpenStream) -> SpoolHeader:
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
        return new_header(spool, stream, start_after(stream.now), before)


def new_header(spool: Spool, stream: OpenStream, start: int, before: bytes | None) -> SpoolHeader:
    """Writes the header of a spool for a stream that begins at ``start``; arguments as of :func:`initialize`."""
    return initialize(
        spool,
        stream.config.name,
        start,
        stream.config.start,
        stream.stream.tables,
        default_schema=stream.source.default_schema,
        placements=stream.placements,
        columns=stream.config.rules_fingerprint,
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
