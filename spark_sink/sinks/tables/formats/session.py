"""The options of a session while tables are written: set for one writer at a time, and taken back.

What Delta and Iceberg are to keep beside a commit they read from options of the session, and so is how Spark writes a
timestamp. Two threads that write in one session would each take the other's options for the user's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock, RLock

from pyspark.sql import SparkSession

from connector.errors import ConfigurationError
from spark_sink.errors import clear_line
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.tables.formats.jvm import session_key

OWN = "spanner-cdc."
"""The prefix of the names under which tables keep their last epochs."""

WRITING: Mapping[str, str] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
}
"""Spark's default for Parquet and Delta is INT96, which few others read, and which has no statistics. Without ANSI a
value that cannot be cast would be NULL, without a word."""

_LOCKS: dict[str, RLock] = defaultdict(RLock)
_CHOOSING = Lock()


@contextmanager
def writing(spark: SparkSession) -> Iterator[None]:
    """Holds a session against other writers of this process, with the options of all writing."""
    with _CHOOSING:
        lock = _LOCKS[session_key(spark)]
    with lock, session_options(spark, WRITING):
        yield


@contextmanager
def session_options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Sets options of a session, and takes them back.

    A session that was copied meanwhile, as Spark does for a query, has them as well: they are not taken for the user's.

    Raises:
        ConfigurationError: a server of Spark Connect does not allow it.
    """
    before = {name: spark.conf.get(name, None) for name in options}
    if any(OWN in name or (was or "").startswith(OWN) for name, was in before.items()):
        before = dict.fromkeys(options)
    changed = {name: value for name, value in options.items() if before[name] != value}
    try:
        for name, value in changed.items():
            _set(spark, name, value)
        yield
    finally:
        for name in changed:
            was = before[name]
            with suppress(*SPARK_ERRORS):  # what cannot be taken back was not set, or the session is gone
                if was is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, was)


def _set(spark: SparkSession, name: str, value: str) -> None:
    try:
        spark.conf.set(name, value)
    except SPARK_ERRORS as error:
        raise ConfigurationError(
            [f"tables cannot be written in this session, which does not let {name} be set: {clear_line(error)}"]
        ) from error
