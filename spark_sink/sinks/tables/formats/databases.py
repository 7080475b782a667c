"""Checks ``sink.database``: its catalog is fit for the format, and for the command ``check`` answers and has it."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.errors import SinkError, clear_line, text_of
from spark_sink.failures import SPARK_ERRORS
from spark_sink.session_options import conf_or_none
from spark_sink.sinks.tables.config import Format, TablesConfig
from spark_sink.sinks.tables.formats.started import started
from spark_sink.sinks.tables.lake_table import quoted
from spark_sink.sinks.tables.libraries import LIBRARIES

_OWN = "spark_catalog"
_NO_NAMESPACE = ("SCHEMA_NOT_FOUND", "NoSuchNamespaceException")
_NO_CATALOG = ("CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "Nested databases are not supported")


def database_errors(database: str, sink: TablesConfig, spark: SparkConfig) -> Sequence[str]:
    """The reason why the sink's database cannot be used, after the option that it is about; empty if it can.

    Spark is started for it, on this machine.
    """
    here = spark.model_copy(update={"master": "local[1]"})
    try:
        with started(here, sink) as session:
            return missing_database(session, database, sink.format)
    except SinkError as error:
        return [f"sink.database: {error}"]


def missing_database(session: SparkSession, database: str, of_format: Format) -> Sequence[str]:
    """As :func:`database_errors`, in a session with the sink's catalogs."""
    if unfit := unfit_catalog(session, database, of_format):
        return [unfit]
    try:
        session.sql(f"DESCRIBE NAMESPACE {'.'.join(map(quoted, database.split('.')))}").collect()
    except SPARK_ERRORS as error:
        return [f"sink.database: {_why(database, error)}"]
    return []


def unfit_catalog(session: SparkSession, database: str, of_format: Format) -> str:
    """The reason why Spark's own catalog keeps no tables of a database; empty if it does, or another has it.

    Only options of the session are read: no catalog is asked.
    """
    if _is_sparks_own(session, database) and (why := _unfit(session, of_format)):
        return f"sink.database: {database} is in Spark's own catalog, {why}"
    return ""


def _is_sparks_own(session: SparkSession, database: str) -> bool:
    """True if a database is in the catalog that each session has, as a name without a catalog mostly is."""
    first, _, rest = database.partition(".")
    if first == _OWN or conf_or_none(session, f"spark.sql.catalog.{first}") is not None:
        return first == _OWN
    return not rest and (conf_or_none(session, "spark.sql.defaultCatalog") or _OWN) == _OWN


def _unfit(session: SparkSession, of_format: Format) -> str:
    """The reason why that catalog keeps no tables of a format; empty if it does, or another library decides it."""
    kind = conf_or_none(session, f"spark.sql.catalog.{_OWN}")
    if kind is not None and kind != LIBRARIES["delta"].options[f"spark.sql.catalog.{_OWN}"]:
        return ""
    if of_format == "iceberg":
        return (
            "which has no tables of Iceberg: configure a catalog in spark.config (spark.sql.catalog.NAME), or"
            f" spark.sql.catalog.{_OWN} as org.apache.iceberg.spark.SparkSessionCatalog"
        )
    if (conf_or_none(session, "spark.sql.catalogImplementation") or "in-memory") == "in-memory":
        return (
            "which is in memory: configure a metastore in spark.config (spark.sql.catalogImplementation: hive), or use"
            " sink.path"
        )
    return ""


def _why(database: str, error: BaseException) -> str:
    text = text_of(error)
    catalog = database.partition(".")[0]
    if any(name in text for name in _NO_CATALOG):
        return f"there is no catalog {catalog}: configure it in spark.config (spark.sql.catalog.{catalog})"
    if any(name in text for name in _NO_NAMESPACE):
        return f"there is no database {database}: create it (CREATE NAMESPACE {database})"
    return f"{database} cannot be read: {clear_line(error)}"
