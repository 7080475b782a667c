"""The cost of publishing: ``python -m tests.spark_sink.cuts.cost --sink delta --tables 50 --batches 10``.

Each micro-batch changes a row of every table. The first one creates the tables, and is not counted. It fails if more
than :data:`MOST` of the time is spent on publishing.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from connector.core.timestamps import SECOND
from tests.spark_sink.cuts.campaign import Campaign
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.sinks.tables.campaign.backfill_ends import session
from tests.spark_sink.spools import record

MOST = 0.05
"""The largest share of a micro-batch's time."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.cuts.cost")
    parser.add_argument("--sink", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--batches", type=int, default=10)
    given = parser.parse_args()
    spark = session(given.sink)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(spark, given.sink, Path(folder), 1)
        maker = campaign.bank.maker
        delivery, publication = campaign.process()
        published: list[float] = []
        publish = publication.after_batch

        def timed(spark: SparkSession) -> None:
            began = time.monotonic()
            publish(spark)
            published.append(time.monotonic() - began)

        publication.after_batch = timed  # type: ignore[method-assign]
        whole: list[float] = []
        for batch in range(given.batches + 1):
            at = maker.watermark + SECOND
            maker.seal(*(record(at, [batch], table=f"T{number}", sequence=number) for number in range(given.tables)))
            began = time.monotonic()
            campaign.deliver(delivery, publication)
            whole.append(time.monotonic() - began)
    del published[0]
    share = sum(published) / sum(whole[1:])
    report(
        f"{given.sink}, {given.tables} tables: micro-batches of {statistics.median(whole[1:]):.2f} s,"
        f" {statistics.median(published):.2f} s of them to publish: {share:.1%}; {[round(one, 2) for one in published]}"
    )
    spark.stop()
    return 0 if share <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
