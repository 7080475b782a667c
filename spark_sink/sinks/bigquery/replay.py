"""Replays dead letters into BigQuery, in the sink's mode, without Spark.

A stopped table is resumed once it is repaired; in ``merge-load``, once its last dead letter is written. One whose dead
letters were removed by hand is examined at the end of each replay, even of one that sends nothing. The sink must not
run meanwhile: where columns are merged one by one, a row's later changes have to follow its dead letters. Dead
letters of a micro-batch that is not recorded as done stay, because the sink will write their rows, too. Where rows are
appended, a file's stream is recorded before it is committed, and until the file holds only what was rejected again: a
replay that is killed appends nothing twice. A file's staging table is recorded likewise before it is merged; its name
has a random part, so that no replay takes the job of another one for its own.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.core.timestamps import MICROSECOND
from connector.log import Log
from connector.spool.backfill.records import unfinished_tables, unfinished_timestamps
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, write_report
from connector.spool.sink_start import start_of_sink
from spark_sink.errors import TableError
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.commit_log import CommitLog, ReplayEntry
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.merging.loads import MergeLoad, from_text
from spark_sink.sinks.bigquery.merging.staged import StagedRows
from spark_sink.sinks.bigquery.merging.statements import numbers_statement
from spark_sink.sinks.bigquery.rows.builder import partial_updates
from spark_sink.sinks.bigquery.tables.preparing import BigQueryTables, Prepared
from spark_sink.sinks.bigquery.tables.states import By
from spark_sink.sinks.bigquery.tables.table import (
    MERGE_LOAD,
    SCHEMA_IN_DATASET,
    BigQueryTable,
    BigQueryTableOptions,
    bigquery_table,
)
from spark_sink.sinks.bigquery.writing.table_rows import SLICE, row_writer
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.dead_letters import DeadLetters, Replay, folder_of
from spark_sink.sinks.shared.known_schemas import KnownSchemas, Rejections
from spark_sink.sinks.shared.replayed_spools import ReplayedSpools, held, replayed_spool
from spark_sink.sinks.shared.row_slices import slices_of

_log = Log(__name__)


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """A replay of dead letters, which holds the sink's lock.

    Raises:
        SpoolError: the spool does not exist, or the sink has never run with it.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: from the replay, if BigQuery rejects more than rows.
    """
    assert isinstance(config.sink, BigQueryConfig)
    spool = replayed_spool(config)
    with held(spool, config) as spools:
        replay = _BigQueryReplay(config, config.sink, spool, spools)
        yield replay
        replay.forget()
        replay.resume_emptied(DeadLetters.of(sink_type(config.sink.type), config.sink))


class _BigQueryReplay:
    def __init__(self, config: Config, sink: BigQueryConfig, spool: Spool, spools: ReplayedSpools) -> None:
        self._spool = spool
        self._name = sink.name
        self._table_options = sink.table_options()
        self._target = sink.target(config.source)
        self._tables = BigQueryTables(
            spool, self._target, location=sink.location or "", max_staleness=sink.max_staleness, name=sink.name
        )
        self._prunes = sink.prune_by_keys
        self._repaired: set[str] = set()
        self._reported: dict[str, str] = {}
        self._commit_log = CommitLog(spool, sink.name)
        self._entered: list[str] = []
        self._spools = spools
        self._schemas = KnownSchemas(spool)

    def send(self, name: str, rows: pa.RecordBatch) -> Rejections | None:
        """Sends the dead letters of one file: one table's, in commit order."""
        self.forget()
        if self._spools.will_repeat(name, rows):
            return None  # the sink will write this micro-batch
        return self._schemas.sent(rows, self._send)

    def _send(self, rows: pa.RecordBatch) -> Rejections:
        source, mode = rows.column("object")[0].as_py(), self._table_options.mode
        newest = rows.column("schema_key")[rows.num_rows - 1].as_py()
        default_schema = rows.column("source_metadata").field("schema")[0].as_py()
        prepared = self._prepared(source, newest, self._options_in(default_schema))
        if isinstance(prepared, str):
            return [(index, prepared) for index in range(rows.num_rows)]
        self._repaired.add(source)
        table, name = prepared.table, _name(rows, prepared.table)
        if not self._table_options.merges:
            return self._append(rows, table, name)
        of_backfill = mode == MERGE_LOAD and _are_snapshot(rows)
        if of_backfill and self._is_superseded(source, rows):
            return [(index, _SUPERSEDED) for index in range(rows.num_rows)]
        if mode == MERGE_LOAD:
            return self._merge(rows, table, of_backfill=of_backfill)
        partial = partial_updates(rows)
        whole = [index for index in range(rows.num_rows) if index not in partial]
        rejected, _ = self._write(rows.take(pa.array(whole, pa.int64())), table, name)
        return [*partial.items(), *((whole[index], why) for index, why in rejected)]

    def _options_in(self, default_schema: str) -> BigQueryTableOptions:
        """The options of tables; those without a schema are in this one, which matters with a dataset for each."""
        has_datasets = SCHEMA_IN_DATASET in self._table_options.dataset
        return replace(self._table_options, default_schema=default_schema if has_datasets else "")

    def _merge(self, rows: pa.RecordBatch, table: BigQueryTable, *, of_backfill: bool) -> Rejections:
        """Merges rows once. What a replay that was killed has merged is known by its entry, not by a job's id."""
        start = start_of_sink(self._spool, self._name)
        name = _name(rows, table, self._target.project, start.id if start else "")
        staged = self._staged(table.source, of_backfill=of_backfill)
        entry = self._commit_log.find_replay(name)
        loads = [] if entry is None or entry.committed else from_text(entry.stream)
        if not all(staged.is_merged(table, load) for load in loads):
            self._drop(table, loads)  # the table may have later changes by now
            entry = None
        if entry is None:
            entry = self._load(rows, table, name, takes_late=staged.of_backfill)
            if not entry.stream:
                return list(entry.refused)
            self._commit_log.enter_replay(name, entry)
        if not entry.committed:
            for load in from_text(entry.stream):
                staged.merge(table, load)
        return self._committed(name, entry)

    def _committed(self, name: str, entry: ReplayEntry) -> Rejections:
        """Records that the rows of a file are visible; returns the rejected ones."""
        if not entry.committed:
            self._commit_log.enter_replay(name, entry.model_copy(update={"committed": True}))
        self._entered.append(name)
        return list(entry.refused)

    def _load(self, rows: pa.RecordBatch, table: BigQueryTable, name: str, *, takes_late: bool) -> ReplayEntry:
        """Loads rows into a staging table of its own; those that the table has later changes of are left out."""
        refused: Rejections = []
        left = list(range(rows.num_rows))
        while True:
            sent = rows.take(pa.array(left, pa.int64()))
            rejected, wrote = self._write(sent, table, f"{name}_{secrets.token_hex(4)}")
            late = [] if takes_late else [one for load in from_text(wrote) for one in self._late(sent, table, load)]
            refused += [(left[index], why) for index, why in {**dict(rejected), **dict(late)}.items()]
            if not late:
                return ReplayEntry(stream=wrote, refused=tuple(refused))
            self._drop(table, from_text(wrote))
            gone = {index for index, _ in refused}
            left = [index for index in left if index not in gone]

    def _drop(self, table: BigQueryTable, loads: Iterable[MergeLoad]) -> None:
        """Drops staging tables that are not merged."""
        client = BigQueryClient(self._target)
        for load in loads:
            client.delete(table.dataset, load.staging)

    def _staged(self, source: str, *, of_backfill: bool) -> StagedRows:
        """The staged rows to merge: those of a backfill that is not done, beside the stream's."""
        unfinished = unfinished_tables(self._spool)
        is_unfinished = of_backfill and source in unfinished
        return StagedRows(self._spool, self._target, unfinished, of_backfill=is_unfinished, prunes=self._prunes)

    def _is_superseded(self, source: str, rows: pa.RecordBatch) -> bool:
        """True if a later backfill of the table is not done: what was deleted before it began is not known any more."""
        if source not in unfinished_tables(self._spool):
            return False
        known = {timestamp // MICROSECOND for timestamp in unfinished_timestamps(self._spool, source)}
        return not known.issuperset(pc.unique(rows.column("source_timestamp").cast(pa.int64())).to_pylist())

    def _prepared(self, source: str, newest: str, table_options: BigQueryTableOptions) -> Prepared | str:
        """A prepared table, or why its dead letters stay; the tables do not hold up each other."""
        prepared = self._examined(source, newest, table_options)
        if isinstance(prepared, str) and prepared != self._reported.get(source):
            _log.warning("dead letters of a table stay", table=source, reason=prepared)
            self._reported[source] = prepared
        return prepared

    def _examined(self, source: str, newest: str, table_options: BigQueryTableOptions) -> Prepared | str:
        try:
            key = self._tables.schema_key(bigquery_table(self._spool.schema(newest), table_options)) or newest
            prepared = self._tables.prepared({key: self._spool.schema(key)}, table_options, by=By.REPLAY)[source]
        except TableError as error:
            return str(error)
        return prepared if prepared.stopped is None else prepared.stopped

    def _late(self, rows: pa.RecordBatch, table: BigQueryTable, load: MergeLoad) -> Rejections:
        """The rows of which the table has later changes, each by its own number: a line has that of its last row."""
        client = BigQueryClient(self._target)
        path = f"{self._target.project}.{table.dataset}"
        sql = numbers_statement(table, f"{path}.{table.name}", f"{path}.{load.staging}")
        there = dict(client.rows(sql, table.dataset, table.name))
        if not there:
            return []
        names = [column.name for column in table.columns if column.is_key]
        payloads = [orjson.loads(payload) for payload in rows.column("payload").to_pylist()]
        keys = [orjson.dumps([payload.get(name) for name in names]) for payload in payloads]
        uuids, numbers = rows.column("uuid").to_pylist(), rows.column("change_sequence_number").to_pylist()
        known = {key: there[uuid] for key, uuid in zip(keys, uuids, strict=True) if uuid in there}
        own = set(zip(keys, numbers, strict=True))  # a replay that was killed has merged them
        return [
            (index, _LATE)
            for index, (key, number) in enumerate(zip(keys, numbers, strict=True))
            if number < known.get(key, "") and (key, known[key]) not in own
        ]

    def forget(self) -> None:
        """Removes the entries of files whose dead letters are no longer in the store."""
        while self._entered:
            self._commit_log.forget_replay(self._entered.pop())

    def _append(self, rows: pa.RecordBatch, table: BigQueryTable, name: str) -> Rejections:
        entry = self._commit_log.find_replay(name)
        if entry is None:
            rejected, wrote = self._write(rows, table, name)
            if not wrote:
                return rejected
            entry = ReplayEntry(stream=wrote, refused=tuple(rejected))
            self._commit_log.enter_replay(name, entry)
        if not entry.committed:
            BigQueryWriter(self._target, table).commit([entry.stream], entry=self._commit_log.replay_path(name))
        return self._committed(name, entry)

    def _write(self, rows: pa.RecordBatch, table: BigQueryTable, name: str) -> tuple[Rejections, str]:
        """Writes rows; returns the rejected ones, and the stream or the staging tables of the others."""
        writer = row_writer(self._target, table, self._table_options, name, self._spool)
        rejected: Rejections = []
        first = 0
        for part in slices_of(rows, SLICE):
            rejected += [(first + index, why) for index, why in writer.write(part)]
            first += part.num_rows
        return rejected, writer.finish()

    def tried(self, table: str, *, left: int) -> None:
        """Resumes a stopped table that is repaired.

        Where columns are merged one by one, its last dead letter has to be written first: later changes must not
        overtake it.
        """
        if table in self._repaired and not (left and self._table_options.mode == MERGE_LOAD):
            self._tables.resume(table)
            report = report_of(self._spool, self._name)
            if table in report.stopped:
                write_report(self._spool, self._name, report.without(table))

    def resume_emptied(self, store: DeadLetters) -> None:
        """Resumes the stopped tables that have no dead letters in the store, if they are repaired."""
        table_options = self._options_in(self._spool.header().default_schema or "")
        stopped = self._tables.stopped()
        folders = store.folders() if stopped else frozenset()
        for source, key in stopped.items():
            if folder_of(source) in folders:
                continue
            if not self._tables.is_stopped(bigquery_table(self._spool.schema(key), table_options)):
                continue  # a table of another dataset
            prepared = self._examined(source, key, table_options)
            if isinstance(prepared, str):
                _log.warning("a table stays stopped", table=source, reason=prepared)
                continue
            _log.warning("a stopped table continues without its dead letters, which were removed", table=source)
            self._repaired.add(source)
            self.tried(source, left=0)


def _are_snapshot(rows: pa.RecordBatch) -> bool:
    """True if rows are a backfill's."""
    return bool(pc.all(pc.struct_field(rows.column("source_metadata"), "snapshot").fill_null(False)).as_py())


_SUPERSEDED = (
    "a later backfill of its table is not done, and reads its row again: remove this dead letter once that backfill is"
    " done"
)
_LATE = "later changes of its row are in the table: check what the table lacks, and remove this dead letter"


def _name(rows: pa.RecordBatch, table: BigQueryTable, *where: str) -> str:
    """The name of these rows in this table, the same for the same rows; ``where`` distinguishes tables of that name."""
    digest = blake2b("\n".join((f"{table.dataset}.{table.name}", *where, "")).encode(), digest_size=16)
    for uuid in rows.column("uuid").to_pylist():
        digest.update(uuid.encode())
    return f"letters_{digest.hexdigest()}"
