"""The libraries of Delta and Iceberg, which Spark takes from Maven, for each version of Spark.

A session that names such a library itself keeps it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from connector.config.sections import SparkConfig
from connector.extras import installation
from spark_sink.sinks.tables.config import TablesConfig

_GENERATED = {"spark.sql.codegen.cache.maxEntries": "5000"}
"""The number of generated classes that Spark keeps. A MERGE has dozens: with Spark's default of 100 most are generated
again for each micro-batch, and the JVM optimizes them again.
"""

PACKAGES, EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"
"""Options of Spark whose values are lists: those of a sink are added to a user's own."""


@dataclass(frozen=True, slots=True)
class Library:
    """The library of a format.

    Attributes:
        artifact: the part of the names of its files by which it is recognized.
        versions: by Spark's version, what Maven calls it.
        extensions: what extends Spark's SQL.
        options: further options of the session.
    """

    artifact: str
    versions: Mapping[str, str]
    extensions: str
    options: Mapping[str, str]


LIBRARIES: Mapping[str, Library] = {
    "delta": Library(
        "delta-spark",
        {
            "4.0": "io.delta:delta-spark_4.0_2.13:4.4.0",
            "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
            "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
        },
        "io.delta.sql.DeltaSparkSessionExtension",
        {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
    ),
    "iceberg": Library(
        "iceberg-spark-runtime",
        {
            "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
            "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        },
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        {},
    ),
}
"""Parquet needs none."""


def spark_options(sink: TablesConfig, spark: SparkConfig) -> dict[str, str]:
    """The options of a session with the sink's library, beside those that the configuration gives.

    On one machine a shuffle has as many partitions as twice its cores: by Spark's defaults, which are for clusters, a
    small MERGE takes two to four times as long.
    """
    given = spark.config
    tasks = str(2 * (os.cpu_count() or 1))
    own = dict(_GENERATED)
    is_local = spark.master.startswith("local")
    if is_local:
        own["spark.sql.shuffle.partitions"] = tasks
    library = LIBRARIES.get(sink.format)
    if library is None:
        return {**own, **given}
    if sink.format == "delta" and is_local:
        own["spark.databricks.delta.snapshotPartitions"] = tasks
    packages = [given[PACKAGES]] if given.get(PACKAGES) else []
    brings = " ".join(given.get(name, "") for name in ("spark.jars", PACKAGES))
    found = library.versions.get(spark_version())
    if found and library.artifact not in brings:
        packages.append(found)
    extensions = [given[EXTENSIONS]] if given.get(EXTENSIONS) else []
    if library.extensions not in given.get(EXTENSIONS, ""):
        extensions.append(library.extensions)
    lists = {PACKAGES: ",".join(packages), EXTENSIONS: ",".join(extensions)}
    return {**own, **library.options, **given, **{name: value for name, value in lists.items() if value}}


def missing_library(sink: TablesConfig, given: Mapping[str, str]) -> str:
    """The error of an installed Spark without a library for the sink; empty if it, or the configuration, brings one."""
    library = LIBRARIES.get(sink.format)
    if library is None or spark_version() in library.versions:
        return ""
    if library.artifact in " ".join(given.get(name, "") for name in ("spark.jars", PACKAGES)):
        return ""
    versions = ", ".join(library.versions)
    return (
        f"sink.format: there is no library of {sink.format} for Spark {spark_version()} yet: install PySpark {versions}"
        f" ({installation('lakehouse')}), or name a library in spark.config ({PACKAGES})"
    )


def spark_version() -> str:
    """The installed Spark's version, as ``4.1``; empty if there is none."""
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return ""
