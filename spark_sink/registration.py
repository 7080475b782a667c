"""Registers the data sources with a Spark session."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_sink.read_back.source import DatastreamFiles
from spark_sink.source.data_source import SpannerChangeStream


def register(spark: SparkSession) -> None:
    """Registers the formats ``spanner-change-stream`` and ``datastream-files``."""
    cores = cores_of(spark)
    spark.dataSource.register(with_cores(SpannerChangeStream, cores))
    spark.dataSource.register(with_cores(DatastreamFiles, cores))


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
