"""The BigQuery sink's stream: its tasks write rows and report what they wrote.

A micro-batch is split into parts, runs of whole segments of some size, whatever Spark's cores. The sink's own process
prepares the tables when it plans a micro-batch; a task writes the rows of its parts, table by table:

- ``merge``: into the table's default stream, as changes with their sequence numbers (BigQuery CDC);
- ``append-only`` and ``changelog``: into pending streams, which the driver commits
  (:mod:`spark_sink.sinks.bigquery.commit_log`);
- ``merge-load``: merged in memory (:mod:`spark_sink.sinks.bigquery.merging.row_merger`), then by a load job into a
  staging table, which the driver merges. One task has all rows of a table, so that there is one staging table.

Rejected rows, and those of a stopped table, are in the dead-letter store before a task reports its part.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.backfill.records import mark_lost
from connector.spool.consumers import find
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from connector.spool.summaries import EpochSummary
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.pacing.pace import Pace
from spark_sink.sinks.bigquery.pacing.quotas import Pacing
from spark_sink.sinks.bigquery.tables.preparing import BigQueryTables
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, SCHEMA_IN_DATASET, BigQueryTarget
from spark_sink.sinks.bigquery.writing.parts import Part, PartWriter, PinnedOptions, TablePlan, parts_of
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.reports import as_rows
from spark_sink.sinks.shared.row_slices import by_table
from spark_sink.sinks.shared.sink_stream import SinkSource, SinkStreamReader
from spark_sink.sources.changes.admission import EpochWeight, Group, by_epoch, runs, tasks_of

_BATCH_BYTES = 256 * 1024**2
"""Bytes of segments in a micro-batch."""

_DELETES_KEPT = 47 * 3600 * SECOND
"""Nanoseconds for which rows of a backfill may be sent: BigQuery remembers a deleted row for two days."""


@dataclass(frozen=True)
class BigQueryPartition(InputPartition):
    """The parts that a task writes, each as a whole."""

    writer: PartWriter
    parts: tuple[Part, ...]


class BigQuerySinkSource(SinkSource):
    """Writes a spool's events into BigQuery; internal to the sink.

    Options: ``pinned``, :class:`PinnedOptions` as text; ``target``, :class:`BigQueryTarget` as text, of which the
    pinned project counts; ``location``, of datasets, or empty; ``max_staleness`` in nanoseconds; ``max_bytes``, what
    the spool may hold.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "spanner-change-stream-bigquery"

    def streamReader(self, schema: object) -> "BigQuerySinkReader":  # noqa: N802
        """Writes every epoch, each once."""
        return BigQuerySinkReader(dict(self.options), self.most_tasks)


class BigQuerySinkReader(SinkStreamReader):
    """Hands a spool's epochs to tasks that write them into BigQuery."""

    def __init__(self, options: Mapping[str, str], cores: int, clock: Callable[[], int] = time.time_ns) -> None:
        feed = Feed.of_options(options)
        super().__init__(feed, options["consumer"], options["pinned"], batch_bytes=_BATCH_BYTES, clock=clock)
        self._options = options
        self._cores = cores
        self._now = clock
        pinned = PinnedOptions.from_text(options["pinned"])
        most = int(options["max_bytes"])
        self._pace = Pace(
            self._spool,
            Pacing.of(pinned.table_options.mode, 0 if feed.is_backfill else int(options["max_staleness"])),
            batch_bytes=min(_BATCH_BYTES, most // 2),
            most_held=most // 2,
            part_bytes=pinned.part_bytes,
            clock=clock,
            name=self._consumer,
        )
        self._fresh = range(0)  # the epochs of the micro-batch that this process has started
        self._tables: BigQueryTables | None = None
        self._schemas: dict[str, TableSchema] = {}
        self._default_schema = ""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """The position of a new query; of a sink that was forgotten no stream counts as committed."""
        if self.has_nothing(find(self._spool, self._consumer)):
            CommitLog(self._spool, self._consumer).clear()
        return super().initialOffset()

    def ready(self, epochs: Iterable[EpochWeight], *, ended: bool = False) -> Iterable[Group]:
        """Each epoch up to a schema change, because rows are written by the newest schema of their micro-batch.

        Nothing as long as the quotas require more epochs to gather, unless the query ends with what is sealed, or no
        epoch can follow these (``ended``).
        """
        gathered = self._pace.gathered(epochs, ended=ended)
        return [] if self._target is None and self._pace.holds(gathered) else by_epoch(gathered.epochs)

    def begin(self, first: int, last: int) -> str:
        """Remembers the epochs, and starts the micro-batch as any sink does."""
        self._fresh = range(first, last + 1)
        return super().begin(first, last)

    def groups(self, first: int, last: int) -> Iterable[Group]:
        """Gathers epochs before a started batch likewise: a micro-batch ends there at the latest."""
        started = self._started.at(first)
        if started is not None and not started.pinned:
            return self.ready(self.weights(first, min(last, started.last)), ended=started.last < last)
        return super().groups(first, last)

    def plan(self, epochs: Iterable[Manifest], pinned: str) -> list[InputPartition]:
        """Prepares the tables of these epochs, and divides their parts among tasks."""
        manifests = [manifest for manifest in epochs if manifest.files]
        if not manifests:
            return []
        again = manifests[0].epoch not in self._fresh
        self._pace.spend(
            [EpochWeight.of(EpochSummary.of(manifest, 0), self.admits) for manifest in manifests], again=again
        )
        options = self._options_of(pinned, manifests[0].epoch)
        keys = {table: manifest.schema_keys[table] for manifest in manifests for table in manifest.tables}
        table_options = options.table_options
        if SCHEMA_IN_DATASET in table_options.dataset:
            named = self._default_schema or self._spool.header().default_schema
            self._default_schema = named or _default_schema(self._spool, manifests)  # of an older program's spool
            table_options = replace(table_options, default_schema=self._default_schema)
        target = replace(BigQueryTarget.from_text(self._options["target"]), project=options.project)
        prepared = self._tables_of(target).prepared({key: self._schema(key) for key in keys.values()}, table_options)
        writer = PartWriter(
            self._spool.path,
            self._spool.header().spool_id,
            manifests[0].epoch,
            target,
            replace(options, table_options=table_options),
            {name: TablePlan(keys[name], found.stopped) for name, found in prepared.items()},
            self._options["dead_letters"],
            Completion.from_text(self._options["completion"]),
            self._consumer,
        )
        parts = parts_of([file for manifest in manifests for file in manifest.files], options.part_bytes)
        if self._feed.is_backfill and table_options.mode == MERGE:
            check_deletes_are_kept(self._spool, manifests[0].files[0].first_commit_timestamp, self._now())
        if table_options.mode == MERGE_LOAD:  # a table's rows are loaded together, and its parts in order
            shares = by_rows(manifests, tasks_of(sum(part.bytes for part in parts), self._cores))
            return [BigQueryPartition(writer, tuple(replace(part, tables=share) for part in parts)) for share in shares]
        shared = runs([part.bytes for part in parts], self._cores)
        return [BigQueryPartition(writer, tuple(parts[run.start : run.stop])) for run in shared]

    def written(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Writes the rows of a task, and reports the tables of each part."""
        if not isinstance(partition, BigQueryPartition):
            return  # Spark's stand-in for an empty plan
        for part in partition.parts:
            yield as_rows(partition.writer.write(part))

    def _options_of(self, pinned: str, first: int) -> PinnedOptions:
        """The options of a micro-batch that may have been started with others.

        The earlier options apply only where rows of it are committed; otherwise a mistake in them could never be
        corrected. A merge can be repeated with any options. Its parts stay the same, so that their dead letters replace
        each other.
        """
        now = self._options["pinned"]
        started = PinnedOptions.from_text(pinned or now)
        can_bind = pinned not in ("", now) and not started.table_options.merges
        is_bound = can_bind and CommitLog(self._spool, self._consumer).has_some(first)
        return started if is_bound else replace(PinnedOptions.from_text(now), part_bytes=started.part_bytes)

    def _tables_of(self, target: BigQueryTarget) -> BigQueryTables:
        if self._tables is None or self._tables.target != target:
            location, staleness = self._options["location"], int(self._options["max_staleness"])
            self._tables = BigQueryTables(
                self._spool, target, location=location, max_staleness=staleness, name=self._consumer
            )
        return self._tables

    def _schema(self, key: str) -> TableSchema:
        if key not in self._schemas:
            self._schemas[key] = self._spool.schema(key)
        return self._schemas[key]


def check_deletes_are_kept(own: Spool, timestamp: int, now: int) -> None:
    """Checks that BigQuery still remembers every row that was deleted since a backfill's timestamp.

    Raises:
        SinkError: it may have forgotten some, and the backfill would restore them. It is recorded as lost.
    """
    if now - timestamp > _DELETES_KEPT:
        why = (
            f"its rows are as of {format_rfc3339(timestamp)}, which is too long ago: in mode merge BigQuery remembers a"
            " deleted row for two days, and older rows could restore it"
        )
        mark_lost(own, why, now=now)
        raise SinkError(
            f"the backfill in {own.path} cannot be delivered: {why}",
            hint="Run it again: the tables that are not done are read at a new timestamp.",
        )


def by_rows(manifests: Iterable[Manifest], shares: int) -> list[frozenset[str]]:
    """The tables that have rows, in at most ``shares`` sets of about equally many rows."""
    rows: Counter[str] = Counter()
    for manifest in manifests:
        rows.update(manifest.tables)
    out: list[tuple[int, set[str]]] = [(0, set()) for _ in range(max(1, min(shares, len(rows))))]
    for table, count in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        index = min(range(len(out)), key=lambda each: out[each][0])
        out[index] = (out[index][0] + count, out[index][1] | {table})
    return [frozenset(tables) for _, tables in out]


def _default_schema(spool: Spool, manifests: Iterable[Manifest]) -> str:
    """The name of the schema of tables whose name has none; empty if there are no such tables."""
    for manifest in manifests:
        for file in manifest.files if any("." not in table for table in manifest.tables) else ():
            for batch in spool.batches(file):
                for table, rows in by_table(batch):
                    if "." not in table:
                        return str(rows.column("source_metadata").field("schema")[0].as_py())
    return ""
