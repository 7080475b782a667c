"""The history of the status server: an hour of lag and throughput, and the newest partitions. Bounded."""

from collections import Counter, deque
from collections.abc import Iterable
from heapq import nlargest

from connector.core.partitions.partition import Partition, PartitionState
from connector.core.records import partition_name
from connector.core.timestamps import SECOND, format_rfc3339
from connector.telemetry.document import UNSET, GraphPartition, HistoryPoint, TableThroughput
from connector.telemetry.metrics import ReaderMetrics

INTERVAL = 10
"""Seconds between two points."""
_POINTS = 360
_PARTITIONS = 300


class RecentHistory:
    """The last hour, a point each ten seconds, and the newest 300 partitions.

    Attributes:
        points: the hour.
        states: how many partitions are waiting, reading or finished, of all that the reader keeps.
    """

    def __init__(self) -> None:
        self.points: deque[HistoryPoint] = deque(maxlen=_POINTS)
        self.states: Counter[str] = Counter()
        self._partitions: dict[str, GraphPartition] = {}
        self._before: tuple[int, int, int, dict[str, int]] | None = None
        self._rates: dict[str, float] = {}

    def sample(self, metrics: ReaderMetrics, now: int) -> None:
        """Adds a point of now, in nanoseconds since 1970, with the rates since the previous one."""
        tables = {name: count.mods for name, count in metrics.tables.copy().items()}
        current = (now, metrics.sealed_mods, sum(count.bytes for count in metrics.tables.copy().values()), tables)
        if self._before is not None and now > self._before[0]:
            then, mods, size, known = self._before
            seconds = (now - then) / SECOND
            self._rates = {name: round((count - known.get(name, 0)) / seconds, 3) for name, count in tables.items()}
            self.points.append(
                HistoryPoint(
                    time=format_rfc3339(now),
                    lag_seconds=max(now - metrics.spooled, 0) / SECOND if metrics.spooled else UNSET,
                    mods_per_second=round((current[1] - mods) / seconds, 3),
                    bytes_per_second=round((current[2] - size) / seconds, 3),
                )
            )
        self._before = current

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Takes the partitions as they are now; one that is gone has finished."""
        alive = {partition.token: partition for partition in partitions}
        self.states = Counter(_STATES[partition.state] for partition in alive.values())
        for token, known in self._partitions.items():
            if token not in alive:
                known.state = "finished"
        newest = nlargest(_PARTITIONS, alive.values(), key=lambda partition: partition.start)  # of perhaps thousands
        self._partitions.update((partition.token, _described(partition)) for partition in newest)
        kept = sorted(self._partitions, key=lambda token: self._partitions[token].start)[-_PARTITIONS:]
        self._partitions = {token: self._partitions[token] for token in kept}

    def graph(self) -> list[GraphPartition]:
        """The newest partitions, by their start."""
        return list(self._partitions.values())

    def tables(self, metrics: ReaderMetrics) -> list[TableThroughput]:
        """Each table, with its rate between the newest two points."""
        return [
            TableThroughput(name, count.records, count.mods, count.bytes, self._rates.get(name, UNSET))
            for name, count in sorted(metrics.tables.copy().items())
        ]


def _described(partition: Partition) -> GraphPartition:
    end = partition.end
    return GraphPartition(
        id=_id(partition.token),
        start=format_rfc3339(partition.start),
        end=UNSET if end is None else format_rfc3339(end),
        parents=sorted(_id(parent) for parent in partition.parents),
        state=_STATES[partition.state],
        watermark=format_rfc3339(partition.progress),
    )


_STATES = {
    PartitionState.CREATED: "waiting",
    PartitionState.SCHEDULED: "reading",
    PartitionState.RUNNING: "reading",
    PartitionState.FINISHED: "finished",
}


def _id(token: str) -> str:
    """As the log names it, so that both can be compared."""
    return partition_name(token).removeprefix("partition ")
