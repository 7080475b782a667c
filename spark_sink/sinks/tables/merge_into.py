"""``merge_into()``: a micro-batch's changes into typed tables, each epoch exactly once.

For each table the changes of the epochs that it lacks are typed, merged to one row a key (in mode history, to versions
of rows), and written in one commit. The commit also records the table's last epoch
(:mod:`spark_sink.sinks.tables.formats`). So the tables are right whatever is killed when, and whether a micro-batch
that is repeated has the same bounds or not.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import ConfigurationError, SpannerCdcError, SpoolError
from connector.spool.consumers import checked_name
from connector.spool.manifest import watermark_of
from connector.spool.storage.locations import absolute
from spark_sink.errors import TableError, TableNameError
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.applied_epochs import Attempts, identified, start_over
from spark_sink.sinks.tables.config import Deletes, Format, Mode, TableOptions
from spark_sink.sinks.tables.formats.kept_events import kept_events
from spark_sink.sinks.tables.formats.session import OWN, writing
from spark_sink.sinks.tables.formats.store import PreparedTable, TableStore
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.history.version_merger import history_statement
from spark_sink.sinks.tables.kept_rows import remove_kept
from spark_sink.sinks.tables.lake_table import (
    LakeTable,
    backfill_statement,
    colliding,
    merge_statement,
    table_name,
    taken_names,
)
from spark_sink.sinks.tables.losses.written_tables import Met, TableNow
from spark_sink.sinks.tables.rejected.rejected_rows import NoDeadLetters, RejectedRows
from spark_sink.sinks.tables.rejected.rewriting import AGAIN, append_again, newer
from spark_sink.sinks.tables.reserved_names import kept_names
from spark_sink.sinks.tables.row_merger import after, for_table, merged, newest
from spark_sink.sinks.tables.table_faults import naming, refused, tried
from spark_sink.sinks.tables.table_keys import check_nanoseconds, of_newest_key
from spark_sink.sources.changes.known_tables import KnownTables, TablesNow, type_name
from spark_sink.sources.changes.spool_copies import check_copy
from spark_sink.sources.changes.typed import spool_of, typed_as

CONSUMER = "merge_into"

_AT_A_TIME = 8
"""Tables that are prepared and committed to at the same time: storage and catalogs take their time for each."""

_ROWS_OF_A_TASK = 100_000
"""Changes that one task merges: each task of a merge leaves a file, and small files slow every later merge down."""

_EVENTS_OF_A_TASK = 5_000
"""Events of a table that one task reads and merges: a shuffle of so few costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The epochs and events of a micro-batch.

    Attributes:
        first: its first epoch with events; 0 if it has none.
        last: its last one.
        events: the events of each table, those that the table had already among them.
    """

    first: int
    last: int
    events: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a micro-batch.

    Attributes:
        merged: its epochs and events.
        stopped: the tables that cannot be written until they are repaired, with their errors; the others are written.
        tables: the others, as they are now.
    """

    merged: Merged
    stopped: Mapping[str, SpannerCdcError]
    tables: Mapping[str, TableNow] = field(default_factory=dict)


def merge_into(
    events: DataFrame,
    *,
    path: str | os.PathLike[str] | None = None,
    database: str | None = None,
    format: Format = "delta",  # noqa: A002 - Spark's own word for it
    mode: Mode = "merge",
    deletes: Deletes = "apply",
    table_properties: Mapping[str, str] | None = None,
    consumer: str = CONSUMER,
    spool: str | os.PathLike[str] | None = None,
) -> Merged:
    """Brings changes into typed tables of Delta, Iceberg or Parquet: for ``foreachBatch``, each epoch exactly once.

    Tables are created, and widened by new columns. A table of Spanner is ``table``, or ``schema_table`` in a named
    schema. Its columns have the types of :func:`spark_sink.typed`.

    It knows of no backfill: merge rows of a backfill's spool before the changes, or with ``deletes="flag"``.

    Args:
        events: rows of the source ``spanner-change-stream``, whole epochs of them.
        path: a folder in which each table has one of its own; either this or ``database``.
        database: a database of Spark's catalog, which exists.
        format: ``delta``, ``iceberg`` or ``parquet``; the library of the first two is to be in the session.
        mode: ``merge`` for rows as they are in Spanner, with ``_change_timestamp``, ``_change_sequence_number`` and
            ``_is_deleted``; ``append`` for a row for each change, with the columns that :func:`spark_sink.typed` adds.
            Two have other names here: ``_mod_type``, and ``_change_timestamp``, a timestamp of microseconds.
            ``history`` for a row for each version of a row, with ``_valid_from``, ``_valid_to`` and ``_is_current``.
        deletes: mode ``merge``: ``apply`` removes deleted rows, ``flag`` keeps them with ``_is_deleted``.
        table_properties: of tables that are created.
        consumer: the name under which a table keeps up to which epoch it is; another for each query that brings
            other tables or rows of the spool to the same place.
        spool: the path of the spool; needed if ``events`` was transformed so that it no longer names its spool.

    Returns:
        The epochs, and the events of each table.

    Raises:
        ConfigurationError: an argument is invalid, the spool is not known, or tables or columns collide.
        SinkError: a column has another type in the destination, a table another key, or a value cannot be written.
        SpoolError: the spool cannot be read, or is another copy than the one that the tables were written from.
    """
    try:
        folder = absolute(os.fspath(path)) if path else None
        options = TableOptions(format, folder, database, mode, deletes, dict(table_properties or {}))
        checked_name(consumer)
    except (ValueError, SpoolError) as error:
        raise ConfigurationError([str(error)]) from None
    written = TablesWriter(Feed.at(os.fspath(spool) if spool else spool_of(events)), options, consumer).write(events)
    for stopped in written.stopped.values():
        raise stopped  # the other tables are written, and a repeated micro-batch leaves them as they are
    return written.merged


class TablesWriter:
    """Brings micro-batches of a spool into tables.

    Args:
        feed: the spool.
        options: where the tables are, and what is in them.
        consumer: the name under which tables keep up to which epoch they are.
        keeps: whether the events of a table are written; those of the others are left out.
        is_there: whether a table is in the destination, so that no other can have its name; None as ``keeps``.
        rejected: keeps the rows that tables cannot take as dead letters; None if such a row stops its table.
        check: raises SpoolInUseError if another sink has taken over.
    """

    def __init__(
        self,
        feed: Feed,
        options: TableOptions,
        consumer: str,
        keeps: Callable[[str], bool] = lambda _: True,
        is_there: Callable[[str], bool] | None = None,
        rejected: RejectedRows | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._spool = feed.spool
        self._check = check
        self._options = options
        self._consumer = consumer
        self._keeps = keeps
        self._is_there = is_there or keeps
        self._rejected = rejected or NoDeadLetters()
        self._compared: set[tuple[int, str]] = set()
        self._own = KnownTables(feed.spool)
        self._known = KnownTables(feed.stream)

    def write(
        self,
        events: DataFrame,
        *,
        tombstones: frozenset[str] = frozenset(),
        of_backfill: bool = False,
        is_stopped: Callable[[str], bool] = lambda _: False,
        met: Met = lambda _: None,
    ) -> Written:
        """Brings the events of whole epochs into their tables; one that cannot be written keeps no other from it.

        Args:
            events: rows of the source.
            tombstones: tables whose backfill is not done: their deleted rows are kept, whatever the option says.
            of_backfill: whether the rows are those of a backfill, which may have changed since.
            is_stopped: whether a table is stopped already: its events are only counted.
            met: is called with the tables as they are before they are written.

        Raises:
            SpoolError: see :func:`merge_into`.
            PySparkException, Py4JError: Spark or the destination fails for more than one table.
        """
        with kept_events(events) as (kept, is_kept):
            found = kept.groupBy("object").agg(
                F.count(F.lit(1)).alias("events"),
                F.min("epoch").alias("first"),
                F.max("epoch").alias("last"),
                F.collect_set(F.col("source_metadata").getField("primary_keys")).alias("keys"),
                F.bool_or(_is_partial()).alias("partial"),
                F.min(F.when(_is_update(), F.size(F.json_object_keys(F.col("payload"))))).alias("columns"),
            )
            rows = [row for row in found.collect() if self._keeps(row["object"])]
            counts = sorted(rows, key=lambda row: str(row["object"]))
            if not counts:
                return Written(Merged(0, 0, {}), {})
            merged = Merged(
                min(row["first"] for row in counts),
                max(row["last"] for row in counts),
                {row["object"]: row["events"] for row in counts},
            )
            keeps = self._keeps_deleted(tombstones, merged.events, of_backfill=of_backfill)
            self._compared.clear()
            due = [row for row in counts if not is_stopped(row["object"])]
            # a batch read that is planned again has the epochs that were sealed since
            bounded = kept if is_kept else kept.where(F.col("epoch") <= merged.last)
            with writing(events.sparkSession):
                stopped, tables = self._write(bounded, due, merged, _Merging(keeps, of_backfill, tombstones), met)
            return Written(merged, stopped, tables)

    def _keeps_deleted(self, tombstones: frozenset[str], names: Iterable[str], *, of_backfill: bool) -> frozenset[str]:
        if self._options.deletes == "flag":
            return frozenset(names)
        # a repair deletes what no later row restores
        return frozenset() if of_backfill and self._options.mode == "merge" else tombstones

    def _write(
        self, events: DataFrame, counts: Sequence[Row], batch: Merged, merging: "_Merging", met: Met = lambda _: None
    ) -> tuple[Mapping[str, SpannerCdcError], Mapping[str, TableNow]]:
        """Returns the tables that cannot be written, with their errors, and the others as they are then."""
        store = self.store(events.sparkSession)
        last, now = identified(self._spool, batch.last), TablesNow(self._known, self._own)
        stopped = _with_names_of_others([row["object"] for row in counts], filter(self._is_there, now.names()))
        tables: dict[str, LakeTable] = {}
        prepared: dict[str, tuple[PreparedTable, int]] = {}

        @contextmanager
        def only(name: str) -> Iterator[None]:
            """Surrounds what is done for one table."""
            try:
                yield
            except (TableError, TableNameError) as error:
                stopped[name] = error

        def prepare(name: str) -> None:
            table = tables[name]
            with only(name), naming(table, store.target(table.name), events):
                prepared[name] = tried(name, store.prepare, table), self._applied(store, table)

        for name in (row["object"] for row in counts if row["object"] not in stopped):
            with only(name):
                tables[name] = self.table(name, now)
        with ThreadPoolExecutor(_AT_A_TIME) as threads:  # before the options of commits are set
            list(threads.map(prepare, tables))
        for name in prepared:
            table = tables[name]
            with only(name), naming(table, store.target(table.name), events):
                self._rejected.opened(table, events.sparkSession)
        ready = prepared.keys() - stopped.keys()
        now_there = {name: _now(store, *prepared[name]) for name in sorted(ready)}
        met(now_there)
        due = [row for row in counts if row["object"] in ready and row["last"] > prepared[row["object"]][1]]

        def one(row: Row) -> None:
            found, done = prepared[row["object"]]
            table = found.table
            left = after(events, "epoch", done, row["first"])
            write = partial(self._write_events, store, table, row, batch, merging)
            if self._options.mode != "append":
                check_nanoseconds(events, table)
                is_certain = found.is_keyed and not merging.of_backfill
                left = of_newest_key(left, table, store.target(table.name), row["keys"], is_certain=is_certain)
            self._rejected.write(table, left, write)
            store.committed(table.name, last)
            if store.has(table.name, last.epoch):
                now_there[table.source] = replace(now_there[table.source], epoch=last.epoch)

        def named(row: Row) -> None:
            table = prepared[row["object"]][0].table
            with only(table.source), naming(table, store.target(table.name), events):
                one(row)

        committing = nullcontext() if self._options.mode == "append" else store.committing(last)
        with committing, ThreadPoolExecutor(_AT_A_TIME) as threads:
            list(threads.map(named, due))
        up_to = watermark_of(last.at) if last.at else 0
        return stopped, {name: replace(one, up_to=up_to) for name, one in now_there.items() if name not in stopped}

    def _applied(self, store: TableStore, table: LakeTable) -> int:
        """The last epoch that a table has.

        Raises:
            SpoolError: it is of another copy of the spool.
        """
        done = store.applied(table.name)
        if done.epoch and (done.epoch, done.at) not in self._compared:
            check_copy(self._spool, f"table {store.target(table.name)}", done, start_over(self._spool, done))
            self._compared.add((done.epoch, done.at))
        return done.epoch

    def _write_events(
        self, store: TableStore, table: LakeTable, row: Row, batch: Merged, merging: "_Merging", events: DataFrame
    ) -> None:
        """Commits events of a table, about which ``row`` has what all of them are."""
        if self._options.mode == "append":
            appended = _typed(events, table).select(*table.all_columns("append"))
            tried(table.source, self._append, store, table, appended, row, batch)
            return
        lacks_columns = row["columns"] is not None and row["columns"] < len(table.columns)
        whole, tasks = not (row["partial"] or lacks_columns), -(-row["events"] // _ROWS_OF_A_TASK)
        if row["events"] <= _EVENTS_OF_A_TASK:
            events = events.coalesce(1)
        attempts = Attempts(self._check, lambda: self._applied(store, table) >= row["last"])
        of_table = replace(merging, attempts=attempts)
        self._merge_typed(store, table, _typed(events, table), of_table, whole=whole, tasks=tasks)

    def _append(self, store: TableStore, table: LakeTable, rows: DataFrame, row: Row, batch: Merged) -> None:
        done = self._applied(store, table)  # another run of this query may have committed meanwhile
        if done < row["last"]:
            left = after(rows, "_epoch", done, row["first"])
            store.append(left, table.name, max(batch.first, done + 1), identified(self._spool, batch.last))

    def _merge_typed(
        self, store: TableStore, table: LakeTable, typed: DataFrame, merging: "_Merging", *, whole: bool, tasks: int
    ) -> None:
        """Merges typed changes, which are whole rows or not."""
        target, keeps = store.target(table.name), table.source in merging.keeps_deleted
        if self._options.mode == "history":
            history = partial(history_statement, table, target, keeps_deleted=keeps, of_backfill=merging.of_backfill)
            self._merge(table, typed, merging.attempts, partial(history, tasks=tasks))
        else:
            rows = newest(table, typed, keeps_deleted=keeps) if whole else merged(table, typed)
            statement = partial(merging.statement, table, target, whole=whole)
            self._merge(table, rows.coalesce(tasks), merging.attempts, statement)

    def _merge(self, table: LakeTable, changes: DataFrame, attempts: Attempts, statement: Callable[[str], str]) -> None:
        """Runs the statement that merges a view of the changes."""
        spark, view = changes.sparkSession, f"spanner_cdc_{uuid4().hex}"
        changes.createOrReplaceTempView(view)
        try:
            tried(table.source, attempts, spark.sql, statement(view))
        finally:
            spark.catalog.dropTempView(view)

    def applied(self, spark: SparkSession, name: str) -> int:
        """The last epoch that a table has.

        Raises:
            TableError, TableNameError: the table cannot be written until it is repaired.
            SpoolError: it is of another copy of the spool.
        """
        table, store = self.table(name), self.store(spark)
        with writing(spark), refused(name, store.target(table.name)):
            tried(name, store.prepare, table)
            return self._applied(store, table)

    def write_again(
        self, changes: DataFrame, name: str, *, whole: bool, tombstones: frozenset[str], backfill: bool
    ) -> None:
        """Writes changes of a table that it lacks, whatever its last epoch is; what it has already stays as it is.

        Args:
            changes: rows of the source.
            name: the table.
            whole: whether each of them is a whole row, or a DELETE.
            tombstones: see :meth:`write`.
            backfill: whether they are rows of a backfill.

        Raises:
            TableError, TableNameError: the table cannot be written until it is repaired.
            PySparkException, Py4JError: Spark or the destination fails for more than one table.
        """
        with writing(changes.sparkSession):
            table = self.table(name)
            store = self.store(changes.sparkSession, AGAIN)
            with naming(table, store.target(table.name), changes):
                table = tried(name, store.prepare, table).table
                if self._options.mode == "append":
                    tried(name, append_again, store, table, _typed(changes, table))
                    return
                check_nanoseconds(changes, table)
                typed = _typed(changes, table)
                if self._options.mode == "merge" and not backfill:
                    typed = newer(typed, store.rows(table.name), table)
                keeps = self._keeps_deleted(tombstones, [name], of_backfill=backfill)
                self._merge_typed(store, table, typed, _Merging(keeps, backfill, tombstones), whole=whole, tasks=1)

    @property
    def mode(self) -> Mode:
        """The mode of the tables."""
        return self._options.mode

    def tables(self) -> list[str]:
        """The tables of Spanner that the spool knows."""
        return self._known.names()

    def remove_deleted(self, spark: SparkSession, name: str) -> None:
        """Removes the deleted rows of a table of Spanner that were kept, and the notes of others, if it has any.

        Raises:
            TableError: Spark refuses to.
            PySparkException, Py4JError: the destination does not answer, or fails for more than one table.
        """
        remove_kept(spark, self.store(spark), name, mode=self._options.mode, keeps_deleted=False)

    def remove_notes(self, spark: SparkSession, name: str) -> None:
        """As :meth:`remove_deleted`, but deleted rows stay: only the notes of others are removed."""
        remove_kept(spark, self.store(spark), name, mode=self._options.mode, keeps_deleted=True)

    def table(self, name: str, now: TablesNow | None = None) -> LakeTable:
        """A table of the destination, with every column that it has had.

        Raises:
            TableNameError: a column has the name of one that is added, or the format keeps a name for itself.
        """
        known = (now or TablesNow(self._known, self._own)).having(name)
        types = known.columns(name)
        options = self._options
        kept = kept_names(
            name,
            types,
            format=options.format,
            merges=options.mode != "append",
            below_path=options.database is None,
            properties=options.properties,
        )
        if problems := [*filter(None, [taken_names(name, types, options.mode)]), *kept]:
            raise TableNameError(problems)
        columns = {column: type_name(of_type) for column, of_type in types.items()}
        return LakeTable(name, table_name(name), columns, types, known.newest(name).primary_keys)

    def store(self, spark: SparkSession, kind: str = "") -> TableStore:
        """The tables in a session; commits of another kind than those of whole epochs have a number of their own."""
        progress = f"{OWN}{self._spool.header().spool_id}.{self._consumer}{kind}"
        return STORES[self._options.format](spark, self._options, progress)


@dataclass(frozen=True, slots=True)
class _Merging:
    """The options of a merge.

    Attributes:
        keeps_deleted: the tables whose deleted rows are kept.
        of_backfill: whether the rows are those of a backfill.
        filled: the tables whose backfill is not done.
        attempts: run the statement.
    """

    keeps_deleted: frozenset[str]
    of_backfill: bool
    filled: frozenset[str] = frozenset()
    attempts: Attempts = field(default_factory=Attempts)

    def statement(self, table: LakeTable, target: str, rows: str, *, whole: bool) -> str:
        keeps = table.source in self.keeps_deleted
        if self.of_backfill:
            return backfill_statement(table, target, rows, keeps_deleted=keeps)
        notes = table.source in self.filled
        return merge_statement(table, target, rows, whole=whole, keeps_deleted=keeps, notes=notes)


def _now(store: TableStore, found: PreparedTable, epoch: int) -> TableNow:
    name = found.table.name
    return TableNow(store.identity(name), epoch, is_new=store.is_new(name))


def _with_names_of_others(names: Sequence[str], others: Iterable[str]) -> dict[str, SpannerCdcError]:
    """Those of some tables whose name in the destination is that of another table, too."""
    found = colliding(sorted({*names, *others}))
    return {name: TableNameError([found[name]]) for name in names if name in found}


def _typed(events: DataFrame, table: LakeTable) -> DataFrame:
    return for_table(table, typed_as(events, table.source, table.types, instants=True))


def _is_update() -> Column:
    return F.col("source_metadata").getField("mod_type") == F.lit("UPDATE")


def _is_partial() -> Column:
    return _is_update() & ~F.col("source_metadata").getField("value_capture_type").isin(*WHOLE_ROWS)
