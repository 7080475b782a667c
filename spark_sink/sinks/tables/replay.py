"""Replays the dead letters of stopped tables, in Spark: each file is a commit with the number of its last epoch.

A table leaves out what it has by that number, so that a replay that was killed changes nothing twice. A row that it
cannot take becomes a dead letter of its own, as when the sink writes it (:mod:`spark_sink.sinks.tables.rejected`). A
file that is rejected again keeps the later ones of its table from being sent before it. Rows of a backfill are merged
as the backfill does; deleted rows are kept meanwhile, and removed in the end.

A table has later epochs than a file of a stopped table if a start of the sink did not find its dead letters. In mode
append they are written all the same. In the others they stay, because a table leaves out what is before its last epoch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.core.filters import RecordFilter
from connector.spool.backfill.records import backfills, unfinished_tables
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from spark_sink.errors import SinkError, TableError, TableNameError
from spark_sink.sinks.shared.dead_letters import Moved, Replay
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.known_schemas import Rejections
from spark_sink.sinks.shared.replayed_spools import ReplayedSpools, held, replayed_spool
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.formats.started import in_words, started
from spark_sink.sinks.tables.merge_into import TablesWriter
from spark_sink.sinks.tables.rejected.rejected_rows import EVENT_COLUMNS, ROWS, RejectedRows
from spark_sink.sinks.tables.rejected.replaying import RowsReplay
from spark_sink.sinks.tables.stopped_tables import STOPPED, last_epoch


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """A replay of dead letters, which holds the sink's lock.

    Raises:
        SpoolError: there is no spool, or the sink has never delivered from it.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: Spark cannot be started; or, from the replay, fails for more than one table.
    """
    assert isinstance(config.sink, TablesConfig)
    spool = replayed_spool(config)
    with held(spool, config) as spools, started(config.spark, config.sink) as spark:
        replay = TablesReplay(config, config.sink, spool, spools, spark)
        with in_words():
            yield replay
            replay.settle()


class TablesReplay:
    """Sends the dead letters of stopped tables.

    Args:
        config: the configuration.
        sink: its sink.
        spool: the change stream's.
        spools: that, and those of its backfills; their locks are held.
        spark: a session with the format's library.
    """

    def __init__(
        self, config: Config, sink: TablesConfig, spool: Spool, spools: ReplayedSpools, spark: SparkSession
    ) -> None:
        self._spool = spool
        self._spools = spools
        self._spark = spark
        self._delivery = TablesDelivery(config, sink, Feed.of(config))
        self._sink = sink
        self._unfinished = unfinished_tables(spool)
        tables = config.source.tables
        self._kept = RecordFilter(tables.include, tables.exclude).keeps  # two had one name until one was excluded
        known = [spool, *(one.spool for one in backfills(spool))]
        self._feeds = {one.header().spool_id: Feed(one, spool) for one in known}
        store = self._delivery.dead_letters
        self._rows = {
            spool_id: RowsReplay(
                spark,
                self._writer(feed),
                store,
                f"{spool_id}{ROWS}",
                [f"{other}{ROWS}" for other in self._feeds if other != spool_id],
                f"{spool_id}{STOPPED}",
                is_backfill=feed.is_backfill,
            )
            for spool_id, feed in self._feeds.items()
        }
        self._sent = pa.RecordBatch.from_pylist([])
        self._writers: dict[str, tuple[TablesWriter, RejectedRows]] = {}
        self._rejected: dict[tuple[str, str], str] = {}
        self._applied: dict[tuple[str, str], int] = {}
        self._written: set[str] = set()
        self._late: set[str] = set()
        self._stopped: dict[str, set[str]] = {}

    def send(self, name: str, rows: pa.RecordBatch) -> Rejections | Moved | None:
        """Writes the dead letters of a file; those of a stopped table all, or none.

        A row of a stopped table that cannot be written is kept as a dead letter of its own.

        Raises:
            SinkError: an event lacks what says where it belongs, as one that was edited by hand; and see
                :func:`replay_into`.
        """
        if lacking := [column for column in EVENT_COLUMNS if column != "payload" and rows.column(column).null_count]:
            raise SinkError(
                f"dead letters {name}: an event has no {' and no '.join(lacking)}",
                hint="Mend it, or remove its line.",
            )
        spool_id = name.partition("_")[0]
        table: str = rows.column("object")[0].as_py()
        if spool_id not in self._feeds:
            return _all(rows, "it is of another spool: replay it with that spool (spool.path), or remove it")
        if self._spools.will_repeat(name, rows):
            return None
        tombstones = self._delivery.keep_deleted(table, self._unfinished)
        if (of_rows := self._rows[spool_id]).has(name):
            self._written.add(table)
            self._writers.clear()  # they know these dead letters
            return of_rows.send(rows, tombstones)
        feed = self._feeds[spool_id]
        if why := of_rows.why_waiting(table) or self._why_not(feed, table):
            self._rejected.setdefault((spool_id, table), why)
        if (spool_id, table) in self._rejected:
            return _all(rows, self._rejected[spool_id, table])
        if last_epoch(name, rows) < self._applied[spool_id, table]:
            return self._send_late(name, rows, tombstones)
        self._sent = rows
        writer, rejected = self._of_stopped(feed)
        events = self._spark.createDataFrame(pa.Table.from_batches([rows.select(EVENT_COLUMNS)]))
        written = writer.write(events, tombstones=tombstones, of_backfill=feed.is_backfill)
        if table in written.stopped:
            self._rejected[spool_id, table] = str(written.stopped[table])
            return _all(rows, str(written.stopped[table]))
        self._written.add(table)
        self._stopped_files(table).discard(name)
        return Moved(len(rejected.left_out(table)))

    def _of_stopped(self, feed: Feed) -> tuple[TablesWriter, RejectedRows]:
        """The writer of dead letters of stopped tables, and those of their rows that it knows or adds.

        It searches the store once for the files that follow each other: there may be thousands.
        """
        spool_id = feed.spool.header().spool_id
        if spool_id not in self._writers:
            rejected = RejectedRows(feed, self._delivery.dead_letters, self._sink.mode, lambda _: [self._sent])
            self._writers[spool_id] = self._writer(feed, rejected), rejected
        return self._writers[spool_id]

    def _why_not(self, feed: Feed, table: str) -> str:
        """The reason why a table cannot be written; notes the last epoch that it has before this replay writes it."""
        of_table = feed.spool.header().spool_id, table
        try:
            if of_table not in self._applied:
                self._applied[of_table] = self._writer(feed).applied(self._spark, table)
        except (TableError, TableNameError) as error:
            return str(error)
        return ""

    def _send_late(self, name: str, rows: pa.RecordBatch, tombstones: frozenset[str]) -> Rejections:
        """Sends the dead letters of a stopped table that has later epochs."""
        table: str = rows.column("object")[0].as_py()
        if self._sink.mode != "append":
            return _all(
                rows,
                f"later changes of table {table} are written already, and this one must not follow them: remove it,"
                f" and then run `spanner-cdc backfill --table {table}`",
            )
        rejected = self._rows[name.partition("_")[0]].send(rows, tombstones)
        if not rejected:
            self._written.add(table)
            self._late.add(table)
            self._stopped_files(table).discard(name)
        return rejected

    def tried(self, table: str, *, left: int) -> None:
        """A table is no longer stopped once the last dead letter is written that it was stopped with."""
        if table in self._written and not (left and self._stopped_files(table)):
            self._spools.resume(table)
        if table in self._late and not left:
            write_report(self._spool, self._sink.name, report_of(self._spool, self._sink.name).found(table))

    def _stopped_files(self, table: str) -> set[str]:
        """The names of the files with dead letters of a stopped table that are not written yet."""
        if table not in self._stopped:
            beginnings = [f"{spool_id}{STOPPED}" for spool_id in self._feeds]
            files = self._delivery.dead_letters.files(table, *beginnings)
            self._stopped[table] = {file.name for file in files if file.count}
        return self._stopped[table]

    def _writer(self, feed: Feed, rejected: RejectedRows | None = None) -> TablesWriter:
        return TablesWriter(feed, self._sink.options, self._sink.name, is_there=self._kept, rejected=rejected)

    def settle(self) -> None:
        """Removes deleted rows that were kept for dead letters of a backfill."""
        if self._delivery.is_due(self._unfinished):
            self._delivery.settle(self._spark, self._unfinished, is_replay=True)


def _all(rows: pa.RecordBatch, why: str) -> Rejections:
    return [(index, why) for index in range(rows.num_rows)]
