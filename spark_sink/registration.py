"""Registers the data sources with a Spark session."""

from pyspark.sql import SparkSession

from spark_sink.sources.changes.cores import cores_of, with_cores
from spark_sink.sources.changes.data_source import SpannerChangeStream
from spark_sink.sources.files.source import DatastreamFiles
from spark_sink.sources.snapshot.source import PUSHDOWN, SpannerSnapshot


def register(spark: SparkSession) -> None:
    """Registers the formats ``spanner-change-stream``, ``datastream-files`` and ``spanner-snapshot``.

    For the last one, filter pushdown is enabled for Python data sources, unless the session has disabled it.
    """
    cores = cores_of(spark)
    spark.dataSource.register(with_cores(SpannerChangeStream, cores))
    spark.dataSource.register(with_cores(DatastreamFiles, cores))
    spark.dataSource.register(_with_pushdown(SpannerSnapshot, pushes=_pushes(spark)))


def _pushes(spark: SparkSession) -> bool:
    """True if Spark lets Python data sources take filters: it does, unless the session's configuration says no."""
    found = spark.conf.get(PUSHDOWN, None)
    if found is None:
        spark.conf.set(PUSHDOWN, "true")
    return found is None or found.lower() == "true"


def _with_pushdown(source: type[SpannerSnapshot], *, pushes: bool) -> type[SpannerSnapshot]:
    """The data source as a subclass, made as :func:`spark_sink.sources.changes.cores.with_cores` makes it."""
    members = {"pushes": pushes, "__qualname__": f"_with_pushdown.<locals>.{source.__name__}"}
    return type(source.__name__, (source,), members)
