"""The records of a process that are received and not sealed yet, as a test expects the buffer to hold them."""

from collections import Counter

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer
from connector.core.late_records import in_time, passed_before
from connector.core.partitions import PartitionGraph
from connector.core.records import DataChangeRecord
from tests.property.reading.checks import check


class HeldRecords:
    """Adds records to the buffer and checks which of them it holds.

    Args:
        graph: the process's partitions.
        buffer: the process's buffer.
        in_columns: whether records are added as columns.
        counts: counts the records that are added as columns.
    """

    def __init__(self, graph: PartitionGraph, buffer: EpochBuffer, counts: Counter[str], *, in_columns: bool) -> None:
        self._graph = graph
        self._buffer = buffer
        self._counts = counts
        self._in_columns = in_columns
        self._held: dict[str, list[DataChangeRecord]] = {}

    def of(self, token: str) -> list[DataChangeRecord]:
        """The records of a partition that are held."""
        return self._held.get(token, [])

    def add(self, token: str, block: list[DataChangeRecord], sealed: int) -> None:
        """Adds records of a partition; those up to ``sealed`` are known."""
        self._check_in_time(token, block)
        held = self._held.setdefault(token, [])
        known = [one for one in block if one.commit_timestamp <= sealed or one in held]
        added = self._added(token, block)
        for one in block:
            record = f"{one.server_transaction_id} at {one.commit_timestamp}"
            check(one in added or one in known, f"{record} is dropped silently")
            check(not (one in added and one in known), f"{record} is held twice")
        held += added

    def discard(self, token: str, beyond: int) -> None:
        """Discards the records of a partition that are later."""
        self._buffer.discard(token, beyond=beyond)
        self._held[token] = [one for one in self.of(token) if one.commit_timestamp <= beyond]

    def _check_in_time(self, token: str, block: list[DataChangeRecord]) -> None:
        if self._in_columns:
            late = len(in_time(Changes.of(block), self._graph[token].proved)[1]) > 0
        else:
            late = any(passed_before(self._graph, token, one) is not None for one in block)
        check(not late, "a data change record in time is treated as late")

    def _added(self, token: str, block: list[DataChangeRecord]) -> list[DataChangeRecord]:
        """Adds records to the buffer, and returns those that it holds."""
        progress = self._graph[token].progress
        if not self._in_columns:
            return [one for one in block if self._buffer.add(token, one, progress=progress)]
        added, late = self._buffer.add_all(token, Changes.of(block), progress=progress)
        check(not len(late), "an unknown record is treated as late")
        self._counts["columns"] += len(added)
        return [*added.records()]
