"""The built-in sinks, as pyproject.toml registers them.

Where the package runs without having been installed (from a checkout on PYTHONPATH, or in a zip file that Spark
distributes), there are no entry points; :mod:`connector.config.sinks` then finds the sinks here. A test compares both.
"""

SINKS = {
    "bigquery": "spark_sink.sinks.bigquery.sink_type:SINK",
    "files": "spark_sink.sinks.files.sink_type:SINK",
    "spanner": "spark_sink.sinks.spanner.sink_type:SINK",
    "tables": "spark_sink.sinks.tables.sink_type:SINK",
}
"""The entry point of each built-in sink, by its name."""
