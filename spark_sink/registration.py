"""Registers the data sources with a Spark session."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_sink.read_back.source import DatastreamFiles
from spark_sink.snapshot.source import PUSHDOWN, SpannerSnapshot
from spark_sink.source.data_source import SpannerChangeStream


def register(spark: SparkSession) -> None:
    """Registers the formats ``spanner-change-stream``, ``datastream-files`` and ``spanner-snapshot``.

    For the last one, filter pushdown is enabled for Python data sources, unless the session has disabled it.
    """
    cores = cores_of(spark)
    spark.dataSource.register(with_cores(SpannerChangeStream, cores))
    spark.dataSource.register(with_cores(DatastreamFiles, cores))
    spark.dataSource.register(_with_pushdown(SpannerSnapshot, pushes=_pushes(spark)))


def cores_of(spark: SparkSession) -> int:
    """How many tasks the session runs at a time; 0 where it does not say, as with Spark Connect."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return 0


def with_cores(source: type[DataSource], cores: int) -> type[DataSource]:
    """The data source as a subclass that plans for that many cores.

    Spark passes no configuration to a Python data source. A class that a function makes is pickled by value, with its
    attributes, so that they reach the process of the data source.
    """
    return type(source.__name__, (source,), {"cores": cores, "__qualname__": f"with_cores.<locals>.{source.__name__}"})


def _pushes(spark: SparkSession) -> bool:
    """Whether Spark lets Python data sources take filters: it does, unless the session's configuration says no."""
    found = spark.conf.get(PUSHDOWN, None)
    if found is None:
        spark.conf.set(PUSHDOWN, "true")
    return found is None or found.lower() == "true"


def _with_pushdown(source: type[SpannerSnapshot], *, pushes: bool) -> type[SpannerSnapshot]:
    """The data source as a subclass, made as :func:`with_cores` makes it."""
    members = {"pushes": pushes, "__qualname__": f"_with_pushdown.<locals>.{source.__name__}"}
    return type(source.__name__, (source,), members)
