"""A program that merges a spool into tables through Spark Connect, each epoch more than once, and prints them as JSON.

Arguments: the format, the folder of the tables, the spool. The session starts a server of its own on this machine.
"""

import json
import sys

from pyspark.sql import SparkSession

import spark_sink
from connector.config.sections import SparkConfig
from spark_sink.sinks.tables.config import Mode, TableOptions, TablesConfig
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.libraries import spark_options
from spark_sink.sources.changes.data_source import FORMAT
from tests.lake_libraries import FEW_ROWS


def main() -> None:
    of_format, folder, spool = sys.argv[1:]
    sink = TablesConfig.model_validate({"format": of_format, "path": folder})
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**spark_options(sink, SparkConfig()), **FEW_ROWS, "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_sink.register(spark)
    events = spark.read.format(FORMAT).option("spool", spool).load()
    modes: tuple[Mode, ...] = ("merge", "append")
    for mode in modes:
        for first, last in ((1, 2), (2, 4)):
            spark_sink.merge_into(
                events.where(f"epoch BETWEEN {first} AND {last}"),
                path=f"{folder}/{mode}",
                format=sink.format,
                mode=mode,
            )
    found: dict[str, object] = {"session": type(spark).__module__}
    for mode in modes:
        store = STORES[sink.format](spark, TableOptions(sink.format, f"{folder}/{mode}", None, mode, "apply"), "")
        found[mode] = sorted([row.Id, row.Name] for row in store.rows("Singers").select("Id", "Name").collect())
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
