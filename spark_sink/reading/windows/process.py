"""The processes that read on executors: reading alone, and beside a sink in one Spark application.

``python -m spark_sink CONFIG --read`` is what ``spanner-cdc read CONFIG`` becomes with ``source.reader: executors``. It
behaves as the one-process daemon does: the same lock, log, status page, signals and exit codes.
"""

import argparse
import asyncio
import functools
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession

from connector import log
from connector.check.findings import warn
from connector.check.needs import sections_of
from connector.config.loading import Config, load
from connector.config.sinks import sink_type
from connector.core.timestamps import SECOND
from connector.daemon.backfills_of_run import BackfillsOfRun, report_failure
from connector.daemon.lifeline import ended_with_stdin
from connector.daemon.read import read
from connector.daemon.sink_process import Patience
from connector.errors import TRANSIENT, SpoolInUseError, is_final
from connector.output import lines_of_json
from connector.process import collect_rarely
from connector.reader.stopping import StopRequest, on_signals, unexpected_cancellation
from connector.telemetry.metrics import ReaderMetrics
from spark_sink.failures import line_and_code
from spark_sink.own_command import INTERRUPTED, configure_log
from spark_sink.reading.windows.reading import on_executors
from spark_sink.run import Beside, Events, SinkEvent
from spark_sink.session import need_java, session, stop_session

_log = log.Log(__name__)


def main(arguments: Sequence[str]) -> int:
    """Reads a configuration's change stream on executors; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark_sink")
    parser.add_argument("config", type=Path)
    parser.add_argument("--read", action="store_true", required=True)
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--stdin-lifeline", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    configure_log(given)
    collect_rarely()
    try:
        with lines_of_json():
            return _read(load(given.config, sections_of("read")), given)
    except Exception as error:  # noqa: BLE001 - an unexpected error is printed as one line, too
        line, code = line_and_code(error)
        if isinstance(error, SpoolInUseError) and given.stdin_lifeline:
            code = TRANSIENT  # the daemon of a killed Spark query soon ends
        shown = error if given.verbose else None
        log.complain("spanner-cdc", line, action="command_failed", error=shown, exit_code=code)
        return code


def _read(config: Config, given: argparse.Namespace) -> int:
    need_java()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(config.spark, Path(folder), verbose=given.verbose)
        try:
            return asyncio.run(_until_stopped(config, spark, given))
        finally:
            stop_session(spark)


async def _until_stopped(config: Config, spark: SparkSession, given: argparse.Namespace) -> int:
    """Reads until the end or a signal; a second signal cancels."""
    stop = StopRequest(drain_timeout=config.drain_timeout)
    with suppress(asyncio.CancelledError):
        async with on_signals(stop), ended_with_stdin(stop, wanted=given.stdin_lifeline):
            await read(config, stop, range_reader=on_executors(spark))
    return INTERRUPTED if stop.interrupted else 0


def reading_beside(path: Path) -> Beside:
    """Reads a configuration's change stream in a thread while the context is open; yields the events for the sink.

    A signal and the end of the input stop reading. Once reading has ended, for whatever reason, the sink's input ends:
    it delivers what is sealed; after an error that a restart may solve, no longer than ``drain_timeout``. Backfills
    that are due, and those of new tables, are read and delivered by processes of their own meanwhile, and the context
    waits for them. The error of reading is raised where the context ends; else that of a backfill.
    """

    @contextmanager
    def beside(config: Config, spark: SparkSession, events: Events) -> Iterator[Events]:
        reading = _Reading(config, spark, events, path)
        try:
            yield reading.events
        except BaseException:
            reading.end(now=True)
            if reading.error is not None:
                _log.error("reading has failed, too", error=line_and_code(reading.error)[0])
            raise
        reading.end()
        if reading.error is not None:
            raise reading.error

    return beside


class _Reading:
    """The reading thread, and one that watches the process's events; both run from the start."""

    def __init__(self, config: Config, spark: SparkSession, events: Events, path: Path) -> None:
        self._config = config
        self._spark = spark
        self._path = path
        self._from_process = events
        self._loop = asyncio.new_event_loop()
        self._stop = StopRequest(drain_timeout=config.drain_timeout)
        self._thread = threading.Thread(target=self._read, name="reading", daemon=True)
        self.events: Events = SimpleQueue()
        self.error: Exception | None = None
        self._has_read = False
        threading.Thread(target=self._watch, name="events", daemon=True).start()
        self._thread.start()

    def end(self, *, now: bool = False) -> None:
        """Stops reading, and waits for its end; a backfill is waited for, unless a stop was requested or ``now``."""
        if now or not self._has_read:
            self._request()
        self._thread.join()

    def _request(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: reading has ended
            self._loop.call_soon_threadsafe(self._stop.request)

    def _watch(self) -> None:
        while True:
            event = self._from_process.get()
            self._request()
            if event is SinkEvent.SIGNAL:
                self.events.put(event)

    def _read(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._read_and_fill())
        except asyncio.CancelledError:
            self.error = unexpected_cancellation()
        except Exception as error:  # noqa: BLE001 - raised where the context ends
            self.error = error
        finally:
            if not self._has_read:
                self.events.put(SinkEvent.INPUT_ENDED)
                self._limit_drain()

    def _limit_drain(self) -> None:
        """Lets the sink end in time if reading has failed: whoever restarts the application waits for it.

        After a final error a restart would not help, so that all that is sealed is delivered.
        """
        if self.error is None or is_final(self.error):
            return
        limit = threading.Timer(self._config.drain_timeout / SECOND, self.events.put, (SinkEvent.SIGNAL,))
        limit.daemon = True
        limit.start()

    async def _read_and_fill(self) -> None:
        """Reads, and delivers backfills beside it; the sink's input ends once reading has ended."""
        metrics, waits = ReaderMetrics(), sink_type(self._config.sink.type).waits_for_backfill
        backfills = BackfillsOfRun(
            self._config,
            self._path,
            self._stop,
            metrics=metrics,
            patience=Patience(),
            on_failure=functools.partial(report_failure, stop=self._stop if waits else None, metrics=metrics),
        )
        filling = asyncio.create_task(backfills.run(), name="backfill")
        try:
            await read(
                self._config,
                self._stop,
                metrics=metrics,
                on_open=functools.partial(warn, self._config),
                on_backfill=backfills.add,
                range_reader=on_executors(self._spark),
            )
        except BaseException:
            filling.cancel()  # what a killed backfill has not sealed is read again by the next run
            await asyncio.gather(filling, return_exceptions=True)
            raise
        backfills.finish()
        if waits:
            await filling
        self._has_read = True
        self.events.put(SinkEvent.INPUT_ENDED)
        await filling
