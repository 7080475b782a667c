"""Classes that PySpark 4.2 added for streaming sources, and equal ones for PySpark 4.0 and 4.1.

There Spark calls ``latestOffset()`` without the start and without a limit of the trigger, and
``Trigger.AvailableNow`` takes what that call returns as all that there is.
"""

from dataclasses import dataclass

ADMISSION_CONTROL = True
"""True if Spark passes a limit, and ends a run with ``Trigger.AvailableNow`` after several micro-batches."""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """The amount that a micro-batch takes."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All that there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        max_rows: int

    @dataclass
    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """At most so many files."""

        max_files: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """At most so many bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing: Spark does not ask for it."""


__all__ = [
    "ADMISSION_CONTROL",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
