"""``python -m tests.soak.faults.sink CONFIG``: the sink's process with the faults in its environment."""

import sys

from pyspark.sql import DataFrame

import spark_sink.sinks.files.source
from spark_sink.run import Sink, main
from tests.soak.faults.source import FaultySource, points


def inject_batch_faults() -> None:
    write = Sink._write

    def faulty_write(self: Sink, reports: DataFrame, batch: int) -> None:
        points.reached("before a micro-batch")
        write(self, reports, batch)
        points.reached("after a micro-batch, before its commit")

    Sink._write = faulty_write  # type: ignore[method-assign]
    spark_sink.sinks.files.source.FileSinkSource = FaultySource  # type: ignore[misc]


if __name__ == "__main__":
    inject_batch_faults()
    sys.exit(main(sys.argv[1:]))
