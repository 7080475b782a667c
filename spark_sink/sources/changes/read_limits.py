"""Classes that PySpark 4.2 added for streaming sources, and equal ones for PySpark 4.0 and 4.1.

There Spark calls ``latestOffset()`` without the start and without a limit of the trigger, and
``Trigger.AvailableNow`` takes what that call returns as all that there is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

ADMISSION_CONTROL = True
"""True if Spark passes a limit, and ends a run with ``Trigger.AvailableNow`` after several micro-batches."""

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
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

        class ReadLimit:
            """The amount that a micro-batch takes."""

        class ReadAllAvailable(ReadLimit):
            """All that there is."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """At most so many rows."""

            max_rows: int

        @dataclass
        class ReadMaxFiles(ReadLimit):
            """At most so many files."""

            max_files: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            """At most so many bytes."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
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
