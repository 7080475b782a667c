"""``python -m tests.soak.faults.sink CONFIG``: the sink's process, with what the environment says befalling it."""

import sys

from pyspark.sql import DataFrame

from spark_sink.files import source as file_source
from spark_sink.run import Sink, main
from tests.soak.faults.source import TroubledSource, points


def trouble_batches() -> None:
    write = Sink._write

    def troubled_write(self: Sink, reports: DataFrame, batch: int) -> None:
        points.reached("before a micro-batch")
        write(self, reports, batch)
        points.reached("after a micro-batch, before its commit")

    Sink._write = troubled_write  # type: ignore[method-assign]
    file_source.FileSinkSource = TroubledSource  # type: ignore[misc]


if __name__ == "__main__":
    trouble_batches()
    sys.exit(main(sys.argv[1:]))
