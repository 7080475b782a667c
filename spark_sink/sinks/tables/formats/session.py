"""The options of a session while tables are written: set for one writer at a time, and taken back.

What Delta and Iceberg are to keep beside a commit they read from options of the session, and so is how Spark writes a
timestamp. Two threads that write in one session would each take the other's options for the user's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock, RLock

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from connector.errors import ConfigurationError
from spark_sink.errors import clear_line, text_of
from spark_sink.failures import SPARK_ERRORS
from spark_sink.session_options import NO_OPTION, conf_or_none
from spark_sink.sinks.tables.formats.jvm import session_key

OWN = "spanner-cdc."
"""The prefix of the names under which tables keep their last epochs."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"

WRITING: Mapping[str, str] = {
    _TIMESTAMPS: "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
}
"""Spark's default for Parquet and Delta is INT96, which few others read, and which has no statistics. Without ANSI a
value that cannot be cast would be NULL, without a word. A session that does not offer the first one writes timestamps
as its platform does; without the second one nothing is written."""

_SERVERLESS = (
    "Databricks serverless offers few options; there append to tables of Delta (mode append), or use a cluster"
)

_NO_PERSISTING = "NOT_SUPPORTED_WITH_SERVERLESS"

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
    before = {name: conf_or_none(spark, name) for name in options}
    if any(OWN in name or (was or "").startswith(OWN) for name, was in before.items()):
        before = dict.fromkeys(options)
    changed = {name: value for name, value in options.items() if before[name] != value}
    done: list[str] = []
    try:
        for name, value in changed.items():
            if set_option(spark, name, value):
                done.append(name)
        yield
    finally:
        for name in done:
            was = before[name]
            with suppress(*SPARK_ERRORS):  # the session is gone
                if was is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, was)


def set_option(spark: SparkSession, name: str, value: str) -> bool:
    """Sets an option of a session.

    Returns:
        False if it is one that only says how timestamps are written, and the session does not offer it.

    Raises:
        ConfigurationError: a server of Spark Connect does not allow it.
    """
    try:
        spark.conf.set(name, value)
    except SPARK_ERRORS as error:
        is_missing = NO_OPTION in text_of(error)
        if is_missing and name == _TIMESTAMPS:
            return False
        hint = f": {_SERVERLESS}" if is_missing else ""
        raise ConfigurationError(
            [f"tables cannot be written in this session, which does not let {name} be set: {clear_line(error)}{hint}"]
        ) from error
    return True


def persisted(rows: DataFrame) -> bool:
    """Keeps rows, so that they are read once; False if the session keeps none, as on Databricks serverless."""
    try:
        rows.persist()
    except PySparkException as error:
        if _NO_PERSISTING not in text_of(error):
            raise
        return False
    return True
