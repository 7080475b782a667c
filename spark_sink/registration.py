"""Makes the sources known to a Spark session."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_sink.read_back.source import DatastreamFiles
from spark_sink.source.data_source import SpannerChangeStream


def register(spark: SparkSession) -> None:
    """Makes the formats ``spanner-change-stream`` and ``datastream-files`` known to a session."""
    cores = cores_of(spark)
    spark.dataSource.register(with_cores(SpannerChangeStream, cores))
    spark.dataSource.register(with_cores(DatastreamFiles, cores))


def cores_of(spark: SparkSession) -> int:
    """How many tasks the session runs at a time; 0 where it does not say (Spark Connect)."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return 0


def with_cores(source: type[DataSource], cores: int) -> type[DataSource]:
    """The source, made to plan for that many cores.

    Spark tells a Python source nothing of its configuration. A class of a function's body is pickled whole, with
    its attributes, so what stands there reaches the source's process.
    """
    return type(source.__name__, (source,), {"cores": cores, "__qualname__": f"with_cores.<locals>.{source.__name__}"})
