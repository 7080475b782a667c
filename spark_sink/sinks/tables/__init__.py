"""Tables of Delta, Iceberg or Parquet in Spark, each epoch exactly once: ``sink.type: tables``."""
