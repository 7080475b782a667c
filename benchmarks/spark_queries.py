"""What a process with a Spark session does for a benchmark: functions for :mod:`benchmarks.subject`.

The session is made first, with one core, as ``spanner-cdc run`` makes it. The others get the spool and an empty folder,
and return how many rows they have dealt with.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_sink
from benchmarks.reading import NAME
from connector.config import SparkConfig, validated
from connector.spool import Spool
from connector.timestamps import format_rfc3339
from spark_sink.run import Event, FileSink, session

_POLL = 0.01
_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def open_session(folder: str) -> int:
    """Makes the process's session; the folder must outlive it, and gets what the JVM says."""
    with _standard_error_in(Path(folder, "jvm.log")):
        made = session(SparkConfig(master="local[1]", config=_CONFIG), Path(folder), verbose=False)
    spark_sink.register(made)
    return 0


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """What processes that are started meanwhile write there, for as long as they live."""
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


def to_noop(spool: str, folder: str) -> int:
    """A streaming query over all that is sealed, to a sink that drops rows."""
    query = _noop(spool, folder, available_now=True)
    query.awaitTermination()
    return _rows(query)


def follow_to_noop(spool: str, folder: str, rows: int) -> int:
    """The same while the spool is written, until that many rows have come."""
    while not Path(spool, "spool.json").exists():
        time.sleep(_POLL)
    query = _noop(spool, folder, available_now=False)
    while _rows(query) < rows and query.isActive:
        time.sleep(_POLL)
    query.stop()
    return _rows(query)


def to_jsonl(spool: str, folder: str, rows: int) -> int:
    """The file sink over all that is sealed, from its start to its end; ``rows`` is what it must write."""
    _files(spool, folder, rotate_interval="60s", until=Path(spool))
    return rows


def to_sparks_json(spool: str, folder: str, rows: int) -> int:
    """The same rows through Spark's own writer."""
    events = _session().read.format("spanner-change-stream").option("spool", spool).load()
    events.write.json(str(events_in(folder)))
    return rows


def follow_to_files(spool: str, folder: str) -> int:
    """The file sink until :func:`end_of` exists, a file for each epoch as soon as it is sealed."""
    _files(spool, folder, rotate_interval="0s", until=end_of(folder))
    return 0


def end_of(folder: str) -> Path:
    """What ends :func:`follow_to_files`."""
    return Path(folder, "end")


def events_in(folder: str) -> Path:
    """Where the files are."""
    return Path(folder, "events")


def _files(spool: str, folder: str, *, rotate_interval: str, until: Path) -> None:
    config = validated(
        {
            "source": {**NAME.model_dump(), "end": format_rfc3339(Spool.at(spool).header().start)},
            "spool": {"path": spool},
            "sink": {"path": str(events_in(folder)), "rotate_interval": rotate_interval},
            "spark": {"checkpoint": f"{folder}/checkpoint", "trigger": "0s"},
        }
    )
    events: SimpleQueue[Event] = SimpleQueue()
    ending = threading.Thread(target=_end_at, args=(until, events), name="lifeline")
    with redirect_stderr(StringIO()):
        sink = FileSink(_session(), config)
        ending.start()
        sink.run(events)
    ending.join()


def _end_at(until: Path, events: "SimpleQueue[Event]") -> None:
    while not until.exists():
        time.sleep(_POLL)
    events.put(Event.INPUT_ENDED)


def _noop(spool: str, folder: str, *, available_now: bool) -> StreamingQuery:
    events = _session().readStream.format("spanner-change-stream").option("spool", spool).load()
    writer = events.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def _rows(query: StreamingQuery) -> int:
    error = query.exception()
    if error is not None:
        raise error
    return sum(progress.numInputRows for progress in query.recentProgress)
