"""The maintenance of each format."""

from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.formats.delta import DeltaStore
from spark_sink.sinks.tables.formats.iceberg import IcebergStore
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.maintenance.delta_upkeep import DeltaUpkeep
from spark_sink.sinks.tables.maintenance.iceberg_upkeep import IcebergUpkeep
from spark_sink.sinks.tables.maintenance.upkeep import Upkeep


def upkeep_of(spark: SparkSession, options: TableOptions) -> Upkeep:
    """The maintenance of tables of Delta or Iceberg."""
    store = STORES[options.format](spark, options, "")
    if isinstance(store, DeltaStore):
        return DeltaUpkeep(spark, store)
    assert isinstance(store, IcebergStore)
    return IcebergUpkeep(spark, store)
