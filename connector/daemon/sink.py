"""The sink of a configuration as a process: beside the daemon, or alone over a spool that another process fills.

A machine that only delivers has no library that calls Spanner, so that none is imported here.
"""

import sys
from contextlib import suppress
from pathlib import Path

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.core.timestamps import SECOND
from connector.daemon.sink_process import Patience, ReportedAs, SinkProcess
from connector.daemon.states.failures import failures_of_sink
from connector.errors import SpoolError
from connector.log import style_arguments
from connector.reader.stopping import StopRequest
from connector.spool.backfill.records import backfills, unfinished_among, unfinished_of
from connector.spool.consumers import done
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics


async def run_sink(
    config: Config,
    path: Path,
    stop: StopRequest,
    *,
    patience: Patience = Patience(),  # noqa: B008 - frozen
) -> None:
    """Runs the sink alone, over a spool that another process writes, until ``stop``.

    Arguments as of :func:`connector.daemon.run.run`.

    Raises:
        SinkProcessError: it ended with a final error, or too often without progress.
    """
    sink = sink_of(config, path, stop, metrics=ReaderMetrics(), patience=patience, alone=True)
    with failures_of_sink(config):
        await sink.run_until_stopped()


def sink_of(
    config: Config,
    path: Path,
    stop: StopRequest,
    *,
    metrics: ReaderMetrics,
    patience: Patience,
    alone: bool,
) -> SinkProcess:
    """The sink's process; ``alone`` if it does not read the change stream, whatever the configuration says."""
    spool = Spool.at(config.spool.path)

    def progress() -> int:
        with suppress(SpoolError):  # unknown progress counts as none
            return done(spool, config.sink.name)
        return 0

    return SinkProcess(
        [
            *(sys.executable, "-P", "-m", "spark_sink", str(path)),
            *(["--sink-only"] if alone else []),
            *style_arguments(),
        ],
        progress=progress,
        stop=stop,
        drain=config.drain_timeout / SECOND,
        metrics=metrics,
        patience=patience,
        reported_as=ReportedAs(spool=spool, subject=config.sink.name),
    )


def check_nothing_waits(config: Config, stop: StopRequest) -> None:
    """Checks, after the end of the stream was reached, that no changes wait for a backfill that is not done.

    A sink that waits drains without them, whatever may finish the backfill. After ``stop`` the next run delivers them.

    Raises:
        SpoolError: they do; or the spool cannot be read.
    """
    if stop.requested or not sink_type(config.sink.type).waits_for_backfill:
        return
    spool, consumer = Spool.at(config.spool.path), config.sink.name
    known = backfills(spool)
    tables = unfinished_among(spool, known, consumer)
    if not tables or done(spool, consumer) >= spool.latest():
        return
    awaited = [one for one in unfinished_of(known) if not tables.isdisjoint(one.progress.unfinished)]
    names = " and ".join(f"{one.document.kind} {one.document.number}" for one in awaited) or "a backfill"
    are_stopped = any(one.is_stopped for one in awaited)
    resumed = "`spanner-cdc backfill CONFIG --resume TABLE` resumes a stopped table. " if are_stopped else ""
    left = ", ".join(sorted(tables))
    raise SpoolError(
        f"the end is reached, but not everything is delivered: the sink waits for {names}, which is not done ({left})",
        hint=f"{resumed}`spanner-cdc backfill CONFIG` finishes it; then start this again: it delivers the changes.",
    )
