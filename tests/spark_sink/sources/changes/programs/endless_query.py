"""A program: runs a query until it is killed. Arguments: folder, options as JSON."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_sink
from tests.spark_sink.queries import Query


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_sink.register(spark)
    Query(spark, Path(sys.argv[1]), **json.loads(sys.argv[2])).start().awaitTermination()


if __name__ == "__main__":
    main()
