"""Reports of a sink's tasks to its driver: the same rows whatever the destination is."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
from pyspark.sql import Row


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task about some events of a table.

    Attributes:
        first: the first epoch of the micro-batch, or of the events.
        table: the table's name in the source; empty where nothing is said of a table.
        events: how many were delivered.
        rejected: how many became dead letters.
        why: the reason of one of them, without a row's values; or why the table is stopped.
        stopped: whether no event of the table can be delivered.
        incomplete: how many were delivered without columns that could not be read.
        own: what else the driver of this sink must know, as text.
    """

    first: int
    table: str = ""
    events: int = 0
    rejected: int = 0
    why: str = ""
    stopped: bool = False
    incomplete: int = 0
    own: str = ""

    @classmethod
    def of(cls, row: Row) -> "TaskReport":
        """The report of a row of :data:`REPORT`."""
        return cls(*(getattr(row, name) for name in REPORT.names))


_TYPES = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}

REPORT = pa.schema([pa.field(one.name, _TYPES[one.type]) for one in fields(TaskReport)])  # type: ignore[index]
"""The columns of a micro-batch: a row for each report."""


def as_rows(reports: Iterable[TaskReport]) -> pa.RecordBatch:
    """Reports as rows of a micro-batch."""
    return pa.RecordBatch.from_pylist([asdict(one) for one in reports], schema=REPORT)
