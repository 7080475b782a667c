"""The counters and gauges of a reader, as plain numbers; the status server exports them as metrics."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from connector.core.changes import Changes, integers
from connector.core.epoch import SealedEpoch
from connector.core.health.alarms import AlarmLog, FailedSink, KeptLess, Mended
from connector.core.health.retries import RetryLog
from connector.core.health.states import StateRecord, StreamState
from connector.core.partitions.partition import Partition
from connector.core.timestamps import SECOND
from connector.spool.lifecycle import ErrorEvent
from connector.spool.manifest import SegmentFile
from connector.spool.sink_report import CutReport, SinkReport, failed_sinks, restarts, stopped_by
from connector.telemetry.deliveries import Deliveries, Integers
from connector.telemetry.latency import LatencyHistogram


@dataclass(slots=True)
class TableCount:
    """Counts of a table's sealed data: data change records, mods, and the bytes they held in memory."""

    records: int = 0
    mods: int = 0
    bytes: int = 0


@dataclass(slots=True)
class ReaderMetrics:
    """Counters and gauges of one reader. Timestamps are Unix nanoseconds, sizes bytes.

    ``dead_letters``, ``replayed``, those of them that are none any more, ``stopped_tables``, the reasons by table,
    ``failed_sinks``, and ``cuts``, the newest published cut of each sink, come from the sinks' reports in the spool,
    and ``backfills``, the state of each, from theirs.
    ``shares`` to ``slowest_share_seconds`` are of the last window that Spark's executors have read; ``window``
    describes it and ``window_in_progress`` the one that they are reading, both as JSON, empty where there is none.
    ``watermark`` and ``sealed_watermark`` are 0 until they are known, and ``retention`` is. ``complete`` is the
    timestamp up to which all that was committed is sealed, also where nothing was committed and no epoch has it;
    ``first_own_epoch`` the first one that this process may seal. ``graph`` returns the partitions as they are now,
    ``state`` the state that the daemon has recorded, and ``errors`` the errors to show to users. All three may be
    called from any thread. ``earlier_restarts`` are those of sinks in their reports before this process started, less
    those of sinks that were forgotten since; None until they are read. ``reported_restarts`` are those in the newest
    reports. ``failing`` knows what is being retried, ``endpoint`` is Spanner's, and ``proxy`` the environment variable
    with the proxy before it. ``spool_bytes`` is None until a reader has opened the spool. ``max_bytes`` is the spool's
    limit, and ``start`` the timestamp after which reading began; 0 until they are known. ``kept_less`` is how much less
    the spool keeps than is to be kept. ``watched`` are the watched tables that are kept, and ``keeps`` is
    whether ``source.tables`` keeps a table: ``tables`` counts others, too.
    """

    watermark: int = 0
    sealed_watermark: int = 0
    complete: int = 0
    first_own_epoch: int = 0
    partitions: int = 0
    waiting_partitions: int = 0
    churn: dict[str, int] = field(default_factory=dict)
    held_bytes: int = 0
    spool_bytes: int | None = None
    queries: int = 0
    retries: int = 0
    heartbeats: int = 0
    child_partitions: int = 0
    records: int = 0
    epochs: int = 0
    sealed_mods: int = 0
    incomplete_transactions: int = 0
    late_records: int = 0
    standstills: int = 0
    standstill_at: int = 0
    shares: int = 0
    window_span: int = 0
    window_seconds: float = 0.0
    slowest_share_seconds: float = 0.0
    window: Mapping[str, object] = field(default_factory=dict)
    window_in_progress: Mapping[str, object] = field(default_factory=dict)
    workers: int = 0
    worker_restarts: int = 0
    sink_restarts: int = 0
    sink_restart_at: int = 0
    sink_restart_why: str = ""
    earlier_restarts: int | None = None
    reported_restarts: int = 0
    dead_letters: int = 0
    replayed: int = 0
    incomplete_rows: int = 0
    stopped_tables: dict[str, str] = field(default_factory=dict)
    failed_sinks: list[FailedSink] = field(default_factory=list)
    cuts: dict[str, CutReport] = field(default_factory=dict)
    maintenance: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    backfills: list[dict[str, Any]] = field(default_factory=list)
    watched: tuple[str, ...] = ()
    keeps: Callable[[str], bool] = bool
    mods_by_type: Counter[str] = field(default_factory=Counter)
    newest_epoch: int = 0
    retention: int = 0
    retries_by_code: Counter[str] = field(default_factory=Counter)
    tables: dict[str, TableCount] = field(default_factory=dict)
    seal_latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    deliveries: Deliveries = field(default_factory=Deliveries)
    graph: Callable[[], Iterable[Partition]] = tuple
    state: Callable[[], StateRecord] = lambda: StateRecord(StreamState.STARTING, time.time_ns())
    errors: Callable[[], Iterable[ErrorEvent]] = tuple
    alarms: AlarmLog = field(default_factory=AlarmLog)
    failing: RetryLog = field(default_factory=RetryLog)
    endpoint: str = ""
    proxy: str = ""
    max_bytes: int = 0
    kept_less: KeptLess | None = None
    start: int = 0

    @property
    def spooled(self) -> int:
        """The timestamp up to which all that was committed is in the spool; 0 while unknown. Lag is the time since."""
        return max(self.complete, self.sealed_watermark)

    def of_reports(self, number: int) -> int | None:
        """A number that the sinks' reports have; None until they are read."""
        return None if self.earlier_restarts is None and not number else number

    @property
    def dead_letters_left(self) -> int:
        """Rows that are dead letters, as far as is known."""
        return max(self.dead_letters - self.replayed, 0)

    def stalled(self) -> None:
        """The watermark was stalled while Spanner's clock advanced, and queries were restarted."""
        self.standstills, self.standstill_at = self.standstills + 1, time.time_ns()

    def sink_restarted(self, why: str) -> None:
        """The sink's process has ended with a transient error, ``why`` in one line, and is restarted."""
        self.sink_restarts, self.sink_restart_at = self.sink_restarts + 1, time.time_ns()
        self.sink_restart_why = why

    def reported(self, reports: Mapping[str, SinkReport], *, of_backfills: int = 0) -> None:
        """Takes the newest reports of the sinks, by their names, and how many rows of backfills became dead letters."""
        self.deliveries.reported(reports)
        self.dead_letters = sum(report.refused for report in reports.values()) + of_backfills
        self.replayed = sum(report.replayed for report in reports.values())
        self.failed_sinks = failed_sinks(reports)
        self._count_restarts(restarts(reports))
        self.incomplete_rows = sum(report.incomplete for report in reports.values())
        self.cuts = {name: report.cut for name, report in reports.items() if report.cut is not None}
        self.maintenance = {name: (report.maintained_at, report.unmaintained) for name, report in reports.items()}
        self.stopped_tables = stopped_by(reports.values())

    def _count_restarts(self, found: Mended) -> None:
        """Counts restarts of sinks that others supervise, since the first report; of its own sink it knows them."""
        if self.earlier_restarts is None:
            self.earlier_restarts = found.times
        elif found.times < self.reported_restarts:  # a sink was forgotten, with its report
            self.earlier_restarts -= self.reported_restarts - found.times
        self.reported_restarts = found.times
        since = found.times - self.earlier_restarts
        if since > self.sink_restarts:
            self.sink_restarts, self.sink_restart_at, self.sink_restart_why = since, found.at, found.why

    def retried(self, code: str) -> None:
        """A query broke and is sent again: the gRPC code of the error, or another name of it."""
        self.retries += 1
        self.retries_by_code[code] += 1

    def sealed(self, epoch: SealedEpoch) -> None:
        """Counts an epoch that was delivered."""
        self.epochs += 1
        self.sealed_watermark = epoch.high
        changes = epoch.changes
        mods, types = changes.mod_counts, changes.column("mod_type").dictionary_encode()
        of_type = integers(types.indices)
        for code, mod_type in enumerate(types.dictionary.to_pylist()):
            self.mods_by_type[mod_type] += int(mods[of_type == code].sum())
        self.sealed_mods += int(mods.sum())
        if len(changes):
            self._count_commits(changes.commit_timestamps, mods, int(changes.sizes.sum()))
            self._count_tables(changes)

    def sealed_files(self, files: Iterable[SegmentFile]) -> None:
        """Counts when the mods of segments were committed that were sealed as an epoch, as nearly as is known."""
        known = [file for file in files if file.rows]
        if known:
            bounds = [(file.first_commit_timestamp, file.last_commit_timestamp) for file in known]
            halves = [(file.rows // 2, file.rows - file.rows // 2) for file in known]
            timestamps, mods = np.array(bounds, np.int64).ravel(), np.array(halves, np.int64).ravel()
            self._count_commits(timestamps, mods, sum(file.bytes for file in known))

    def _count_commits(self, timestamps: Integers, mods: Integers, size: int) -> None:
        self.seal_latency.observe((time.time_ns() - timestamps) / SECOND, mods)
        self.deliveries.sealed(self.newest_epoch, timestamps, mods, size)

    def _count_tables(self, changes: Changes) -> None:
        schemas = integers(changes.column("record_schema"))
        number = len(changes.record_schemas)
        records = np.bincount(schemas, minlength=number)
        mods = np.bincount(schemas, weights=changes.mod_counts, minlength=number)
        sizes = np.bincount(schemas, weights=changes.sizes, minlength=number)
        for at in np.flatnonzero(records):
            count = self.tables.setdefault(changes.record_schemas[at].table_name, TableCount())
            count.records += int(records[at])
            count.mods += int(mods[at])
            count.bytes += int(sizes[at])
