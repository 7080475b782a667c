"""``spanner-cdc run``: the daemon and the Spark sink of a configuration, and its backfill, as one service."""

import asyncio
import functools
from collections.abc import Callable, Collection
from pathlib import Path

from connector.config.loading import Config
from connector.config.reloading.fields import READ_BY_SINK
from connector.config.sinks import sink_type
from connector.daemon.backfills_of_run import BackfillsOfRun, report_failure
from connector.daemon.executors import run_on_executors
from connector.daemon.read import read
from connector.daemon.sink import check_nothing_waits, sink_of
from connector.daemon.sink_process import Patience, SinkProcess
from connector.daemon.states.failures import failures_of_service
from connector.errors import is_final
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.reader.stopping import StopRequest
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread

_log = Log(__name__)


async def run(
    config: Config,
    path: Path,
    stop: StopRequest,
    *,
    on_open: Callable[[OpenStream], None] = lambda _: None,
    patience: Patience = Patience(),  # noqa: B008 - frozen
) -> None:
    """Runs all until the end is reached and everything is delivered, or until ``stop``.

    Args:
        config: the configuration.
        path: its file, for the sink's process.
        stop: drains.
        on_open: called with the change stream before anything is read.
        patience: with a sink that makes no progress.

    Raises:
        SpannerCdcError: that of the daemon; or of the sink, or of the backfill, if only that failed. Where the sink
            waits for the backfill, its error ends the others. Or the sink has reached the end, and still waits for one.
    """
    if config.source.reader == "executors":
        await run_on_executors(config, path, stop, patience=patience)
        return
    metrics = ReaderMetrics()
    sink = sink_of(config, path, stop, metrics=metrics, patience=patience, alone=False)
    waits = sink_type(config.sink.type).waits_for_backfill
    backfills = BackfillsOfRun(
        config,
        path,
        stop,
        metrics=metrics,
        patience=patience,
        on_failure=functools.partial(report_failure, stop=stop if waits else None, metrics=metrics),
    )
    writing = asyncio.create_task(sink.run(), name="sink")
    filling = asyncio.create_task(backfills.run(), name="backfill")
    reading = asyncio.create_task(
        read(
            config,
            stop,
            metrics=metrics,
            on_open=on_open,
            on_backfill=backfills.add,
            on_reload=functools.partial(_reloaded, sink, backfills),
        ),
        name="daemon",
    )
    try:
        await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            stop.request()
        elif reading.exception() is None:
            backfills.finish()
            if waits:
                await asyncio.wait({writing, filling}, return_when=asyncio.FIRST_COMPLETED)
            _log.info("the daemon is done; the sink delivers what is left")
        await reading
    except asyncio.CancelledError:
        for task in (writing, filling, reading):
            task.cancel()
        raise
    finally:
        failure = reading.exception() if reading.done() and not reading.cancelled() else None
        has_failed = failure is not None
        if has_failed:  # what a killed backfill has not sealed is read again by the next run
            filling.cancel()
        backfills.finish()
        # Whoever restarts the service waits for the sink; after a final error a restart would not help.
        sink.finish(again=not has_failed, limited=failure is not None and not is_final(failure))
        await _ended({writing, filling, reading})
    with failures_of_service(config, code="sink_failed", is_of_sink=True):
        await writing
    if not filling.cancelled():
        with failures_of_service(config, code="backfill_failed", is_of_sink=False):
            await filling
            await in_thread(check_nothing_waits, config, stop)


async def _reloaded(sink: SinkProcess, backfills: BackfillsOfRun, config: Config, options: Collection[str]) -> None:
    """Applies an edited configuration to what runs beside the reader."""
    backfills.reload(config)
    if not READ_BY_SINK.isdisjoint(options):
        await sink.restart()


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    """Waits for the ends of tasks, also if it is cancelled: then it cancels them, and waits while they clean up."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # if another one's is raised, its process or the daemon has recorded it
