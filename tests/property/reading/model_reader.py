"""Reads the model of a change stream through the pure core alone, in the scheduler's role, and checks each step."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from connector.core.epoch import EpochBuffer, SealedEpoch, incomplete_transactions, minute_end
from connector.core.late_records import passed_before
from connector.core.partitions import CutPartition, PartitionGraph, PartitionState
from connector.core.records import (
    INITIAL_TOKEN,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tests.property.reading.change_stream import ChangeStream, End, HistoryOptions, Query, identity
from tests.property.reading.checks import HistoryChecks, check
from tests.property.reading.held_records import HeldRecords

GraphType = Callable[..., PartitionGraph]
BufferType = Callable[..., EpochBuffer]


@dataclass(frozen=True, slots=True)
class Sealed:
    """The state that outlives a crash."""

    watermark: int
    cut: tuple[CutPartition, ...]


class ModelReader:
    """A process that reads a change stream and may be started over; everything random is drawn from ``rng``.

    Args:
        rng: the source of randomness.
        options: of the change stream's history.
        omits: how often, from 0 to 1, a partition's query over the past omits the record that ends it, once.
        together: how many data change records may be received at once; several are columns.
    """

    graph_type: GraphType = PartitionGraph
    buffer_type: BufferType = EpochBuffer
    stream_type: type[ChangeStream] = ChangeStream
    query_type: type[Query] = Query
    checks_type: type[HistoryChecks] = HistoryChecks

    def __init__(self, rng: Random, options: HistoryOptions, *, omits: float, together: int) -> None:
        self.rng = rng
        self.stream = self.stream_type(rng, options)
        self.checks = self.checks_type(self.stream)
        self.now = self.stream.start
        self.end: int | None = None
        self.delivered: list[DataChangeRecord] = []
        self.counts: Counter[str] = Counter()
        """The events that happened, so that a test can check that they did."""
        self.max_bytes = rng.choice((1, 60, 200, 10**9))
        self.together = together
        self.sealed = Sealed(self.stream.start - 1, (CutPartition(INITIAL_TOKEN, self.stream.start),))
        self._omits = omits
        self._omitted: set[str] = set()

    # Rules that a mutant breaks.

    def data_proves(self, record: DataChangeRecord) -> int:
        return record.commit_timestamp - 1

    def forgets_at(self, epoch: SealedEpoch) -> int:
        return epoch.high

    def proves_end(self, query: Query) -> bool:
        return query.end is not None and query.sent_at >= query.end

    def bound(self, start: int) -> int | None:
        """The end of a query that begins at ``start``; None for no end."""
        return self.end

    def start_over(self) -> None:
        """Starts a process from what is sealed."""
        self.graph = type(self).graph_type(self.sealed.cut, watermark=self.sealed.watermark, end=self.end)
        self.buffer = type(self).buffer_type(self.sealed.watermark, max_bytes=self.max_bytes)
        self.queries: dict[str, Query] = {}
        self.speeds: dict[str, float] = {}
        self.waiting: list[str] = []
        self.finished: set[str] = set()
        self.held = HeldRecords(self.graph, self.buffer, self.counts, in_columns=self.together > 1)
        self.began_at = self.sealed.watermark
        self.watermark = self.sealed.watermark
        self._passed = sum(1 for r in self.stream.expected if r.commit_timestamp <= self.watermark)
        check(self.graph.watermark == self.watermark, "the watermark differs after a restart")

    def schedule(self, *, everything: bool = False) -> None:
        self.advance()
        for token in self.graph.ready():
            check(token not in self.queries, "a partition is scheduled twice")
            self.checks.check_scheduled(token, self.finished, self.began_at)
            self.speeds[token] = self.rng.choice((0.01, 0.1, 1.0, 1.0))
            self.waiting.append(token)
        some = [token for token in self.waiting if everything or self.rng.random() < 0.6]
        for token in some:
            self.waiting.remove(token)
            if self.graph.nothing_left(token):
                self.finished.add(token)
                continue
            start = self.graph.query_start(token)
            self.checks.check_query_start(token, start, self.held.of(token), self.sealed.watermark)
            bound = self.bound(start)
            query = self.query_type(self.stream, self.rng, token, start=start, end=bound, now=self.now)
            self.queries[token] = query
            self.graph.sent(token)
            self._omit(query)

    def _omit(self, query: Query) -> None:
        over = query.end is not None and query.sent_at >= query.end and query.token != INITIAL_TOKEN
        if over and query.token not in self._omitted and self.rng.random() < self._omits:
            self.counts["omissions"] += 1
            self._omitted.add(query.token)
            query.omit()

    def receive(self, query: Query) -> None:
        token, item = query.token, query.next(self.now)
        block: list[DataChangeRecord] = []
        while isinstance(item, DataChangeRecord):
            block.append(item)
            item = query.next(self.now) if len(block) < self.together else None
        if block:
            self.held.add(token, block, self.sealed.watermark)
            self.graph.proved(token, self.data_proves(block[-1]))
        if item is not None and not isinstance(item, End):
            check(passed_before(self.graph, token, item) is None, "an announcement in time is treated as late")
        match item:
            case HeartbeatRecord() as record:
                self.graph.proved(token, record.timestamp)
            case ChildPartitionsRecord() as record:
                self.graph.announced(token, record)
            case PartitionStartRecord() as record:
                self.graph.started(token, record)
            case PartitionEventRecord() as record:
                self.graph.moved(token, record)
            case PartitionEndRecord() as record:
                self.graph.terminated(token, record)
            case End():
                self.ended(query)
            case None:
                pass

    def ended(self, query: Query) -> None:
        token = query.token
        if self.graph.ended(token, proven=query.end if self.proves_end(query) else None):
            del self.queries[token]
            self.finished.add(token)
        else:
            self.broke(token)

    def broke(self, token: str) -> None:
        del self.queries[token]
        progress = self.graph.broke(token)
        check(progress >= self.watermark or self.graph[token].complete, "a partition falls back behind the watermark")
        self.held.discard(token, progress)
        self.waiting.append(token)

    def advance(self) -> None:
        watermark = self.graph.advance()
        check(watermark >= self.watermark, "the watermark goes back")
        check(self.end is None or watermark <= max(self.end, self.began_at), "the watermark passes the user's end")
        expected = self.stream.expected
        while self._passed < len(expected) and expected[self._passed].commit_timestamp <= watermark:
            record = expected[self._passed]
            owner = self.stream.owner[identity(record)]
            check(
                record in self.held.of(owner),
                f"the watermark {watermark} passes {record.commit_timestamp} of {owner}, which was not received",
            )
            self._passed += 1
        self.watermark = watermark
        self.buffer.advance(watermark)
        check(self.graph.watermark == watermark, "the watermark differs when it is read again")

    def seal(self) -> None:
        epoch = self.buffer.take()
        if epoch is None:
            return
        check(epoch.low == self.sealed.watermark < epoch.high <= self.watermark, "epochs leave a gap, or overlap")
        check(minute_end(epoch.low + 1) >= epoch.high, "an epoch spans two minutes")
        instants = {record.commit_timestamp for record in epoch.records}
        check(epoch.bytes == sum(record.size for record in epoch.records), "an epoch has another size than its records")
        check(epoch.bytes <= self.max_bytes or len(instants) == 1, "an epoch is too large")
        first = len(self.delivered)
        due = [r for r in self.stream.expected[first:] if r.commit_timestamp <= epoch.high]
        check(list(epoch.records) == due, "an epoch is not the history from its low to its high")
        check(not incomplete_transactions(epoch.changes), "an epoch splits a transaction")
        cut = self.graph.cut(epoch.high)
        self.checks.check_cut(cut, epoch.high)
        self.delivered += epoch.records
        self.sealed = Sealed(epoch.high, tuple(cut))
        self.counts["epochs"] += 1
        self.graph.sealed(self.forgets_at(epoch))
        check(self.buffer.bytes >= self.buffer.ready_bytes >= 0, "bytes are counted wrongly")

    def check_forgotten(self) -> None:
        """Checks that a partition that no later cut can hold is forgotten by the next seal."""
        self.graph.sealed(self.sealed.watermark)
        for partition in self.graph:
            over = partition.end is not None and partition.end <= self.sealed.watermark + 1
            if over and partition.state is PartitionState.FINISHED:
                heirs = [self.graph[child] for child in partition.children if child in self.graph]
                check(
                    any(heir.state is PartitionState.CREATED for heir in heirs), f"{partition.token} is never forgotten"
                )
