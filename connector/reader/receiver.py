"""Takes the records that queries return into the partition graph, the epoch buffer and the metrics."""

from connector.core.changes import Changes
from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from connector.reader.late_policy import LatePolicy
from connector.reader.read_state import ReadState
from connector.spanner.decoding.decoder import Item


class Receiver:
    """Receives records; late ones are handed to the late policy.

    Args:
        state: the reader's; every timestamp of a record advances its clock.
        late: decides about late records.
    """

    def __init__(self, state: ReadState, late: LatePolicy) -> None:
        self._graph = state.graph
        self._buffer = state.buffer
        self._clock = state.stream.clock
        self._metrics = state.metrics
        self._late = late

    def receive(self, token: str, items: list[Item]) -> bool:
        """Takes what a partition's query has returned; returns whether data change records were new."""
        known = self._metrics.records
        for item in self._late.without_late(token, items):
            self._receive(token, item)
        return self._metrics.records > known

    def _receive(self, token: str, item: Item) -> None:
        match item:
            case Changes():
                self._receive_columns(token, item)
            case DataChangeRecord():
                self._receive_record(token, item)
            case HeartbeatRecord():
                self._prove_before(token, item.timestamp)
                self._metrics.heartbeats += 1
            case ChildPartitionsRecord():
                self._graph.announced(token, item)
                self._metrics.child_partitions += len(item.children)
            case PartitionStartRecord():
                self._graph.started(token, item)
                self._metrics.child_partitions += len(item.tokens)
            case PartitionEndRecord():
                self._graph.terminated(token, item)
            case PartitionEventRecord():
                self._graph.moved(token, item)

    def _receive_columns(self, token: str, changes: Changes) -> None:
        held, passed = self._buffer.add_all(token, changes, progress=self._graph[token].progress)
        self._metrics.records += len(held)
        self._late.behind_watermark(token, passed.records() if len(passed) else ())
        self._prove_before(token, changes.last)

    def _receive_record(self, token: str, record: DataChangeRecord) -> None:
        timestamp, progress = record.commit_timestamp, self._graph[token].progress
        if self._buffer.add(token, record, progress=progress):
            self._metrics.records += 1
        elif timestamp > progress:
            self._late.behind_watermark(token, [record])
        self._prove_before(token, timestamp)

    def _prove_before(self, token: str, timestamp: int) -> None:
        """A data change record or a heartbeat proves everything before its timestamp."""
        self._graph.proved(token, timestamp - 1)
        self._clock.saw(timestamp)
