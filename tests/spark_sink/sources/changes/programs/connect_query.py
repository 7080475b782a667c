"""A program: reads a spool through Spark Connect. Arguments: folder, spool. Prints what it found as JSON.

The session starts a server of its own on this machine.
"""

import json
import sys

from pyspark.sql import SparkSession

import spark_sink
from spark_sink.sources.changes.data_source import FORMAT


def main() -> None:
    folder, spool = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_sink.register(spark)
    batch = spark_sink.typed(spark.read.format(FORMAT).option("spool", spool).load(), "Singers")
    stream = spark_sink.typed(spark.readStream.format(FORMAT).option("spool", spool).load(), "Singers")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/rows")
    )
    query.awaitTermination(600)
    found = {
        "session": type(spark).__module__,
        "batch": sorted(row.Id for row in batch.collect()),
        "stream": sorted(row.Id for row in spark.read.parquet(f"{folder}/rows").collect()),
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
