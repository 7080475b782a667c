"""A program: the file sink of a configuration, which two errors of Spark's end before it works.

Arguments: configuration, and a file that counts the runs.
"""

import sys
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame

from spark_sink.run import Sink, main
from spark_sink.sinks.files import source as file_source
from tests.spark_sink.sinks.files.failing_source import FailingSource


def fail_after_the_batch() -> None:
    write = Sink._write

    def failing(self: Sink, reports: DataFrame, batch: int) -> None:
        write(self, reports, batch)
        raise PySparkRuntimeError("Python worker failed to connect back.")

    Sink._write = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    runs = Path(sys.argv[2])
    number = len(runs.read_text()) if runs.exists() else 0
    runs.open("a").write("x")
    if number == 0:
        fail_after_the_batch()
    elif number == 1:
        file_source.FileSinkSource = FailingSource  # type: ignore[misc]
    sys.exit(main(sys.argv[1:2]))
