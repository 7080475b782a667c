"""The tables that are at the destination, for ``spanner-cdc discover``."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from connector.config.sinks import DestinationObject
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.started import started
from spark_sink.sinks.tables.formats.stores import STORES


def objects(sink: TablesConfig, spark: SparkConfig) -> Sequence[DestinationObject]:
    """The tables below the sink's path, or of its database; Spark is started for it, on this machine.

    Raises:
        SinkError: Spark cannot be started, or cannot read them.
    """
    with started(spark.model_copy(update={"master": "local[1]"}), sink) as session:
        return objects_in(session, sink)


def objects_in(session: SparkSession, sink: TablesConfig) -> Sequence[DestinationObject]:
    """As :func:`objects`, in a session with the sink's catalogs."""
    store = STORES[sink.format](session, sink.options, "")
    return [DestinationObject(name, store.columns(name), store.key(name)) for name in store.names()]
