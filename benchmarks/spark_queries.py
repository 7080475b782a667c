"""The work of a process with a Spark session: functions for `benchmarks.measure.subject`.

The session is created first, with one core, as ``spanner-cdc run`` creates it. A streaming query takes seconds to
start, once in a service's run, and its first micro-batch some more. So the measurement starts when the query has
delivered its first rows.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_sink
from benchmarks.measure.reading import NAME
from benchmarks.measure.subject import done, prepared
from connector.config import SparkConfig, validated
from connector.spool.consumers import find
from connector.spool.reading import Spool
from spark_sink.run import Sink, SinkEvent, delivery_of
from spark_sink.session import session
from spark_sink.sinks.files.complete_minutes import FOLDER

_POLL = 0.02
_PATIENCE = 300.0
SPARKS_FORMATS = {"jsonl": "json", "avro": "org.apache.spark.sql.avro.AvroFileFormat"}
"""Spark's names of its writers; for Avro its class, because Spark from pip registers no name for it."""

_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def open_session(folder: str) -> int:
    """Creates the process's session; the folder must outlive it, and gets the JVM's output."""
    with standard_error_in(Path(folder, "jvm.log")):
        made = session(SparkConfig(master="local[1]", config=_CONFIG), Path(folder), verbose=False)
    spark_sink.register(made)
    return 0


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """Sends the standard error of processes started in the context to a file, until they end."""
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _session() -> SparkSession:
    return SparkSession.builder.getOrCreate()


def to_noop(spool: str, folder: str, first: int, rows: int) -> int:
    """Runs a query that drops rows; once it has the ``first`` rows, it creates `started` and measures the others."""
    query = _noop(spool, folder)
    _wait_until(lambda: _rows(query) >= first)
    prepared()
    started(folder).touch()
    _wait_until(lambda: _rows(query) >= rows)
    done()
    query.stop()
    return _rows(query) - first


def to_files(spool: str, folder: str, file_format: str, first: int, rows: int) -> int:
    """Runs the file sink with a file for each epoch, likewise; ``first`` and ``rows`` count epochs."""
    with _sink(spool, folder, _files_in(folder, file_format)):
        _wait_until(lambda: _files(folder) >= first)
        prepared()
        started(folder).touch()
        _wait_until(lambda: _files(folder) >= rows)
        done()
    return 0


def to_bigquery(spool: str, folder: str, endpoints: tuple[str, str], first: int, epochs: int) -> int:
    """Runs the BigQuery sink in the mode merge, likewise; an epoch counts when the sink has recorded it as done."""
    sink = {"type": "bigquery", "project": "double", "dataset": "bench", "dead_letters": f"{folder}/dead-letters"}
    endpoint, grpc_endpoint = endpoints
    with _sink(spool, folder, {**sink, "location": "EU", "endpoint": endpoint, "grpc_endpoint": grpc_endpoint}):
        _wait_until(lambda: _recorded(spool) >= first)
        prepared()
        started(folder).touch()
        _wait_until(lambda: _recorded(spool) >= epochs)
        done()
    assert not Path(folder, "dead-letters").exists(), "rows were rejected"
    return 0


def _recorded(spool: str) -> int:
    consumer = find(Spool.at(spool), "bigquery")
    return consumer.epoch if consumer else 0


def to_sparks_files(spool: str, folder: str, file_format: str) -> int:
    """Writes all sealed epochs with Spark's own writer of that format."""
    events = _session().read.format("spanner-change-stream").option("spool", spool).load()
    writer = events.write.format(SPARKS_FORMATS[file_format]).option(
        "compression", "uncompressed"
    )  # like the sink's files
    writer.save(str(events_in(folder)))
    return 0


def to_files_until_stopped(spool: str, folder: str) -> int:
    """Runs the file sink until `stop_file` exists, with a file for each epoch as soon as it is sealed."""
    with _sink(spool, folder, _files_in(folder, "jsonl")):
        _wait_until(stop_file(folder).exists)
    return 0


def started(folder: str) -> Path:
    """The file that exists once the measurement has started."""
    return Path(folder, "started")


def stop_file(folder: str) -> Path:
    """The file that ends `to_files_until_stopped`."""
    return Path(folder, "stop")


def events_in(folder: str) -> Path:
    """The folder of the files."""
    return Path(folder, "events")


def _files_in(folder: str, file_format: str) -> dict[str, object]:
    return {"path": str(events_in(folder)), "format": file_format, "rotate_interval": "0s"}


@contextmanager
def _sink(spool: str, folder: str, sink: dict[str, object]) -> Iterator[None]:
    """Runs a sink in a thread while the context is open; at its end the sink delivers what is sealed."""
    config = validated(
        {
            "source": NAME.model_dump(),
            "spool": {"path": spool},
            "sink": sink,
            "spark": {"checkpoint": f"{folder}/checkpoint", "trigger": "0s"},
        }
    )
    events: SimpleQueue[SinkEvent] = SimpleQueue()
    with redirect_stderr(StringIO()), ThreadPoolExecutor(1) as threads:
        running = threads.submit(Sink(_session(), config, delivery_of(config)).run, events)
        try:
            yield
        finally:
            events.put(SinkEvent.INPUT_ENDED)
            running.result()


def _files(folder: str) -> int:
    return sum(FOLDER not in path.parts for path in events_in(folder).rglob("[!.]*.*"))


def _noop(spool: str, folder: str) -> StreamingQuery:
    events = _session().readStream.format("spanner-change-stream").option("spool", spool).load()
    return events.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint").start()


def _rows(query: StreamingQuery) -> int:
    error = query.exception()
    if error is not None:
        raise error
    return sum(progress.numInputRows for progress in query.recentProgress)


def _wait_until(reached: Callable[[], bool]) -> None:
    """Waits until `reached` returns true.

    Raises:
        TimeoutError: it takes longer than _PATIENCE.
    """
    deadline = time.monotonic() + _PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query made no progress within {_PATIENCE:.0f} s")
        time.sleep(_POLL)
