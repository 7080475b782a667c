"""The process of a sink: delivers a spool's epochs until it is stopped.

Its standard input is its lifeline. When that ends, the daemon has ended: everything that is sealed and ready is
delivered, and the process ends with code 0. SIGTERM and SIGINT let the current micro-batch finish. Whatever was not
delivered, and whatever killed the process, the next one continues from Spark's checkpoint.

Three events end it: the query ends, the input ends, a signal is received. Each is put into one queue, which the main
thread waits on.
"""

import argparse
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from queue import Empty, SimpleQueue

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connector import log
from connector.config.destination import check_kept
from connector.config.loading import Config, load
from connector.config.sink_start import check_start
from connector.config.spark_checkpoint import check_checkpoint
from connector.errors import REASON_TO, TRANSIENT, UNANSWERED, SpoolInUseError
from connector.output import lines_of_json
from connector.spool.consumers import sink_lock
from connector.spool.reading import Spool
from connector.spool.sink_report import works_again
from connector.telemetry.spans import span
from spark_sink.errors import PermanentError, SinkError, clear_line, is_unanswered
from spark_sink.failures import JOB_ERRORS, SPARK_ERRORS, Meaning, line_and_code, meaning_of
from spark_sink.idling import awaited
from spark_sink.own_command import configure_log
from spark_sink.publishing import Publication, publish_without_sink
from spark_sink.session import free_unused, need_java, session, stop_session
from spark_sink.settling import Settlement, settle_without_sink
from spark_sink.sinks.shared.beginning import PROGRAM, begin
from spark_sink.sinks.shared.delivery import Delivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.sink_type import spark_sink_type
from spark_sink.sources.changes.cores import cores_of, with_attributes

_COMMIT_WAIT = 5.0
"""Seconds that a stop waits for Spark to commit a finished micro-batch; without the commit it is redelivered."""

_POLL = 0.25
"""Seconds between two checks of whether the last delivery is complete."""

_PREDECESSOR_TIMEOUT = 600.0
"""Seconds that a sink waits for its predecessor, whose daemon must have been killed, to deliver and to end."""

_ENDS_DELIVERY: tuple[type[Exception], ...] = (*JOB_ERRORS, OSError)


class SinkEvent(Enum):
    """The events that end a sink."""

    QUERY_ENDED = auto()
    INPUT_ENDED = auto()
    SIGNAL = auto()


Events = SimpleQueue[SinkEvent]

Beside = Callable[[Config, SparkSession, Events], AbstractContextManager[Events]]
"""Runs beside the sink; yields the events that the sink is to see."""

BesideOf = Callable[[Path], Beside]
"""Makes what runs beside the sink, of the configuration's file."""


def main(arguments: Sequence[str], reading: BesideOf | None = None) -> int:
    """Runs the sink of a configuration; returns the exit code.

    Args:
        arguments: of the command line.
        reading: reads the change stream, where the configuration says that executors do.
    """
    parser = argparse.ArgumentParser(prog="python -m spark_sink", description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--sink-only", action="store_true", help="Another process reads the change stream.")
    parser.add_argument("--verbose", action="store_true", help="Show Spark's warnings, and tracebacks of errors.")
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help="Format of the log.")
    given = parser.parse_args(arguments)

    def work(events: Events) -> None:
        config = load(given.config)
        if config.source.reader == "executors" and not given.sink_only:
            beside = reading(given.config) if reading else _nothing
            _run(config, events, beside, of_session=side_by_side(config), verbose=given.verbose)
        else:
            _run(config, events, _nothing, of_session=config, verbose=given.verbose)

    configure_log(given)
    return guarded(work, verbose=given.verbose)


def guarded(work: Callable[[Events], None], *, verbose: bool) -> int:
    """Runs a process's work with the queue of what ends it; prints its error, and returns the exit code."""
    events: Events = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: events.put(SinkEvent.SIGNAL))
    try:
        with lines_of_json():
            work(events)
    except Exception as error:  # noqa: BLE001 - an unexpected error is printed as one line, too
        line, code = line_and_code(error)
        log.complain(
            PROGRAM,
            line,
            action="sink_failed",
            error=error if verbose else None,
            exit_code=code,
            is_transient=code == TRANSIENT,
        )
        _give_reason(f"{UNANSWERED}\n{line}" if is_unanswered(error) else line)
        return code
    return 0


def _give_reason(lines: str) -> None:
    """Writes the reason for an error to the parent process, which reports it."""
    descriptor = os.environ.get(REASON_TO, "")
    if descriptor.isdecimal():
        with suppress(OSError):
            os.write(int(descriptor), lines.encode()[:1024])


@contextmanager
def _nothing(_: Config, __: SparkSession, events: Events) -> Iterator[Events]:
    """Another process reads."""
    yield events


def side_by_side(config: Config) -> Config:
    """The configuration of an application with two kinds of jobs, neither of which is to wait for the other."""
    options = {"spark.scheduler.mode": "FAIR", **config.spark.config}
    return config.model_copy(update={"spark": config.spark.model_copy(update={"config": options})})


def _run(config: Config, events: Events, reading: Beside, *, of_session: Config, verbose: bool) -> None:
    check_kept(config)
    check_start(config)
    check_checkpoint(config)
    with (
        running(of_session, events, verbose=verbose) as (spark, has_delivered),
        reading(config, spark, events) as events,
        ExitStack() as held,
    ):
        delivery = delivery_of(config)
        if _spool_appears(config, events) and (check := alone(config, delivery.consumer, events, held)):
            begin(config)
            is_drained = Sink(spark, config, delivery, check, has_delivered).run(events)
            held.close()
            if is_drained:
                settle_without_sink(delivery, config, spark)
                publish_without_sink(delivery, spark)


@contextmanager
def running(config: Config, events: Events, *, verbose: bool) -> Iterator[tuple[SparkSession, threading.Event]]:
    """A Spark session; signals and the end of the input are put into ``events``.

    The second value is to be set once a micro-batch is delivered: until then a permanent error of Spark is final.

    Raises:
        SinkError: Java is missing, or such an error was raised.
        ConfigurationError: the session would not keep what the sink writes.
    """
    need_java()
    threading.Thread(target=_watch_input, args=(events,), name="lifeline", daemon=True).start()
    with ExitStack() as stack, _final_if_permanent() as has_delivered:
        kind = spark_sink_type(config)
        options = dict(kind.spark_options(config.sink, config.spark))
        spark_config = config.spark.model_copy(update={"config": options})
        spark = session(spark_config, Path(stack.enter_context(tempfile.TemporaryDirectory())), verbose=verbose)
        stack.callback(stop_session, spark)
        for number in (signal.SIGTERM, signal.SIGINT):  # Spark has replaced the handlers
            signal.signal(number, lambda *_: events.put(SinkEvent.SIGNAL))
        kind.check_session(config.sink, spark)
        yield spark, has_delivered


@contextmanager
def _final_if_permanent() -> Iterator[threading.Event]:
    """Turns a permanent error of Spark into a final one; yields an event to be set once a micro-batch is delivered.

    Raises:
        PermanentError: for an error that is permanent by its kind, where no micro-batch has been delivered.
    """
    has_delivered = threading.Event()
    try:
        yield has_delivered
    except SPARK_ERRORS as error:
        if has_delivered.is_set() or meaning_of(error) is not Meaning.PERMANENT:
            raise
        raise PermanentError(clear_line(error)) from error


class Sink:
    """The streaming query of a sink.

    Args:
        spark: a session.
        config: the spool, and Spark's trigger.
        delivery: writes micro-batches to the destination.
        check: raises SpoolInUseError if another sink has taken over.
        has_delivered: is set once a micro-batch is delivered.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        delivery: Delivery,
        check: Callable[[], None] = lambda: None,
        has_delivered: threading.Event | None = None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._delivery = delivery
        self._check = delivery.check = check
        self._settlement = Settlement(delivery, config, check)
        self._publication = Publication(delivery, check)
        self._has_delivered = has_delivered or threading.Event()
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self._done = -1
        self._is_drained = False
        self._undelivered: Exception | None = None

    def run(self, events: Events) -> bool:
        """Runs until the query fails, the input ends and everything is delivered, or a signal comes.

        Returns:
            True if everything is delivered.

        Raises:
            SpannerCdcError, PySparkException, Py4JError, OSError: the query failed, or not everything was delivered.
        """
        self._settlement.look(self._spark)
        if warning := self._delivery.warning_at_start():
            say(warning, action="destination_has_other_progress", level=logging.WARNING)
        query = self._start()
        threading.Thread(target=_watch_query, args=(query, events), name="query", daemon=True).start()
        say(f"ready: the spool at {self._config.spool.path} goes to {self._delivery.destination}", action="sink_ready")
        event = awaited(
            events,
            self._busy,
            lambda: self._settlement.look_at_intervals(self._spark),
            lambda: self._publication.look(self._spark),
            lambda: self._delivery.maintain(self._spark, self._check),
        )
        if event is SinkEvent.INPUT_ENDED:
            threading.Thread(target=self._deliver, args=(query, events), name="delivery", daemon=True).start()
            while (
                event := events.get()
            ) is SinkEvent.INPUT_ENDED:  # said twice: what is sealed is still to be delivered
                pass
        error = query.exception() or self._undelivered  # the query's own error says more
        if error is not None:
            raise error
        if event is SinkEvent.SIGNAL or self._is_drained:
            self._finish_batch(query)  # it may hold epochs that another daemon has sealed
        query.stop()
        say("done", action="sink_done")
        if not self._is_drained:
            _give_reason("it was ended before everything was delivered\n")
        return self._is_drained

    def _start(self) -> StreamingQuery:
        source = with_attributes(self._delivery.source, cores=cores_of(self._spark))
        self._spark.dataSource.register(source)
        reports = self._spark.readStream.format(source.name()).options(**self._delivery.options).load()
        return (
            reports.writeStream.queryName(f"spanner-cdc {self._delivery.consumer}")
            .option("checkpointLocation", self._delivery.checkpoint)
            .trigger(processingTime=f"{self._config.spark.trigger_interval // 1_000_000} milliseconds")
            .foreachBatch(self._write)
            .start()
        )

    def _write(self, reports: DataFrame, batch: int) -> None:
        """Runs a micro-batch, whose rows are the reports of its tasks."""
        with self._busy:
            if self._stopping.is_set():  # an error, so that Spark does not commit the batch
                raise SinkError("the sink is stopping")
            self._check()
            consumer = self._delivery.consumer
            with span("deliver batch") as delivering, self._delivery.feed.reporting_retries(consumer):
                delivering.set_attributes({"spanner_cdc.sink": consumer, "spanner_cdc.batch": batch})
                self._publication.before_batch()
                summary = self._delivery.run(reports)
                self._settlement.look_at_intervals(self._spark)
                self._publication.after_batch(self._spark)
                self._delivery.maintain(self._spark, self._check)
            free_unused()
            self._done = batch
            if not self._has_delivered.is_set():
                works_again(self._delivery.feed.spool, consumer)
                self._has_delivered.set()
        if summary:
            say(f"batch {batch}: {summary}", action="batch_delivered", batch=batch)

    def _deliver(self, query: StreamingQuery, events: Events) -> None:
        """Waits until everything that is ready by now is delivered.

        ``processAllAvailable`` might never return: if the daemon was killed, another may seal epochs meanwhile.
        """
        try:
            self._delivery.drain()
            while query.isActive and self._delivery.waiting():
                query.awaitTermination(_POLL)  # type: ignore[arg-type]  # Spark accepts fractions of a second
            self._is_drained = query.isActive
        except _ENDS_DELIVERY as error:
            self._undelivered = error
        finally:
            events.put(SinkEvent.QUERY_ENDED)

    def _finish_batch(self, query: StreamingQuery) -> None:
        self._stopping.set()
        with self._busy:
            done = self._done
        deadline = time.monotonic() + _COMMIT_WAIT
        while query.isActive and done >= 0 and time.monotonic() < deadline:
            progress = query.lastProgress
            if progress is not None and progress.batchId >= done:
                return
            time.sleep(0.02)


def delivery_of(config: Config, feed: Feed | None = None) -> Delivery:
    """The delivery of a feed by the configuration's sink; by default of the change stream."""
    return spark_sink_type(config).delivery(config, config.sink, feed or Feed.of(config))


def _watch_input(events: Events) -> None:
    with suppress(OSError):  # without standard input there is no daemon
        while os.read(0, 4096):
            pass
    events.put(SinkEvent.INPUT_ENDED)


def _watch_query(query: StreamingQuery, events: Events) -> None:
    try:
        # The main thread reads the query's error. Where the JVM has died, py4j may raise a refused connection.
        with suppress(*SPARK_ERRORS, OSError):
            query.awaitTermination()
    finally:
        events.put(SinkEvent.QUERY_ENDED)


def _spool_appears(config: Config, events: Events) -> bool:
    """Waits for the daemon to create the spool; False if a signal or the end of the input comes first.

    Raises:
        SpoolMismatchError: the spool holds another change stream than the configuration names.
    """
    spool = Spool.at(config.spool.path)
    source = config.source
    while True:
        with suppress(FileNotFoundError):
            spool.check_source(source.name, source.rules_fingerprint)
            return True
        try:
            event = events.get(timeout=0.1)
        except Empty:
            continue
        if event is SinkEvent.SIGNAL:
            return False
        say(f"there is no spool at {spool.path}, and no daemon that writes one: nothing to do", action="no_spool")
        return False


def alone(config: Config, consumer: str, events: Events, held: ExitStack) -> Callable[[], None] | None:
    """Takes the sink's lock for the whole process, once its predecessor has ended; None if a signal comes first.

    Returns a check that raises SpoolInUseError if another sink has taken over since, which a bucket cannot prevent.

    The lock of the consumer's name, which the query holds, is not enough: Spark reads its checkpoint when a query
    starts, so that a later commit of the predecessor would make this query fail.

    Raises:
        SpoolInUseError: the predecessor does not end.
    """
    spool = Spool.at(config.spool.path)
    taken = f"another sink, or a replay of dead letters, holds the spool at {spool.path}"
    return awaited_lock(spool, sink_lock(consumer), taken, events, held)


def awaited_lock(spool: Spool, path: str, taken: str, events: Events, held: ExitStack) -> Callable[[], None] | None:
    """Takes a lock for the whole process, once whoever holds it has ended; None if a signal comes first.

    Args:
        spool: has the lock.
        path: the lock's.
        taken: the reason why it waits, for the log.
        events: those that end the process.
        held: frees the lock.

    Returns:
        A check that raises SpoolInUseError if the lock is lost.

    Raises:
        SpoolInUseError: its holder does not end.
    """
    deadline = time.monotonic() + _PREDECESSOR_TIMEOUT
    is_announced = has_ended = False
    while True:
        try:
            check = held.enter_context(spool.storage.locked(path, taken))
        except SpoolInUseError as error:
            if time.monotonic() >= deadline:
                raise
            if not is_announced:
                say(f"{error}; waiting for its end", action="waiting_for_predecessor")
            is_announced = True
        else:
            if has_ended:
                events.put(SinkEvent.INPUT_ENDED)
            return check
        with suppress(Empty):
            if events.get(timeout=0.1) is SinkEvent.SIGNAL:
                return None
            has_ended = True


def say(line: str, *, action: str, level: int = logging.INFO, **fields: int) -> None:
    """Prints a line of the sink's process (:func:`connector.log.say`)."""
    log.say(PROGRAM, line, action=action, level=level, **fields)
