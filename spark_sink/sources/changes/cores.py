"""The number of tasks that a session runs at a time, for data sources that plan for as many."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that the session runs at a time; 0 where it does not say, as with Spark Connect."""
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
