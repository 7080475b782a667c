"""The processes that read on executors: reading alone, and beside a sink in one Spark application.

``python -m spark_sink CONFIG --read`` is what ``spanner-cdc read CONFIG`` becomes with ``source.reader: executors``. It
behaves as the one-process daemon does: the same lock, log, status page, signals and exit codes.
"""

import argparse
import asyncio
import functools
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector import log
from connector.commands.check import warn
from connector.commands.lifeline import ended_with_stdin
from connector.commands.read import read
from connector.config.loading import Config, load
from connector.errors import TRANSIENT, SpoolInUseError, line_and_exit_code
from connector.process import collect_rarely
from connector.reader.stopping import Stop, on_signals, unexpected_cancellation
from spark_sink.errors import clear_line, is_own
from spark_sink.run import Event, Events
from spark_sink.session import need_java, session, stop_session
from spark_sink.windows.reading import on_executors

OPTION = "--read"
_EMULATOR_HOST = "SPANNER_EMULATOR_HOST"
_INTERRUPTED = 130

_log = log.Log(__name__)


def main(arguments: Sequence[str]) -> int:
    """Reads a configuration's change stream on executors; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark_sink")
    parser.add_argument("config", type=Path)
    parser.add_argument(OPTION, action="store_true", required=True)
    parser.add_argument("--emulator-host", default=os.environ.get(_EMULATOR_HOST))
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument("--stdin-lifeline", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    log.configure(json=given.log_format == "json", verbose=given.verbose)
    collect_rarely()
    try:
        return _read(load(given.config), given)
    except Exception as error:  # noqa: BLE001 - an unexpected error is printed as one line, too
        if given.verbose:
            sys.stderr.write(log.whereabouts(error))
        line, code = _line_and_exit_code(error)
        if isinstance(error, SpoolInUseError) and given.stdin_lifeline:
            code = TRANSIENT  # the daemon of a killed Spark query soon ends
        sys.stderr.write(f"spanner-cdc: {line}\n")
        return code


def _line_and_exit_code(error: Exception) -> tuple[str, int]:
    is_sparks = isinstance(error, (PySparkException, Py4JError))
    return (clear_line(error), 1 if is_own(error) else TRANSIENT) if is_sparks else line_and_exit_code(error)


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
    stop = Stop(drain_timeout=config.drain_timeout)
    with suppress(asyncio.CancelledError):
        async with on_signals(stop), ended_with_stdin(stop, wanted=given.stdin_lifeline):
            await read(config, stop, emulator_host=given.emulator_host, reader=on_executors(spark))
    return _INTERRUPTED if stop.interrupted else 0


@contextmanager
def reading_beside(config: Config, spark: SparkSession, events: Events) -> Iterator[Events]:
    """Reads in a thread while the context is open; yields the events for the sink.

    A signal and the end of the input stop reading. Once reading has ended, for whatever reason, the sink's input ends:
    it delivers what is sealed. The error of reading is raised where the context ends.
    """
    reading = _Reading(config, spark, events)
    reading.start()
    try:
        yield reading.events
    except BaseException:
        reading.end()
        if reading.error is not None:
            _log.error("reading has failed, too", error=_line_and_exit_code(reading.error)[0])
        raise
    reading.end()
    if reading.error is not None:
        raise reading.error


class _Reading:
    """The reading thread, and one that watches the process's events."""

    def __init__(self, config: Config, spark: SparkSession, events: Events) -> None:
        self._config = config
        self._spark = spark
        self._from_process = events
        self._loop = asyncio.new_event_loop()
        self._stop = Stop(drain_timeout=config.drain_timeout)
        self._thread = threading.Thread(target=self._read, name="reading", daemon=True)
        self.events: Events = SimpleQueue()
        self.error: Exception | None = None

    def start(self) -> None:
        """Starts both threads."""
        threading.Thread(target=self._watch, name="events", daemon=True).start()
        self._thread.start()

    def end(self) -> None:
        """Stops reading, and waits for its end."""
        self._request()
        self._thread.join()

    def _request(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: reading has ended
            self._loop.call_soon_threadsafe(self._stop.request)

    def _watch(self) -> None:
        while True:
            event = self._from_process.get()
            self._request()
            if event is Event.SIGNAL:
                self.events.put(event)

    def _read(self) -> None:
        host = os.environ.get(_EMULATOR_HOST)
        work = read(
            self._config,
            self._stop,
            emulator_host=host,
            on_open=functools.partial(warn, self._config),
            reader=on_executors(self._spark),
        )
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(work)
        except asyncio.CancelledError:
            self.error = unexpected_cancellation()
        except Exception as error:  # noqa: BLE001 - raised where the context ends
            self.error = error
        finally:
            self.events.put(Event.INPUT_ENDED)
