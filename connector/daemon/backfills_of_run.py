"""The backfills of ``spanner-cdc run``: those that are due at its start, and those of new tables."""

import asyncio
import functools
import time
from collections.abc import Callable
from pathlib import Path

from connector.check.backfilled_tables import tables_of
from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.core.health.retries import BACKFILL, LASTING, Cause
from connector.daemon.backfill import BackfillOptions, delivered, log_failure
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.sink_process import Patience
from connector.errors import ConfigurationError, SpannerCdcError
from connector.log import Log
from connector.reader.change_stream import opened
from connector.reader.stopping import StopRequest
from connector.spool.backfill.completeness import tables_without_backfill
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import backfills, unfinished_of
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import first_of, in_thread

INTERVAL = 30.0
"""Seconds between two looks at the tables that the change stream watches."""

_AT_ONCE = 2
"""Backfills that are delivered at the same time: each is a process of Spark's, with the memory of one."""

_log = Log(__name__)


class BackfillsOfRun:
    """Delivers the backfills that are due beside the stream: a long one does not hold up that of a new table.

    Args:
        config: the configuration.
        path: its file, for the processes of Spark.
        stop: lets what is read be delivered, and ends.
        metrics: of the service.
        patience: with a process that makes no progress.
        on_failure: called with the error of each backfill when it happens; the others continue.
    """

    def __init__(
        self,
        config: Config,
        path: Path,
        stop: StopRequest,
        *,
        metrics: ReaderMetrics,
        patience: Patience,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._at_once = most_at_once(config)
        self._stop = stop
        self._metrics = metrics
        self._refused = ""
        self._has_failed = False
        self._deliver = functools.partial(
            delivered, config, path, stop, options=BackfillOptions(), metrics=metrics, patience=patience
        )
        self._on_failure = on_failure
        self._due: list[Backfill] = []
        self._is_finished = False
        self._news = asyncio.Event()

    @property
    def _interval(self) -> float | None:
        """Seconds between two looks at the watched tables; None if new ones are not backfilled."""
        rules = self._config.source.backfill
        return INTERVAL if rules is not None and rules.new_tables else None

    def reload(self, config: Config) -> None:
        """Lets backfills that begin from now on be those of an edited configuration, for the same spool and sink."""
        self._config = config
        self._news.set()

    def add(self, document: Backfill) -> None:
        """Lets a backfill that is recorded and not done be delivered."""
        self._due.append(document)
        self._news.set()

    def finish(self) -> None:
        """Lets what is due be delivered, and looks for no further table."""
        self._is_finished = True
        self._news.set()

    async def run(self) -> None:
        """Delivers until it is finished.

        Raises:
            SpannerCdcError: that of the first backfill that failed, once the others have ended.
        """
        running, failed = set[asyncio.Task[None]](), list[Exception]()
        try:
            while running or self._is_due or not self._is_finished:
                while self._is_due and len(running) < self._at_once:
                    running.add(asyncio.create_task(self._deliver(self._due.pop(0)), name="backfill"))
                ended = await self._ended(running)
                running -= ended
                for error in filter(None, map(_error_of, ended)):
                    self._has_failed = True
                    self._on_failure(error)
                    failed.append(error)
        except Exception as error:
            self._on_failure(error)
            raise
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if failed:
            raise failed[0]

    @property
    def _is_due(self) -> bool:
        """True if a backfill is to be started; after a stop none is."""
        return bool(self._due) and not self._stop.requested

    async def _ended(self, running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Waits until a backfill has ended or something is new; looks for new tables if that takes long.

        Returns those that have ended.
        """
        if self._interval is None:
            self._mended()
        ended = await first_of(self._news.wait(), tasks=running, within=self._interval)
        if not (ended or self._news.is_set() or self._is_finished):
            await self._fill_new_tables()
        self._news.clear()
        return ended

    async def _fill_new_tables(self) -> None:
        if self._stop.requested:
            return
        try:
            document = await backfill_of_new_tables(self._config)
        except ConfigurationError as error:  # each look meets it, until it is mended
            if error.message != self._refused:
                self._refused = error.message
                hint = "Mend it, and run `spanner-cdc reload CONFIG`."
                cause = Cause("new tables are not backfilled", "", error.message, hint)
                self._metrics.failing.failed(BACKFILL, cause, time.time_ns(), lasted=LASTING)
            return
        except SpannerCdcError as error:  # the next look may meet no error
            _log.warning("whether the change stream watches new tables is not known", reason=error)
            return
        self._mended()
        if document is not None:
            self.add(document)

    def _mended(self) -> None:
        """The configuration refuses no new tables, or none are looked for any more."""
        if self._refused and not self._has_failed:
            self._metrics.failing.healed(BACKFILL)
        self._refused = ""


def most_at_once(config: Config) -> int:
    """The most backfills that are delivered at the same time; one where rows may need those of other tables."""
    return 1 if sink_type(config.sink.type).waits_for_backfill else _AT_ONCE


def report_failure(error: Exception, *, stop: StopRequest | None, metrics: ReaderMetrics) -> None:
    """Logs the error of a backfill, which is an alarm until the service is restarted.

    With ``stop`` that ends everything: the sink waits for the backfill.
    """
    log_failure(error, stream_continues=stop is None)
    line = error.message if isinstance(error, SpannerCdcError) else type(error).__name__
    cause = Cause("the backfill has ended with an error", "", line, "A restart of the service continues it.")
    metrics.failing.failed(BACKFILL, cause, time.time_ns(), lasted=LASTING)
    if stop is not None:
        stop.request()


def _error_of(task: asyncio.Task[None]) -> Exception | None:
    """The error of a task that has ended.

    Raises:
        BaseException: it is no error of the work.
    """
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, Exception):
        return error
    raise error


async def backfill_of_new_tables(config: Config) -> Backfill | None:
    """Records a backfill of the tables that are new; None if there are none, or while enough others are read.

    Raises:
        SpannerCdcError: Spanner or the spool cannot be read, or the disk refuses.
    """
    spool = Spool.at(config.spool.path)
    known = await in_thread(backfills, spool)
    waits = sink_type(config.sink.type).waits_for_backfill
    reading = [one for one in unfinished_of(known) if waits or not one.is_stopped]
    if not known or len(reading) >= most_at_once(config):  # that of the start comes first
        return None
    async with opened(config.source, started=True) as stream:
        header = await in_thread(spool.header)
        by_name = {table.table: table for table in tables_of(stream)}
        new = tables_without_backfill(by_name, header, known)
        tables = [table for name, table in by_name.items() if name in new]
        if not tables:
            return None
        recorder = await BackfillRecorder.of(spool, header, stream, reads_parents=waits)
        return await in_thread(recorder.first, tables, after=len(known), why="command")
