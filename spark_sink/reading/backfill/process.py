"""``python -m spark_sink CONFIG --backfill N``: reads a backfill, and delivers it with the sink of the configuration.

Two things run side by side: the job that reads partitions into the backfill's spool, and the query of the sink over
that spool. When all is read, or when the input ends, the sink delivers what is sealed, and the process ends. It
continues after any kill: what is read follows from the spool, and what is delivered from Spark's checkpoint.
"""

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession

from connector.config.destination import check_kept, destination_of
from connector.config.loading import Config, load
from connector.config.sinks import sink_names
from connector.errors import SpoolError
from connector.spool.backfill.records import RecordedBackfill, check_not_continued, find, mark_lost
from connector.spool.backfill.sealing import discard_continued
from connector.spool.consumers import consumers, replay_lock
from connector.spool.consumers import find as find_consumer
from connector.spool.destinations import keep_destination, sinks_of
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from connector.spool.writing import sole_writer
from spark_sink.errors import PermanentError
from spark_sink.own_command import configure_log
from spark_sink.publishing import publish_without_sink
from spark_sink.reading.backfill.job import BackfillJob, ReadOptions
from spark_sink.run import Events, Sink, SinkEvent, alone, awaited_lock, delivery_of, guarded, running
from spark_sink.settling import settle_without_sink
from spark_sink.sinks.shared.beginning import begin_backfill
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.sink_type import spark_sink_type

_POLL = 0.25
"""Seconds between two looks at what was delivered, once everything is read."""


def main(arguments: Sequence[str]) -> int:
    """Runs a backfill; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark_sink")
    parser.add_argument("config", type=Path)
    parser.add_argument("--backfill", type=int, required=True, metavar="NUMBER")
    parser.add_argument("--rpc-priority", choices=["low", "medium", "high"], default="medium")
    parser.add_argument("--data-boost", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    given = parser.parse_args(arguments)
    configure_log(given)
    options = ReadOptions(given.rpc_priority, given.data_boost)
    return guarded(
        lambda events: _run(load(given.config), given.backfill, options, events, verbose=given.verbose),
        verbose=given.verbose,
    )


def _run(config: Config, number: int, options: ReadOptions, events: Events, *, verbose: bool) -> None:
    spool = Spool.at(absolute(config.spool.path))
    found = find(spool, number)
    if found is None:
        raise SpoolError(f"the spool at {spool.path} has no backfill {number}")
    own = config_of(config, found)
    check_kept(config)
    check_sink(found.spool, own.sink.name)
    with running(own, events, verbose=verbose) as (spark, has_delivered):
        read_and_deliver(spark, config, found, options, events, has_delivered)


def read_and_deliver(
    spark: SparkSession,
    config: Config,
    found: RecordedBackfill,
    options: ReadOptions,
    events: Events,
    has_delivered: threading.Event | None = None,
) -> None:
    """Reads a backfill and delivers it, until it is done or ``events`` say otherwise.

    Args:
        spark: a session.
        config: of the change stream.
        found: the backfill.
        options: how Spanner is read.
        events: of the process.
        has_delivered: is set once a micro-batch is delivered.

    Raises:
        SpannerCdcError, PySparkException, Py4JError, OSError: one clear line; the next process continues.
    """
    spool, own = Spool.at(absolute(config.spool.path)), config_of(config, found)
    with ExitStack() as held:
        feed = Feed(found.spool, spool)
        delivery = delivery_of(own, feed)
        check = alone(own, delivery.consumer, events, held)
        if check is None or not _awaits_replay(spool, delivery.consumer, events):
            return
        held.enter_context(sole_writer(found.spool))
        check_not_continued(spool, found.document.number)
        check_all_is_kept(found.spool, delivery.consumer, now=time.time_ns())
        discard_continued(spool, found.document, {*sink_names(), *sinks_of(spool), *sinks_of(found.spool)})
        keep_destination(found.spool, delivery.consumer, destination_of(own))
        begin_backfill(config, spool)
        job = BackfillJob(
            spark,
            config.source,
            config.envelope.stream_name,
            config.spool.max_bytes,
            found.document,
            feed,
            delivery.consumer,
            options,
        )
        with reading_in_thread(job, events) as of_sink:
            is_drained = Sink(spark, own, delivery, check, has_delivered).run(of_sink)
        if is_drained:
            delivery = delivery_of(config)
            settle_without_sink(delivery, config, spark)
            publish_without_sink(delivery, spark)


def _awaits_replay(spool: Spool, consumer: str, events: Events) -> bool:
    """Waits for the end of a replay of dead letters; False if a signal comes first.

    A later replay finds the lock of the backfill's own spool, which the caller holds. So backfills wait for no other.
    """
    replaying = f"a replay of dead letters holds the spool at {spool.path}"
    with ExitStack() as held:
        return awaited_lock(spool, replay_lock(consumer), replaying, events, held) is not None


def config_of(config: Config, found: RecordedBackfill) -> Config:
    """The configuration of the sink's query over a backfill's spool, with a checkpoint of its own.

    The checkpoint's name has the spool's id, so that a backfill which was removed leaves none to another one.
    """
    name = f"{found.document.number}-{found.spool.header().spool_id}"
    spark = config.spark.model_copy(
        update={
            "checkpoint": f"{absolute(config.spark.checkpoint)}/backfills/{name}",
            "config": {"spark.scheduler.mode": "FAIR", **config.spark.config},
        }
    )
    sink = spark_sink_type(config).sink_of_backfill(config.sink)
    spool = config.spool.model_copy(update={"path": found.spool.path})
    return config.model_copy(update={"spark": spark, "sink": sink, "spool": spool})


def check_sink(own: Spool, consumer: str) -> None:
    """Checks that a backfill was not started for another sink, which may have rows that were deleted since.

    A query of a user's own may be among the consumers: it takes no rows away from the sink.

    Raises:
        SpoolError: it was.
    """
    sinks = {*sink_names(), *sinks_of(own)} - {consumer}
    others = [known.consumer for known in consumers(own) if known.consumer in sinks]
    if others:
        raise SpoolError(
            f"the backfill in {own.path} was started for sink {', '.join(others)}, not {consumer}",
            hint=f"Run it with the configuration of {others[0]} and let it finish, or give {consumer} a spool.path"
            " of its own.",
        )


def check_all_is_kept(own: Spool, sink: str, *, now: int) -> None:
    """Checks that a sink of which a backfill's spool has no record can still get every row.

    Args:
        own: the backfill's spool, whose lock is held.
        sink: its name as a consumer.
        now: Unix nanoseconds.

    Raises:
        PermanentError: segments were deleted before. The backfill is recorded as lost.
    """
    if own.floor() > 1 and find_consumer(own, sink) is None:
        why = f"epochs before {own.floor()} are deleted, and there is no record that sink {sink} has delivered them"
        mark_lost(own, why, now=now)
        raise PermanentError(
            f"the backfill in {own.path} cannot be delivered: {why}",
            hint="Run it again: the tables that are not done are read at a new timestamp.",
        )


@contextmanager
def reading_in_thread(job: BackfillJob, from_process: Events) -> Iterator[Events]:
    """Runs the reading job in a thread for as long as the context is open; its error is raised when that ends.

    Args:
        job: reads.
        from_process: the events of the process: signals, and the end of the input.

    Yields:
        The events for the sink: a signal, or the end of the input once everything is read or reading has stopped.
    """
    stopping, ended = threading.Event(), threading.Event()
    events: Events = SimpleQueue()

    def watch() -> None:
        while True:
            event = from_process.get()
            stopping.set()
            if event is SinkEvent.SIGNAL:
                events.put(event)

    def read() -> None:
        try:
            job.run(stopping)
        finally:
            events.put(SinkEvent.INPUT_ENDED)
        while not ended.wait(_POLL):
            job.report()
        job.report(now=True)

    threading.Thread(target=watch, name="events", daemon=True).start()
    with ThreadPoolExecutor(1, thread_name_prefix="reading") as thread:
        reading = thread.submit(read)
        try:
            yield events
        finally:
            stopping.set()
            ended.set()
    reading.result()
