"""The spools whose dead letters a replay may send: the change stream's, and those of its backfills.

The dead letters of a micro-batch that is not recorded as done stay, because the sink will repeat it.

A sink records the root of its store in its report, because ``sink.dead_letters`` may be a relative path. While it has
dead letters, another root is refused, unless all of them are there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc

from connector.config.destination import check_kept
from connector.config.loading import Config
from connector.errors import ConfigurationError, SpoolError
from connector.spool.backfill.records import RecordedBackfill, backfills
from connector.spool.consumers import done, find, replay_lock, sink_lock
from connector.spool.reading import Spool
from connector.spool.sink_report import SinkReport, report_of, write_report
from connector.spool.storage.locations import unbilled
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.dead_letters import DeadLetterFile, DeadLetters
from spark_sink.sinks.shared.feed import existing_spool


class ReplayedSpools:
    """Knows which dead letters a sink will write itself.

    Args:
        spools: the change stream's, then those of its backfills.
        consumer: the sink's name.
        continued: those of backfills that others continue.
    """

    def __init__(self, spools: Sequence[Spool], consumer: str, continued: Sequence[Spool] = ()) -> None:
        self._spools = spools
        self._ids = {spool.header().spool_id for spool in (*spools, *continued)}
        self._consumer = consumer
        self._done: Mapping[str, int] = {spool.header().spool_id: done(spool, consumer) for spool in spools}

    def has(self, name: str) -> bool:
        """True if the dead letters in a file of that name are of one of the spools."""
        return name.partition("_")[0] in self._ids

    def will_repeat(self, name: str, rows: pa.RecordBatch) -> bool:
        """True if the sink will repeat the micro-batch of the dead letters in a file of that name."""
        last = self._done.get(name.partition("_")[0])
        return last is not None and pc.max(rows.column("epoch")).as_py() > last

    def resume(self, table: str) -> None:
        """Reports that a table is no longer stopped."""
        for spool in self._spools:
            report = report_of(spool, self._consumer)
            if table in report.stopped:
                write_report(spool, self._consumer, report.without(table))


def replayed_spool(config: Config, *, must_have_delivered: bool = True) -> Spool:
    """The spool of the change stream whose dead letters are sent again.

    Args:
        config: the sink's configuration.
        must_have_delivered: whether the sink must have delivered from it.

    Raises:
        SpoolError: there is no spool, or the sink has never delivered from it.
        SpoolMismatchError: it is another stream's.
    """
    spool = existing_spool(config, hint="Set spool.path to the spool that the dead letters are of.")
    if must_have_delivered and find(spool, config.sink.name) is None:
        raise SpoolError(
            f"the spool at {spool.path} does not know how far the sink has come",
            hint="Run the sink with it before replaying dead letters.",
        )
    return spool


@contextmanager
def held(spool: Spool, config: Config) -> Iterator[ReplayedSpools]:
    """Holds the sink's locks in the change stream's spool, and in those of its backfills that are not done.

    A backfill or a repair that is recorded later is not delivered before the replay ends: what it writes and marks
    would come too late for the dead letters that are read already.

    Args:
        spool: the change stream's.
        config: the sink's configuration.

    Raises:
        SpoolInUseError: it runs.
        ConfigurationError: the sink has delivered to another destination than the configured one.
    """
    check_kept(config)
    consumer = config.sink.name
    with ExitStack() as locks:
        locks.enter_context(spool.storage.locked(sink_lock(consumer), _TAKEN))
        locks.enter_context(spool.storage.locked(replay_lock(consumer), _TAKEN))
        spools, ended = [spool], list[Spool]()
        known = backfills(spool)
        continued = {one.document.continues for one in known}
        for one in known:
            if not one.progress.is_done:
                locks.enter_context(one.spool.storage.locked(sink_lock(consumer), _TAKEN))
            # No sink repeats a micro-batch of one that is continued.
            (ended if one.document.number in continued else spools).append(one.spool)
        yield ReplayedSpools(spools, consumer, ended)


def record_left(spool: Spool, consumer: str, store: DeadLetters, files: Sequence[DeadLetterFile]) -> None:
    """Records how many dead letters a sink still has; the caller holds its locks.

    Those of its spools count, even if no report has them.

    Args:
        spool: the change stream's.
        consumer: the sink's name.
        store: its dead-letter store.
        files: all files of that, however the others went.

    Raises:
        SpoolError: a report cannot be read or written.
    """
    report = report_of(spool, consumer)
    left, rejected = sum(file.count for file in files), _rejected(spool, consumer, report)
    missing = max(_reportable(spool, consumer, store, files) - rejected, 0) if left > rejected else 0
    replayed = max(rejected + missing - left, 0)
    if missing or replayed != report.replayed:
        counted = {"refused": report.refused + missing, "replayed": replayed}
        write_report(spool, consumer, report.model_copy(update=counted))


def count_unreported(spool: Spool, consumer: str, store: DeadLetters) -> None:
    """Counts the dead letters of a sink that reports none, though its store has some; the caller holds its lock.

    Raises:
        SpoolError: a report cannot be read or written.
    """
    if open_dead_letters(spool, consumer):
        return
    with suppress(SinkError):  # whoever sends them, or adds some, meets the error
        prefixes = _prefixes(spool)
        if store.folders(*prefixes) and (missing := _reportable(spool, consumer, store, store.files(None, *prefixes))):
            report = report_of(spool, consumer)
            write_report(spool, consumer, report.model_copy(update={"refused": report.refused + missing}))


def _reportable(spool: Spool, consumer: str, store: DeadLetters, files: Iterable[DeadLetterFile]) -> int:
    """The dead letters of a sink's spools, except for those of a micro-batch that it will repeat and report."""
    try:
        spools = ReplayedSpools([spool, *(one.spool for one in backfills(spool))], consumer)
    except FileNotFoundError:  # there is no spool
        return 0
    found = 0
    for file in files:
        if spools.has(file.name):
            with suppress(FileNotFoundError, SinkError):
                rows, _ = store.read(file)
                found += 0 if not rows.num_rows or spools.will_repeat(file.name, rows) else rows.num_rows
    return found


def open_dead_letters(spool: Spool, consumer: str) -> int:
    """The dead letters that a sink has left, by its reports, those of the change stream's backfills among them.

    Raises:
        SpoolError: a report cannot be read.
    """
    report = report_of(spool, consumer)
    return max(_rejected(spool, consumer, report) - report.replayed, 0)


def not_found(consumer: str, store: DeadLetters, report: SinkReport, known: Iterable[RecordedBackfill]) -> int:
    """The dead letters of a sink, by its reports, if its store has none at all, and no replay has recorded that.

    Args:
        consumer: the sink's name.
        store: its dead-letter store.
        report: its report of the change stream.
        known: the change stream's backfills, of which it has reports, too.

    Raises:
        SpoolError: a report cannot be read.
        SinkError: the store cannot be read.
    """
    of_backfills = sum(report_of(one.spool, consumer).refused for one in known)
    left = max(report.refused + of_backfills - report.replayed, 0)
    # those of a backfill may have come after the store was searched
    return left if left and not store.folders() else 0


def own_dead_letters(spool: Spool, store: DeadLetters) -> int:
    """The dead letters in a store that are of a change stream's spool, or of its backfills.

    Raises:
        SpoolError: a backfill cannot be read.
        SinkError: the store cannot be read.
    """
    return sum(file.count for file in store.files(None, *_prefixes(spool)))


def check_root(spool: Spool, consumer: str, store: DeadLetters) -> None:
    """Checks that a sink's dead letters are in a store, if it has another root than the sink has recorded.

    Raises:
        ConfigurationError: some are not.
        SpoolError: a report cannot be read.
        SinkError: the store cannot be read.
    """
    recorded = report_of(spool, consumer).dead_letters
    if not recorded or is_same_root(recorded, store.root):
        return
    if (left := open_dead_letters(spool, consumer)) and left > own_dead_letters(spool, store):
        why = (
            f"sink.dead_letters: sink {consumer} has dead letters at {recorded}, and {store.root} does not have them:"
            " name that folder by its whole path, or run this where the sink runs. If they were moved or removed,"
            " `spanner-cdc dead-letters replay CONFIG --moved` records the folder"
        )
        raise ConfigurationError([why])


def is_same_root(recorded: str, root: str) -> bool:
    """True if two roots are one, whoever is billed for a bucket's requests."""
    return unbilled(recorded) == unbilled(root)


def record_root(spool: Spool, consumer: str, root: str) -> None:
    """Records the root of a sink's dead-letter store; the caller holds its locks.

    Raises:
        SpoolError: the report cannot be read or written.
    """
    report = report_of(spool, consumer)
    if report.dead_letters != root:
        write_report(spool, consumer, report.model_copy(update={"dead_letters": root}))


def _prefixes(spool: Spool) -> list[str]:
    """The beginnings of the names of files of a change stream's spool, and of its backfills."""
    return [f"{one.header().spool_id}_" for one in (spool, *(one.spool for one in backfills(spool)))]


def _rejected(spool: Spool, consumer: str, report: SinkReport) -> int:
    """The rows that became dead letters, by a sink's report and those of its backfills."""
    return report.refused + sum(report_of(one.spool, consumer).refused for one in backfills(spool))


_TAKEN = "dead letters cannot be replayed while the sink runs, or another replay does: stop it, and replay again"
