"""Sends dead letters to BigQuery once more, in the sink's mode, without Spark.

A table that was stopped goes on when what stopped it is repaired, in ``merge-load`` when its last letter is through.
The sink must not run meanwhile: what it writes of a row has to come after what the letters hold of it, where columns
are merged one by one. Letters of a micro-batch that is not recorded as done stay, for the sink would write their rows,
too. Where rows are appended, a file's stream is written down before it is committed, and until the file holds only what
was refused again: a replay that is killed appends nothing twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.config.loading import Config
from connector.errors import SpoolError
from connector.log import Log
from connector.spool.consumers import find, sink_lock
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of, tell
from connector.storage.locations import absolute
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.commit_log import Ledger, ReplayEntry, replay_path
from spark_sink.bigquery.config import CONSUMER, BigQueryConfig
from spark_sink.bigquery.delivery import merge_staging, options_of
from spark_sink.bigquery.loads import from_text
from spark_sink.bigquery.parts import PIECE, rows_into
from spark_sink.bigquery.row_merger import late_statement
from spark_sink.bigquery.rows import partial_updates
from spark_sink.bigquery.table import MERGE, MERGE_LOAD, SCHEMA_IN_DATASET, BigQueryTable, Shape, bigquery_table
from spark_sink.bigquery.tables import BigQueryTables, Prepared
from spark_sink.bigquery.type_changes import Refusals
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError, TableError
from spark_sink.files.writer import pieces_of
from spark_sink.sink.dead_letters import Replay
from spark_sink.sink.known_schemas import KnownSchemas

_log = Log(__name__)


@contextmanager
def replay_into(config: Config) -> Iterator[Replay]:
    """What sends a table's letters; the sink's lock is held meanwhile.

    Raises:
        SpoolError: the spool is not there, or the sink has never run with it.
        SpoolMismatchError: it is another stream's.
        SpoolInUseError: the sink runs.
        SinkError: from the replay, where BigQuery refuses more than rows.
    """
    assert isinstance(config.sink, BigQueryConfig)
    spool = Spool.at(absolute(config.spool.path))
    try:
        spool.check_source(config.source.name)
    except FileNotFoundError:
        raise SpoolError(
            f"there is no spool at {spool.path}", hint="Set spool.path to the one that the letters are of."
        ) from None
    if find(spool, CONSUMER) is None:
        raise SpoolError(
            f"the spool at {spool.path} does not know how far the sink has come",
            hint="Let the sink run with it before letters are replayed.",
        )
    taken = "the sink must not run while letters are replayed, and it does: stop it, and replay again"
    with spool.storage.locked(sink_lock(CONSUMER), taken):
        letters = _Letters(config, config.sink, spool)
        yield letters
        letters.forget()


class _Letters:
    def __init__(self, config: Config, sink: BigQueryConfig, spool: Spool) -> None:
        self._spool = spool
        self._shape = options_of(config, sink).shape
        self._target = sink.target(config.source)
        self._tables = BigQueryTables(
            spool, self._target, location=sink.location or "", max_staleness=sink.max_staleness
        )
        self._prunes = sink.prune_by_keys
        self._repaired: set[str] = set()
        self._said: dict[str, str] = {}
        self._ledger = Ledger(spool)
        self._noted: list[str] = []
        consumer = find(spool, CONSUMER)
        self._done = consumer.epoch if consumer else 0
        self._spool_id = spool.header().spool_id
        self._schemas = KnownSchemas(spool)

    def send(self, name: str, rows: pa.RecordBatch) -> Refusals | None:
        """Sends the letters of one file, which are of one table and in commit order."""
        self.forget()
        is_of_spool = name.startswith(f"{self._spool_id}_")
        if is_of_spool and pc.max(rows.column("epoch")).as_py() > self._done:
            return None  # the sink writes its micro-batch once more
        return self._schemas.sent(rows, self._send)

    def _send(self, rows: pa.RecordBatch) -> Refusals:
        source = rows.column("object")[0].as_py()
        shape = self._shape
        if SCHEMA_IN_DATASET in shape.dataset:
            shape = replace(shape, default_schema=rows.column("source_metadata").field("schema")[0].as_py())
        newest = rows.column("schema_key")[rows.num_rows - 1].as_py()
        prepared = self._prepared(source, newest, shape)
        if isinstance(prepared, str):
            return [(index, prepared) for index in range(rows.num_rows)]
        self._repaired.add(source)
        table, name = prepared.table, _name(rows, prepared.table)
        if not shape.merges:
            return self._append(rows, table, shape, name)
        partial = partial_updates(rows) if shape.mode == MERGE else {}
        whole = [index for index in range(rows.num_rows) if index not in partial]
        sent = rows.take(pa.array(whole, pa.int64()))
        refused, wrote = self._write(sent, table, shape, name)
        for load in from_text(wrote):
            refused = [*refused, *self._late(sent, table, load.staging)]
            merge_staging(self._target, table, load, prunes=self._prunes)
        return [*partial.items(), *((whole[index], why) for index, why in dict(refused).items())]

    def _prepared(self, source: str, newest: str, shape: Shape) -> Prepared | str:
        """A table that is ready, or why its letters stay; nothing of one table holds up the letters of others."""
        try:
            key = self._tables.schema_key(bigquery_table(self._spool.schema(newest), shape)) or newest
            prepared = self._tables.prepared({key: self._spool.schema(key)}, shape, replaying=True)[source]
        except TableError as error:
            why = str(error)
        else:
            if prepared.stopped is None:
                return prepared
            why = prepared.stopped
        if why != self._said.get(source):
            _log.warning("dead letters of a table stay", table=source, reason=why)
            self._said[source] = why
        return why

    def _late(self, rows: pa.RecordBatch, table: BigQueryTable, staging: str) -> Refusals:
        """The rows that the merge will leave out, for later changes of their rows are there."""
        client = BigQueryClient(self._target, failure=SinkError)
        if client.find(table.dataset, staging) is None:
            return []  # merged by a replay that was killed
        path = f"{self._target.project}.{table.dataset}"
        sql = late_statement(table, f"{path}.{table.name}", f"{path}.{staging}")
        late = set(client.texts(sql, table.dataset, table.name))
        if not late:
            return []
        names = [column.name for column in table.columns if column.is_key]
        payloads = [orjson.loads(payload) for payload in rows.column("payload").to_pylist()]
        keys = [orjson.dumps([payload.get(name) for name in names]) for payload in payloads]
        uuids = rows.column("uuid").to_pylist()
        of_late = {key for key, uuid in zip(keys, uuids, strict=True) if uuid in late}
        return [(index, _LATE) for index, key in enumerate(keys) if key in of_late]

    def forget(self) -> None:
        """Forgets how letters were sent: they are gone from the place."""
        while self._noted:
            self._ledger.forget_replay(self._noted.pop())

    def _append(self, rows: pa.RecordBatch, table: BigQueryTable, shape: Shape, name: str) -> Refusals:
        entry = self._ledger.find_replay(name)
        if entry is None:
            refused, wrote = self._write(rows, table, shape, name)
            if not wrote:
                return refused
            entry = ReplayEntry(stream=wrote, refused=tuple(refused))
            self._ledger.note_replay(name, entry)
        if not entry.committed:
            BigQueryWriter(self._target, table).commit([entry.stream], entry=replay_path(name))
            self._ledger.note_replay(name, entry.model_copy(update={"committed": True}))
        self._noted.append(name)
        return list(entry.refused)

    def _write(self, rows: pa.RecordBatch, table: BigQueryTable, shape: Shape, name: str) -> tuple[Refusals, str]:
        """Writes rows; returns which were refused, and the stream or the table that they are in, if any."""
        into = rows_into(self._target, table, shape, name, self._spool.schema)
        refused: Refusals = []
        first = 0
        for piece in pieces_of(rows, PIECE):
            refused += [(first + index, why) for index, why in into.take(piece)]
            first += piece.num_rows
        return refused, into.end()

    def tried(self, table: str, *, left: int) -> None:
        """Lets the sink go on with a table that was stopped and is repaired.

        Where columns are merged one by one, not before its last letter is through: what comes later must not pass it.
        """
        if table in self._repaired and not (left and self._shape.mode == MERGE_LOAD):
            self._tables.resume(table)
            report = report_of(self._spool, CONSUMER)
            if table in report.stopped:
                tell(self._spool, CONSUMER, report.without(table))


_LATE = "later changes of its row are in the table: see what it lacks, and remove this letter"


def _name(rows: pa.RecordBatch, table: BigQueryTable) -> str:
    """Of these rows in this table: the same for the same."""
    digest = blake2b(f"{table.dataset}.{table.name}\n".encode(), digest_size=16)
    for uuid in rows.column("uuid").to_pylist():
        digest.update(uuid.encode())
    return f"letters_{digest.hexdigest()}"
