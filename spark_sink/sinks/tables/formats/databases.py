"""Checks ``sink.database`` for the command ``check``: its catalog answers, and has that namespace."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.errors import SinkError, clear_line, text_of
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.started import started
from spark_sink.sinks.tables.lake_table import quoted

_NO_NAMESPACE = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException")
_NO_CATALOG = ("CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "Nested databases are not supported")


def database_errors(database: str, sink: TablesConfig, spark: SparkConfig) -> Sequence[str]:
    """The reason why the sink's database cannot be used, after the option that it is about; empty if it can.

    Spark is started for it, on this machine.
    """
    here = spark.model_copy(update={"master": "local[1]"})
    try:
        with started(here, sink) as session:
            return missing_database(session, database)
    except SinkError as error:
        return [f"sink.database: {error}"]


def missing_database(session: SparkSession, database: str) -> Sequence[str]:
    """As :func:`database_errors`, in a session with the sink's catalogs."""
    try:
        session.sql(f"DESCRIBE NAMESPACE {'.'.join(map(quoted, database.split('.')))}").collect()
    except SPARK_ERRORS as error:
        return [f"sink.database: {_why(database, error)}"]
    return []


def _why(database: str, error: BaseException) -> str:
    text = text_of(error)
    catalog = database.partition(".")[0]
    if any(name in text for name in _NO_CATALOG):
        return f"there is no catalog {catalog}: configure it in spark.config (spark.sql.catalog.{catalog})"
    if any(name in text for name in _NO_NAMESPACE):
        return f"there is no database {database}: create it (CREATE NAMESPACE {database})"
    return f"{database} cannot be read: {clear_line(error)}"
