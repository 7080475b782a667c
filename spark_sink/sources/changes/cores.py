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


def with_attributes(source: type[DataSource], **attributes: int) -> type[DataSource]:
    """The data source as a subclass with other attributes, such as the number of cores that it plans for.

    Spark passes no configuration to a Python data source. A class that a function makes is pickled by value, with its
    attributes, so that they reach the process of the data source.
    """
    return type(
        source.__name__, (source,), {**attributes, "__qualname__": f"with_attributes.<locals>.{source.__name__}"}
    )
