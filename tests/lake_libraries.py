"""Fetches the libraries of Delta and Iceberg, before the tests start.

``python -m tests.lake_libraries``: two processes that fetch them from Maven at once spoil each other's files in Ivy's
cache, and both fail.
"""

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.libraries import LIBRARIES, PACKAGES, spark_options, spark_version

SQLITE = "org.xerial:sqlite-jdbc:3.49.1.0"
"""The driver of a database for a JDBC catalog of Iceberg, which has to be there when the JVM starts."""

INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Code that is generated for a statement would be compiled for a few rows."""

FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""A statement of a few rows takes less time than compiling code for it; VACUUM has 10,000 tasks by default."""


def lake_options() -> dict[str, str]:
    """The options of a session that has every library that there is for the installed Spark."""
    options: dict[str, str] = {}
    for name, library in LIBRARIES.items():
        if spark_version() in library.versions:
            sink = TablesConfig.model_validate({"format": name, "path": "/lake"})
            options = spark_options(sink, SparkConfig(config=options))
    if "iceberg" in options.get(PACKAGES, ""):
        options[PACKAGES] += f",{SQLITE}"
    return options


def fetch() -> None:
    """Starts a session, which fetches what the cache lacks."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in lake_options().items():
        builder = builder.config(name, value)
    builder.getOrCreate().stop()


if __name__ == "__main__":
    fetch()
