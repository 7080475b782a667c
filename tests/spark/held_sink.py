"""A program: the file sink of a configuration, held after a micro-batch, before its commit, until a file is there.

Arguments: configuration, file.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from spark_sink.run import FileSink, main


def hold(until: Path) -> None:
    write = FileSink._write

    def held(self: FileSink, files: DataFrame, batch: int) -> None:
        write(self, files, batch)
        while not until.exists():
            time.sleep(0.01)

    FileSink._write = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold(Path(sys.argv[2]))
    sys.exit(main(sys.argv[1:2]))
