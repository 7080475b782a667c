"""``python -m spark_sink CONFIG``: the Spark sink of a configuration, as ``spanner-cdc run`` starts it.

With ``--backfill N`` it reads and delivers a backfill of the spool. With ``--read`` it reads the change stream on
executors, as ``spanner-cdc read`` starts it with ``source.reader: executors``. Only what reads Spanner imports its
libraries.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.extras import extra_of, lacks

if TYPE_CHECKING:
    from spark_sink.run import Beside


def _main(arguments: Sequence[str]) -> int:
    try:
        return _run(arguments)
    except ImportError as error:
        if (extra := extra_of(error)) is None:
            raise
        sys.stderr.write(f"spark_sink: {lacks(extra, 'this process')}\n")
        return ConfigurationError.exit_code


def _run(arguments: Sequence[str]) -> int:
    if "--read" in arguments:
        from spark_sink.reading.windows import process as windows

        return windows.main(arguments)
    if "--backfill" in arguments:
        from spark_sink.reading.backfill import process as backfill

        return backfill.main(arguments)
    from spark_sink.run import main

    return main(arguments, _reading_beside)


def _reading_beside(path: Path) -> "Beside":
    from spark_sink.reading.windows.process import reading_beside

    return reading_beside(path)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
