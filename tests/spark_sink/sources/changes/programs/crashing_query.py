"""A program: runs a query, and kills itself and its JVM at a point of a micro-batch.

Arguments: folder, spool, point (``planned``, ``written`` or ``never``), batch, consumer.
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_sink
from tests.spark_sink.queries import Query


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    folder, spool, point, batch = sys.argv[1:5]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_sink.register(spark)
    query = Query(spark, Path(folder), spool=spool, maxRowsPerTrigger="10")
    at = int(batch)
    query.run(
        before=lambda number: die() if point == "planned" and number == at else None,
        after=lambda number: die() if point == "written" and number == at else None,
    )


if __name__ == "__main__":
    main()
