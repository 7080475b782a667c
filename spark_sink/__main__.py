"""``python -m spark_sink CONFIG``: the Spark sink of a configuration, as ``spanner-cdc run`` starts it.

With ``--backfill N`` it reads and delivers a backfill of the spool. With ``--read`` it reads the change stream on
executors, as ``spanner-cdc read`` starts it with ``source.reader: executors``.
"""

import sys


def _main() -> int:
    try:
        from spark_sink.reading.backfill import process
        from spark_sink.reading.windows import process as windows
        from spark_sink.run import main
    except ImportError as error:
        if not (error.name or "").startswith("pyspark"):
            raise
        sys.stderr.write("spark_sink: PySpark 4.0 or newer is missing: pip install 'spanner-cdc-spark[spark]'\n")
        return 1
    if windows.OPTION in sys.argv:
        return windows.main(sys.argv[1:])
    return process.main(sys.argv[1:]) if process.OPTION in sys.argv else main(sys.argv[1:], windows.reading_beside)


if __name__ == "__main__":
    sys.exit(_main())
