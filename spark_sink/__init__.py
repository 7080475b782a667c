"""Change events of Cloud Spanner in Spark: the source ``spanner-change-stream``, and the sinks.

::

    spark_sink.register(spark)
    events = spark.readStream.format("spanner-change-stream").option("spool", path).load()
    singers = spark_sink.typed(events, "Singers")
    tables = spark_sink.as_of(spark, path="/lake/music")

Spark is imported on first use, so that a missing PySpark is reported in one line.
"""

from typing import TYPE_CHECKING

from connector.extras import installation

if TYPE_CHECKING:
    from spark_sink.registration import register
    from spark_sink.sinks.tables.cuts.as_of import as_of
    from spark_sink.sinks.tables.merge_into import merge_into
    from spark_sink.sources.changes.typed import typed

__all__ = ["as_of", "merge_into", "register", "typed"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # so that help(spark_sink) finds what is imported on first use


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from spark_sink.registration import register
        from spark_sink.sinks.tables.cuts.as_of import as_of
        from spark_sink.sinks.tables.merge_into import merge_into
        from spark_sink.sources.changes.typed import typed
    except ImportError as error:
        if not (error.name or "").startswith("pyspark"):
            raise
        raise ImportError(f"spark_sink needs PySpark 4.0 or newer: {installation('spark')}", name=error.name) from error
    return {"as_of": as_of, "merge_into": merge_into, "register": register, "typed": typed}[name]
