"""The options of a session while tables are written: set for one writer at a time, and taken back.

What Delta and Iceberg are to keep beside a commit they read from options of the session, and so is how Spark writes a
timestamp. Two threads that write in one session would each take the other's options for the user's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, RLock

from pyspark.sql import SparkSession

from spark_sink.sinks.tables.formats.jvm import java_session

OWN = "spanner-cdc."
"""The prefix of the names under which tables keep their last epochs."""

WRITING: Mapping[str, str] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
}
"""Spark's default for Parquet and Delta is INT96, which few others read, and which has no statistics. Without ANSI a
value that cannot be cast would be NULL, without a word."""

_LOCKS: dict[int, RLock] = defaultdict(RLock)
_CHOOSING = Lock()


@contextmanager
def writing(spark: SparkSession) -> Iterator[None]:
    """Holds a session against other writers of this process, with the options of all writing.

    Raises:
        ConfigurationError: the session is one of Spark Connect.
    """
    session = int(java_session(spark).hashCode())  # of one session there may be several objects in Python
    with _CHOOSING:
        lock = _LOCKS[session]
    with lock, session_options(spark, WRITING):
        yield


@contextmanager
def session_options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Sets options of a session, and takes them back.

    A session that was copied meanwhile, as Spark does for a query, has them as well: they are not taken for the user's.
    """
    before = {name: spark.conf.get(name, None) for name in options}
    if any(OWN in name or (was or "").startswith(OWN) for name, was in before.items()):
        before = dict.fromkeys(options)
    try:
        for name, value in options.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
