"""The rows of an epoch for the tasks of every sink: as they are in the spool, or whole (``source.complete_rows``)."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from connector.config.sections import SourceConfig
from connector.core.column_kinds import SpannerType
from connector.errors import NoSuchTableError, VersionRetentionError
from connector.snapshot.queries import TableQuery
from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.storage.store import contents
from spark_sink.errors import SinkError
from spark_sink.sink.completing.row_keys import Key, Kinds, row_key
from spark_sink.sink.completing.whole_rows import Found, Read, Values, WholeRows, applied, completed, decoded, kept

COMPLETED_ROWS = "completed"
"""The folder of a spool in which a sink with the name of its type keeps completed rows."""

_NEEDED = {
    *("project", "instance", "database", "change_stream", "database_role", "endpoint", "emulator_host"),
    *("rpc_priority", "skip_transaction_tags"),
}
"""The options of the source by which rows are read."""


@dataclass(frozen=True, slots=True)
class Completion:
    """How a task completes rows; small, as it is part of Spark's tasks.

    Attributes:
        source: the section ``source`` of the configuration, as JSON.
        emulator_host: an emulator's address, or empty.
    """

    source: str
    emulator_host: str

    @classmethod
    def of(cls, source: SourceConfig) -> "Completion | None":
        """What the configuration asks for; None where rows are not completed."""
        if not source.complete_rows:
            return None
        return cls(
            source.model_dump_json(include=_NEEDED), source.emulator_host or os.environ.get("SPANNER_EMULATOR_HOST", "")
        )

    def to_text(self) -> str:
        """The text of an option of a source."""
        return orjson.dumps({"source": self.source, "emulator_host": self.emulator_host}).decode()

    @classmethod
    def from_text(cls, text: str) -> "Completion | None":
        """Reads what :meth:`to_text` wrote; None for an empty text."""
        return cls(**orjson.loads(text)) if text else None


@dataclass(slots=True)
class EpochRows:
    """Reads the rows of epochs.

    Attributes:
        spool: where the epochs are.
        completion: how rows are completed, or None.
        kept_in: the folder of the spool in which what was read is kept, so that a replay has the same rows although
            Spanner may no longer keep them; empty where it is not kept.
        incomplete: by table, how many rows so far lack columns, because Spanner does not keep them any more.
    """

    spool: Spool
    completion: Completion | None
    kept_in: str = ""
    incomplete: Counter[str] = field(default_factory=Counter)
    _reader: "SpannerRows | None" = None

    def batches(self, file: SegmentFile, tables: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of an epoch in commit order, or those of some tables.

        Raises:
            SpoolError: the spool cannot be read.
            UnreachableError: Spanner cannot be reached.
            StreamError: Spanner does not allow to read the tables.
        """
        if self.completion is None:
            yield from self.spool.batches(file)
            return
        batches = [_of(tables, batch) for batch in self.spool.batches(file)]
        if not any(batch.num_rows for batch in batches):
            return
        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        whole = self._kept(file, rows) if self.kept_in else self._completed(self.completion, rows)
        self.incomplete.update(whole.incomplete)
        yield whole.rows

    def _completed(self, completion: Completion, rows: pa.RecordBatch) -> WholeRows:
        if self._reader is None:
            self._reader = SpannerRows(completion)
        return completed(rows, self.spool.schema, self._reader.read, at_own_commit=self._reader.skips_changes)

    def _kept(self, file: SegmentFile, rows: pa.RecordBatch) -> WholeRows:
        """The rows as the first attempt completed them, whichever that was."""
        assert self.completion is not None
        storage, path = self.spool.storage, f"{self.kept_in}/{file.path.rpartition('/')[2]}"
        known = contents(storage, path)
        if known is None:
            whole = self._completed(self.completion, rows)
            changed = kept(whole.rows)
            if changed is None:
                return whole
            try:
                storage.create(path, _packed(changed))
            except FileExistsError:
                known = contents(storage, path)
            if known is None:
                return whole
        with pa.ipc.open_file(pa.py_buffer(known)) as read:
            return applied(rows, read.get_batch(0))


def forget_completed(spool: Spool, *, before: int, kept_in: str = COMPLETED_ROWS) -> None:
    """Deletes what is kept in a folder of the rows of epochs before that one, which are delivered."""
    names = spool.storage.list(kept_in, end=f"{before:020d}")
    spool.storage.delete(*(f"{kept_in}/{name}" for name in names))


def _packed(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        file.write_batch(rows)
    return sink.getvalue()


def _of(tables: Collection[str] | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    if tables is None:
        return batch
    return batch.filter(pc.is_in(batch.column("object"), value_set=pa.array(sorted(tables), pa.string())))


@dataclass(slots=True)
class SpannerRows:
    """Reads rows of tables by their keys; a table or a column that does not exist at a timestamp has no rows there."""

    completion: Completion
    _source: SourceConfig = field(init=False)
    _suspects: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By table, the columns that it did not have lately; each is asked for alone first, because it may exist by now."""
    _expired: int = 0
    """The newest timestamp, in nanoseconds since 1970, of which Spanner was found to keep no rows any more."""

    def __post_init__(self) -> None:
        self._source = SourceConfig.model_validate_json(self.completion.source)

    @property
    def skips_changes(self) -> bool:
        """Whether the spool lacks changes of the tables, so that a row may have changed since an epoch's last one."""
        return bool(self._source.skip_transaction_tags)

    def read(self, read: Read) -> Found:
        """The rows; empty where Spanner does not keep them any more, or where the table does not exist.

        Raises:
            SpannerCdcError: any other error, which may pass: nothing follows from it.
        """
        if read.at <= self._expired:
            return Found()
        try:
            return self._read(read)
        except VersionRetentionError:
            self._expired = max(self._expired, read.at)
            return Found()

    def _read(self, read: Read) -> Found:
        suspects = self._suspects[read.table]
        suspects -= {name for name in suspects.intersection(read.columns) if self._exists(read, name)}
        try:
            return self._without(read, suspects)
        except NoSuchTableError:
            if not self._exists(read):
                return Found()
        suspects |= {name for name in read.columns if name not in suspects and not self._exists(read, name)}
        return self._without(read, suspects)

    def _without(self, read: Read, gone: AbstractSet[str]) -> Found:
        """The rows without these columns, which the table does not have as of the timestamp."""
        rows = self._rows(read, tuple(name for name in read.columns if name not in gone), read.keys)
        return Found(rows, frozenset(read.columns) & gone)

    def _exists(self, read: Read, *names: str) -> bool:
        """Whether the table, and these columns of it, exist as of the timestamp."""
        try:
            self._rows(read, names, read.keys[:1])
        except NoSuchTableError:
            return False
        return True

    def _rows(self, read: Read, columns: tuple[str, ...], keys: tuple[str, ...]) -> dict[Key, Values]:
        from connector.snapshot.reading import read_keys  # Spanner's client takes longer to load than all else together

        rows: dict[Key, Values] = {}
        kinds: Kinds = {}
        query = TableQuery(read.table, (*read.key_columns, *columns))
        for block in read_keys(
            self._source,
            self.completion.emulator_host or None,
            query,
            pa.array(keys, pa.string()),
            read.key_columns,
            read.at,
            rpc_priority=self._source.rpc_priority,
        ):
            of_keys, values = block.payloads(read.key_columns), block.payloads(columns)
            kinds = {column.name: SpannerType.parse(column.type).kind for column in block.columns}
            for key, row in zip(of_keys.to_pylist(), values.to_pylist(), strict=True):
                rows[row_key(orjson.loads(key), read.key_columns, kinds)] = decoded(row)
        if rows and all(row_key(orjson.loads(key), read.key_columns, kinds) not in rows for key in keys):
            raise SinkError(
                f"rows of table {read.table} were read by their keys, and none has a key that was requested",
                hint="Report this with the types of the table's key; without source.complete_rows nothing is read.",
            )
        return rows
