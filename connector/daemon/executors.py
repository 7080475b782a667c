"""Commands whose change stream Spark's executors read: they start the process that is the driver of those executors.

The connector does not import Spark: ``python -m spark_sink`` does.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.core.health.states import END_REACHED
from connector.core.timestamps import SECOND
from connector.daemon.sink import check_nothing_waits
from connector.daemon.sink_process import BothHalves, Patience, ReportedAs, SinkProcess
from connector.daemon.states.failures import failures_of_service
from connector.errors import SpoolError
from connector.log import style_arguments
from connector.reader.stopping import StopRequest
from connector.spool.backfill.records import unfinished_tables
from connector.spool.consumers import done
from connector.spool.lifecycle import state_of
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread


def take_over(config: Config, path: Path, *, ends_with_stdin: bool) -> None:
    """Replaces this process by the driver, if executors are to read; returns if this process is.

    Signals, standard input and the exit code are the driver's then.
    """
    if config.source.reader != "executors":
        return
    arguments = [str(path), "--read", *style_arguments()]
    if ends_with_stdin:
        arguments.append("--stdin-lifeline")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "spark_sink", *arguments])  # noqa: S606 - no shell is wanted


async def run_on_executors(config: Config, path: Path, stop: StopRequest, *, patience: Patience) -> None:
    """Runs one Spark application that reads and writes, until it has delivered everything, or until ``stop``.

    Arguments as of :func:`connector.daemon.run.run`.

    Raises:
        SinkProcessError: it ended with a final error, or too often without progress.
        SpoolError: the end is reached, and the sink still waits for a backfill.
    """
    spool = Spool.at(config.spool.path)

    waits, halves = sink_type(config.sink.type).waits_for_backfill, BothHalves()

    def progress() -> int:
        with suppress(SpoolError):  # unknown progress counts as none
            delivered, sealed = done(spool, config.sink.name), spool.latest()
            is_idle = delivered >= sealed or (waits and bool(unfinished_tables(spool, config.sink.name)))
            return halves.progress(delivered=delivered, read=sealed, is_idle=is_idle)
        return 0

    def is_done() -> bool:
        with suppress(SpoolError):
            return state_of(spool).reason == END_REACHED
        return False

    application = SinkProcess(
        [sys.executable, "-P", "-m", "spark_sink", str(path), *style_arguments()],
        progress=progress,
        stop=stop,
        drain=config.drain_timeout / SECOND,
        metrics=ReaderMetrics(),
        patience=patience,
        is_done=is_done,
        reported_as=ReportedAs("the Spark application", spool=spool, subject=config.sink.name),
    )
    with failures_of_service(config, code="sink_failed", is_of_sink=True):
        await application.run_until_stopped()
    with failures_of_service(config, code="backfill_failed", is_of_sink=False):
        await in_thread(check_nothing_waits, config, stop)
