"""Change events of Cloud Spanner in Spark: the source ``spanner-change-stream``, and the sinks.

spark_sink.register(spark)
events = spark.readStream.format("spanner-change-stream").option("spool", path).load()
singers = spark_sink.typed(events, "Singers")
"""

from spark_sink.registration import register
from spark_sink.typed import typed

__all__ = ["register", "typed"]
