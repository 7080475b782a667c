"""The spools whose dead letters a replay may send: the change stream's, and those of its backfills.

The dead letters of a micro-batch that is not recorded as done stay, because the sink will repeat it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from connector.config.destination import check_kept
from connector.config.loading import Config
from connector.errors import SpoolError
from connector.spool.backfill.records import backfills
from connector.spool.consumers import find, replay_lock, sink_lock
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
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
        self._done: Mapping[str, int] = {spool.header().spool_id: _done(spool, consumer) for spool in spools}

    def has(self, name: str) -> bool:
        """True if the dead letters in a file of that name are of one of the spools."""
        return name.partition("_")[0] in self._ids

    def will_repeat(self, name: str, rows: pa.RecordBatch) -> bool:
        """True if the sink will repeat the micro-batch of the dead letters in a file of that name."""
        done = self._done.get(name.partition("_")[0])
        return done is not None and pc.max(rows.column("epoch")).as_py() > done

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


def record_left(spool: Spool, consumer: str, left: int) -> None:
    """Records how many dead letters a sink still has; the caller holds its locks.

    Args:
        spool: the change stream's.
        consumer: the sink's name.
        left: the dead letters in its store, however the others went.

    Raises:
        SpoolError: a report cannot be read or written.
    """
    report = report_of(spool, consumer)
    refused = report.refused + sum(report_of(one.spool, consumer).refused for one in backfills(spool))
    replayed = max(refused - left, 0)
    if replayed != report.replayed:
        write_report(spool, consumer, report.model_copy(update={"replayed": replayed}))


_TAKEN = "dead letters cannot be replayed while the sink runs, or another replay does: stop it, and replay again"


def _done(spool: Spool, consumer: str) -> int:
    known = find(spool, consumer)
    return known.epoch if known else 0
