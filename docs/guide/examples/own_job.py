"""Keeps the changes of the table Singers as Parquet, each once, and the current rows beside them.

Run it as often as you like: each run takes what was sealed since the last one.

    python own_job.py ./spool ./lake ./checkpoint
"""

import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import spark_sink


def append_changes(spark: SparkSession, spool: str, lake: str, checkpoint: str) -> None:
    """Writes what was sealed since the last run, a folder for each micro-batch."""
    events = (
        spark.readStream.format("spanner-change-stream")
        .option("spool", spool)
        .option("consumer", "singers-lake")
        .option("tables", "Singers")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        # A micro-batch that Spark repeats has the same rows, and replaces the folder that it left unfinished.
        batch.write.mode("overwrite").parquet(f"{lake}/changes/batch={number:010d}")

    singers = spark_sink.typed(events, "Singers")
    query = singers.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.foreachBatch(write).start().awaitTermination()


def current_rows(spark: SparkSession, lake: str) -> DataFrame:
    """The newest change of each row, without the rows that were deleted."""
    changes = spark.read.option("mergeSchema", "true").parquet(f"{lake}/changes")
    newest_first = Window.partitionBy("SingerId").orderBy(F.col("_change_sequence_number").desc())
    newest = changes.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
    return newest.where("NOT _is_deleted").drop("_rank", "batch")


def main(spool: str, lake: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("singers-lake").getOrCreate()
    spark_sink.register(spark)
    append_changes(spark, spool, lake, checkpoint)
    rows = current_rows(spark, lake)
    rows.write.mode("overwrite").parquet(f"{lake}/current")
    print(f"{rows.count()} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
