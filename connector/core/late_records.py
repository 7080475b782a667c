"""Finds late records: behind what their own query has proved, or behind the watermark. Pure: no clock, no I/O.

What a query has proved binds the server. A data change record at t proves that everything before t was returned. So do
a heartbeat at t and an announcement that starts at t. A partition end record proves its own timestamp too. Whatever the
same query returns at or before what it has proved breaks that promise, and may be missing from a sealed epoch. What an
earlier query has proved does not count: a query starts where the last one ended, inclusive, and repeats that.

The initial query proves nothing before it has finished, so nothing that it returns is late.
"""

from dataclasses import dataclass

import numpy as np

from connector.core.changes import Changes, Int64s
from connector.core.partitions import PartitionGraph
from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
    beside,
    is_initial,
    timestamp_of,
)


@dataclass(frozen=True, slots=True)
class LateReport:
    """The number of late records and incomplete transactions of a spool; their commit timestamps, both inclusive."""

    count: int = 0
    first: int = 0
    last: int = 0


_KINDS = {
    DataChangeRecord: "data change record",
    ChildPartitionsRecord: "child partitions record",
    PartitionStartRecord: "partition start record",
    PartitionEndRecord: "partition end record",
    PartitionEventRecord: "partition event record",
}


@dataclass(frozen=True, slots=True)
class LateRecord:
    """A record that was returned after everything at or before ``passed`` had been proved complete.

    ``partition`` is the id of the partition whose query returned it. Timestamps are Unix nanoseconds;
    ``watermark`` is the reader's when it was returned, and epochs up to ``delivered`` had been delivered then.
    """

    partition: str
    record: Record
    passed: int
    watermark: int
    delivered: int

    @property
    def kind(self) -> str:
        """The name of its kind, for messages."""
        return _KINDS[type(self.record)]

    @property
    def at(self) -> int:
        """Its commit timestamp, or the timestamp of what it announces."""
        return timestamp_of(self.record)

    @property
    def transaction(self) -> str:
        """The server transaction id; empty where it is not a data change record."""
        return self.record.server_transaction_id if isinstance(self.record, DataChangeRecord) else ""

    @property
    def missed(self) -> bool:
        """True if the epochs it belongs to, or what it announces, were delivered without it: it is not read again."""
        return self.at <= self.delivered

    @property
    def incomplete(self) -> tuple[int, int] | None:
        """The range that may be incomplete, both ends inclusive; None where nothing is missing.

        Partitions that are announced late may miss records up to the watermark. If they start after it, they are read
        from their start and miss nothing.
        """
        if isinstance(self.record, DataChangeRecord):
            return self.at, self.at
        return (self.at, self.watermark) if self.at <= self.watermark else None


def in_time(changes: Changes, proved: int) -> tuple[Changes, Changes, Int64s]:
    """Rows of a query that has proved everything up to ``proved``: those in time, and those that are late.

    Rows in time are in the order of their commit timestamps; each row proves everything before it. The third value is
    what had been proved when each late row was returned.
    """
    at = changes.commit_timestamps
    if int(at[0]) > proved and not bool((at[1:] < at[:-1]).any()):
        return changes, changes.part(0, 0), at[:0]
    passed = np.maximum(np.maximum.accumulate(at) - 1, proved)
    late = at <= passed
    return changes.kept(~late), changes.kept(late), passed[late]


def passed_before(graph: PartitionGraph, token: str, record: Record) -> int | None:
    """The timestamp that was proved before a late record came; None if it is not late. Call it before the graph.

    Undiscovered children that start behind the watermark are late too: no earlier query, of this run or of the one
    before, can have returned them, because their parent holds the watermark below them until then.
    """
    if isinstance(record, HeartbeatRecord):
        return None
    proved, at = graph[token].proved, timestamp_of(record)
    if at < proved or (at == proved and not isinstance(record, PartitionEndRecord)):
        return proved
    if (
        isinstance(record, ChildPartitionsRecord)
        and not is_initial(token)
        and at <= graph.watermark
        and any(beside(token, child.token) not in graph for child in record.children)
    ):
        return graph.watermark
    return None
