"""A program: the file sink of a configuration, held after a micro-batch, before its commit, until a file is there.

Arguments: configuration, file.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from spark_sink.run import Sink, main


def hold(until: Path) -> None:
    write = Sink._write

    def held(self: Sink, reports: DataFrame, batch: int) -> None:
        write(self, reports, batch)
        while not until.exists():
            time.sleep(0.01)

    Sink._write = held  # type: ignore[method-assign]


if __name__ == "__main__":
    hold(Path(sys.argv[2]))
    sys.exit(main(sys.argv[1:2]))
