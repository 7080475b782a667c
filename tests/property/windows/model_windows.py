"""Reads the model of a change stream in windows, through the pure core: shares that know nothing of each other."""

from collections import Counter
from random import Random

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer
from connector.core.partitions import CutPartition, Follows, LeastParent, PartitionGraph
from connector.core.records import INITIAL_TOKEN, ChildPartition, ChildPartitionsRecord, DataChangeRecord
from connector.core.timestamps import MINUTE
from connector.core.windows import Closed, Share, ShareReport, Window, closed, deal
from tests.property.reading.change_stream import ChangeStream, HistoryOptions, Query, TruePartition
from tests.property.reading.checks import check
from tests.property.reading.held_records import HeldRecords
from tests.property.reading.model_reader import Sealed
from tests.property.reading.mutable_stream import MutableQuery, MutableStream
from tests.property.reading.reading import MutableReading, Reading, Roughness
from tests.property.windows.sharing import merged


class OrphanedStream(ChangeStream):
    """Some children name a parent that is never discovered, and that is less than all others."""

    def _announcements(self, at: int, children: list[TruePartition]) -> tuple[ChildPartitionsRecord, ...]:
        def named(child: ChildPartition) -> ChildPartition:
            # An empty parent may follow an orphan in the instant in which its own child starts.
            some = child.token[0] in "01" and not self._options.empty_partitions
            unknown = {"!unknown"} if some else frozenset[str]()
            return ChildPartition(child.token, child.parents | unknown)

        return tuple(
            ChildPartitionsRecord(record.start_timestamp, record.record_sequence, tuple(map(named, record.children)))
            for record in super()._announcements(at, children)
        )


class NoChecks:
    """A share knows nothing of the other shares' partitions, so that what it does alone proves nothing."""

    def check_scheduled(self, *_: object) -> None: ...

    def check_query_start(self, *_: object) -> None: ...


class ShareReading(Reading):
    """Reads a share of a window; a crash is the failure of its task, which is tried again from its beginning."""

    def __init__(
        self, rng: Random, stream: ChangeStream, window: Window, share: Share, roughness: Roughness, rule: type[Follows]
    ) -> None:
        self.rng, self.stream, self.roughness = rng, stream, roughness
        self.checks = NoChecks()  # type: ignore[assignment]
        self.end: int | None = window.high
        self.counts: Counter[str] = Counter()
        self.max_bytes = rng.choice((1, 60, 10**9))
        self.together = rng.choice((1, 1, 5))
        self.window, self.share, self._rule_type = window, share, rule
        self._omits, self._omitted, self._steps = roughness.omits, set[str](), roughness.steps

    def start_over(self) -> None:
        low = self.window.low
        self.now = self.window.high + self.rng.choice((1, 1, 2, MINUTE))
        self.rule = self._rule_type()
        self.graph = PartitionGraph(self.share.cut, watermark=low, end=self.window.high, follows=self.rule)
        self.buffer = EpochBuffer(low, max_bytes=self.max_bytes)
        self.queries: dict[str, Query] = {}
        self.speeds: dict[str, float] = {}
        self.waiting: list[str] = []
        self.finished: set[str] = set()
        self.held = HeldRecords(self.graph, self.buffer, self.counts, in_columns=self.together > 1)
        self.sealed = Sealed(low, self.share.cut)
        self.began_at = self.watermark = low
        self.delivered: list[DataChangeRecord] = []

    def advance(self) -> None:
        self.watermark = self.graph.advance()
        self.buffer.advance(self.watermark)

    def seal(self) -> None:
        epoch = self.buffer.take()
        if epoch is not None:
            self.sealed = Sealed(epoch.high, tuple(self.graph.cut(epoch.high)))
            self.delivered += epoch.records
            self.graph.sealed(epoch.high)

    def _tick(self) -> None:
        self.now += self.rng.choice((0, 1))

    def _smooth(self) -> None:
        now = self.now
        super()._smooth()
        self.now = now

    def run(self) -> None:
        self.start_over()
        self._rough()
        self._smooth()

    def report(self) -> ShareReport:
        rule = self.rule
        assert isinstance(rule, LeastParent)
        alive = {at.token for at in self.sealed.cut}
        report = ShareReport(
            self.share.number,
            self.sealed.cut,
            tuple(sorted(rule.followed)),
            tuple(at.token for at in self.share.cut if at.token not in alive),
            tuple(child for child, _ in rule.declined),
            tuple(least for _, least in rule.declined),
            {},
            len(self.delivered),
            len(self.delivered),
            0,
            0,
            0,
            0.0,
            mutable=isinstance(self.stream, MutableStream),
        )
        return ShareReport.from_json(report.to_json())


class MutableShareReading(ShareReading, MutableReading):
    """Reads a share of a window of the MUTABLE_KEY_RANGE mode."""


class Windows:
    """Reads a change stream from its start to its horizon in windows, each in shares that are dealt anew."""

    stream_type: type[ChangeStream] = OrphanedStream
    query_type: type[Query] = Query
    share_type: type[ShareReading] = ShareReading
    rule_type: type[Follows] = LeastParent

    def __init__(self, seed: int, options: HistoryOptions, roughness: Roughness, windows: int) -> None:
        self.rng = rng = Random(seed)
        self.stream = self.stream_type(rng, options)
        self.roughness = roughness
        start, horizon = self.stream.start, self.stream.horizon
        starts = [p.start for p in self.stream.partitions.values()]
        edges = {*self.stream.instants, *starts, *(at - 1 for at in starts), *(at + 1 for at in starts)}
        edges = {at for at in edges if start <= at < horizon}
        self._highs = [*sorted(rng.sample(sorted(edges), min(windows, len(edges)))), horizon]
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Reads all of it.

        Raises:
            AssertionError: an invariant does not hold.
        """
        low = self.stream.start - 1
        cut: tuple[CutPartition, ...] = (CutPartition(INITIAL_TOKEN, self.stream.start),)
        for number, high in enumerate(self._highs):
            result = self._window(Window(number + 1, low, high), cut)
            self._check_cut(result, high)
            low, cut = high, result.cut

    def _window(self, window: Window, cut: tuple[CutPartition, ...]) -> Closed:
        for _ in range(20):
            readings = [self._read(window, share) for share in self._dealt(cut)]
            result = closed(window, [reading.report() for reading in readings])
            if not result.orphans:
                break
            self.counts["orphans"] += len(result.orphans)
            cut = (*cut, *result.orphans)
        check(not result.orphans, "a partition is an orphan, however often the window is read")
        expected = [r for r in self.stream.expected if window.low < r.commit_timestamp <= window.high]
        parts = [Changes.of(reading.delivered) for reading in readings]
        shares = [reading.share.number for reading in readings]
        records = list(merged(parts, shares, mutable=isinstance(self.stream, MutableStream)).records())
        check(records == expected, "a window is not the history from its low to its high")
        self.counts["repeats"] += sum(len(part) for part in parts) - len(records)
        self.counts["shares"] += len(readings)
        self.counts["merges across shares"] += sum(len(reading.report().declined) for reading in readings)
        return result

    def _read(self, window: Window, share: Share) -> ShareReading:
        both = []
        for _ in range(1 if self.rng.random() < 0.8 else 2):
            reading = self.share_type(self.rng, self.stream, window, share, self.roughness, self.rule_type)
            if isinstance(self.stream, MutableStream):
                reading.query_type = MutableQuery
            reading.run()
            self.counts += reading.counts
            both.append(reading)
        check(both[0].delivered == both[-1].delivered, "a task that runs twice returns other records")
        check(both[0].report() == both[-1].report(), "a task that runs twice reports something else")
        return both[0]

    def _dealt(self, cut: tuple[CutPartition, ...]) -> list[Share]:
        weights = {at.token: self.rng.choice((0, 0, 1, 10, 1000)) * 1024 * 1024 for at in cut}
        if self.rng.random() < 0.3:
            return deal(cut, weights, most=self.rng.randint(1, 5))
        parts: list[list[CutPartition]] = [[] for _ in range(self.rng.randint(1, 5))]
        for at in cut:
            self.rng.choice(parts).append(at)
        return [Share(number, tuple(part)) for number, part in enumerate(part for part in parts if part)]

    def _check_cut(self, result: Closed, high: int) -> None:
        if high < self.stream.first:
            return  # the initial query, or what it returned
        wanted = {p.token for p in self.stream.partitions.values() if self._is_cut(p, high)}
        check({at.token for at in result.cut} == wanted, f"the cut at {high} is not what is alive there")

    def _is_cut(self, partition: TruePartition, high: int) -> bool:
        return partition.covers(high) and (partition.end is None or partition.end > self.stream.first)


class MutableWindows(Windows):
    """Reads a change stream of the MUTABLE_KEY_RANGE mode."""

    stream_type = MutableStream
    share_type = MutableShareReading

    def _is_cut(self, partition: TruePartition, high: int) -> bool:
        return partition.start <= high and (partition.end is None or partition.end > high + 1)
