"""Writes events as Datastream writes them to Cloud Storage: files in a folder for each table and minute.

A file is ``{schema}_{table}/{yyyy}/{mm}/{dd}/{hh}/{minute}/{schema_key}_{read_method}_{spool}_{epoch}_{n}.jsonl``
below the root, with the time of the commits in UTC, the first epoch of its group, and n counting the table's files
there. It ends at a size, and if the table's schema or the read method changes. Rows go from the Arrow segments to the
file in commit order; of a minute only a record batch and the rows that wait to be encoded are in memory.

A file appears at its destination whole or not at all: it is started under its path, written in order, and published,
which gives it its name. A replay writes the same bytes (:mod:`spark_sink.encoding.file_format`) under the same name, so
that no state is needed to make it idempotent.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from connector.core.schemas import TableSchema
from connector.core.timestamps import MINUTE, format_rfc3339
from connector.spool.reading import Spool
from connector.spool.storage.opening import open_store
from connector.spool.storage.store import FileStore, PendingFile
from spark_sink.encoding.avro import Avro
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series
from spark_sink.encoding.jsonl import JsonLines
from spark_sink.encoding.opencdc import OpenCdc
from spark_sink.errors import DestinationUnavailableError, SinkError, TableRefusedError
from spark_sink.sinks.files.dead_letter_files import TableDeadLetters, dead_letter_prefix
from spark_sink.sinks.files.plan import FileGroup, FileOptions
from spark_sink.sinks.shared.completing.epoch_rows import COMPLETED_ROWS, EpochRows
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from spark_sink.sinks.shared.completing.whole_rows import with_mark
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.shared.row_encoding import encode_rows
from spark_sink.sinks.shared.row_slices import by_table, size_of, slices_of

_OPEN_FILES = 100
"""Files of different tables that are open at a time; compressed bytes depend on it."""

_SLICE = 8 * 1024 * 1024
"""Bytes of a table's rows that are encoded at once, also of several epochs; Avro's blocks depend on it."""

_LONGEST = 255
"""The most bytes of a part of a path; a named schema and a table may have 128 characters each."""

_WAITING = 64 * 1024 * 1024
"""Bytes of all tables' rows that wait to be encoded."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        path: relative to the root.
        rows: how many events it holds.
        bytes: its size there.
        table: its table, by the name in the source.
    """

    path: str
    rows: int
    bytes: int
    table: str = ""


def destination_at(root: str, endpoint: str = "") -> FileStore:
    """The store that ``sink.path`` names.

    Args:
        root: a folder of the local disk, or ``gs://bucket/prefix``.
        endpoint: a Cloud Storage emulator's address, or empty.

    Raises:
        SinkError: the extra ``gcs`` is not installed.
    """
    return open_store(
        root, failure=SinkError, unavailable=DestinationUnavailableError, option="sink.path", endpoint=endpoint
    )


class FileWriter:
    """Writes the files of groups of epochs.

    Args:
        spool: where the epochs are.
        spool_id: the spool's own id.
        destination: where files go.
        options: the options that decide names and bytes.
        dead_letters: the store of events that cannot be encoded.
        completion: how rows are completed, or None.
        kept_in: the folder of the spool in which completed rows are kept.
    """

    def __init__(
        self,
        spool: Spool,
        spool_id: str,
        destination: FileStore,
        options: FileOptions,
        dead_letters: DeadLetters,
        completion: Completion | None = None,
        kept_in: str = COMPLETED_ROWS,
    ) -> None:
        self._epochs = EpochRows(spool, completion, kept_in)  # a replay has to write the same bytes
        self.incomplete = self._epochs.incomplete
        """The events that lack columns, by table, of the groups that were written."""
        self._spool_id = spool_id
        self._destination = destination
        self._options = options
        self._dead_letters = dead_letters
        self.rejected: list[TaskReport] = []
        """The reports of rejected events of the groups that were written."""
        self.encoding = _encoding_of(options, spool.schema)
        self._schemas = _avro(options, spool.schema, deflate=False)
        self._described: set[str] = set()

    def write(self, group: FileGroup) -> Iterator[WrittenFile]:
        """Writes a group's files; each is durable when it is yielded.

        Raises:
            SinkError: the destination refuses; unfinished files leave nothing behind.
            SpoolError: the spool cannot be read.
        """
        batches = (batch for segment in group.segments for batch in self._epochs.batches(segment))
        first = group.first_epoch
        dead_letters = dead_letter_prefix(self._spool_id, first)
        return self.write_rows(batches, group.minute, f"{self._spool_id}_{first}", dead_letters, first)

    def write_rows(
        self, batches: Iterable[pa.RecordBatch], minute: int, stem: str, dead_letters: str, first: int
    ) -> Iterator[WrittenFile]:
        """Writes rows of one minute; as :meth:`write`.

        Args:
            batches: the rows, in commit order.
            minute: since 1970.
            stem: of the files' names; equal for the same rows.
            dead_letters: what the names of their dead-letter files begin with.
            first: the first epoch, for reports.
        """
        tables: dict[str, _TableFiles] = {}
        output = _Output(self._destination, self.encoding, self._options.rotate_bytes)
        with ExitStack() as undo:
            for batch in map(self.marked, batches):
                if not self.encoding.needs_before:
                    batch = batch.drop_columns(["before"])  # it would stay in memory until the rows are encoded
                for series, rows in by_series(batch):
                    files = tables.get(series.table)
                    if files is None:
                        rejected = TableDeadLetters(self._dead_letters, series.table, dead_letters, first, _SLICE)
                        files = tables[series.table] = _TableFiles(output, _folder(rows, minute), stem, rejected)
                        undo.callback(files.abandon)
                    files.extend(series, rows)
                if sum(files.waiting for files in tables.values()) > _WAITING:
                    for files in tables.values():
                        files.encode()
            for files in tables.values():
                files.encode()
            for files in tables.values():
                of_table = files.dead_letters.finish()
                if of_table is not None:
                    self.rejected.append(of_table)
                if self._options.schema_files:
                    self._write_schemas(files)
                yield from files.finish()

    def marked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the field that says whether they are complete, if the options ask for it."""
        return with_mark(rows) if self._options.complete_rows else rows

    def _write_schemas(self, files: "_TableFiles") -> None:
        """Writes the Avro schema of each schema key into the table's folder; repeating it writes the same bytes."""
        table = files.folder.partition("/")[0]
        for key, series in files.described.items():
            if key not in self._described:
                with suppress(TableRefusedError):  # which `check` reports; its events are dead letters, or JSON
                    self._destination.put(f"{table}/{self._options.schema_name(key)}", self._schemas.schema(series))
                self._described.add(key)


def _schema(rows: pa.RecordBatch) -> str:
    """The schema of the rows' table."""
    name: str = rows.column("source_metadata")[0]["schema"].as_py()
    return name


def _folder(rows: pa.RecordBatch, minute: int) -> str:
    """The folder of a table's files of a minute."""
    name = f"{_schema(rows)}_{rows.column('source_metadata').field('table')[0].as_py()}"
    time = format_rfc3339(minute * MINUTE)
    return "/".join((_safe(name), time[0:4], time[5:7], time[8:10], time[11:13], time[14:16]))


@dataclass(slots=True)
class _Output:
    """The state that the files of all tables of a group share; bounds how many of them are open."""

    destination: FileStore
    encoding: Encoding
    rotate_bytes: int
    _in_use: "dict[str, _TableFiles]" = field(default_factory=dict)  # by folder; the least recently used first

    def use(self, files: "_TableFiles") -> None:
        """Marks a table's file as used; the least recently used one beyond the bound rests."""
        self._in_use.pop(files.folder, None)
        self._in_use[files.folder] = files
        if len(self._in_use) > _OPEN_FILES:
            self._in_use.pop(next(iter(self._in_use))).rest()


class _TableFiles:
    """A table's files of one group: one is open, the others are complete and wait for their names.

    Rows are encoded many at a time, because few cost as much. ``waiting`` is how many bytes wait to be encoded.
    """

    def __init__(self, output: _Output, folder: str, stem: str, dead_letters: TableDeadLetters) -> None:
        self.folder = folder
        self.dead_letters = dead_letters  # complete once all rows were encoded
        self.waiting = 0
        self.described: dict[str, Series] = {}  # by schema key
        self._output = output
        self._stem = stem
        self._rows: list[pa.RecordBatch] = []
        self._series: Series | None = None
        self._file: _OpenFile | None = None
        self._done: list[tuple[PendingFile, WrittenFile]] = []

    def extend(self, series: Series, rows: pa.RecordBatch) -> None:
        """Adds rows; rows of another series start a new file."""
        if series != self._series:
            self.encode()
            self._close()
            self._series = series
            self.described.setdefault(series.schema_key, series)
        self._rows.append(rows)
        self.waiting += size_of(rows)
        if self.waiting >= _SLICE:
            self.encode()

    def encode(self) -> None:
        """Writes the rows that wait."""
        if self._series is None or not self._rows:
            return
        self._output.use(self)
        rows = pa.Table.from_batches(self._rows).combine_chunks()
        self._rows, self.waiting = [], 0
        for batch in rows.to_batches():
            for part in slices_of(batch, _SLICE):
                result = encode_rows(self._output.encoding, self._series, part)
                self.dead_letters.add(part, result)
                self._write(self._series, result.rows)

    def _write(self, series: Series, rows: EncodedRows) -> None:
        first = 0
        while first < len(rows):
            if self._file is None:
                self._file = self._begin(series)
            stop = rows.fitting(first, self._output.rotate_bytes - self._file.size)
            if stop == first and self._file.rows:
                self._close()
                continue
            stop = max(stop, first + 1)
            self._file.append(rows, first, stop)
            first = stop

    def rest(self) -> None:
        """Closes the open file until the next rows."""
        if self._file is not None:
            self._file.rest()

    def finish(self) -> Iterator[WrittenFile]:
        """Gives every file its name."""
        self._close()
        if self._done:
            self._output.destination.make_folder(self.folder)
        while self._done:
            pending, written = self._done[0]
            pending.publish()
            del self._done[0]
            yield written

    def abandon(self) -> None:
        """Removes the files that have no name yet."""
        opened = [] if self._file is None else [self._file.pending]
        for pending in (*opened, *(pending for pending, _ in self._done)):
            pending.abandon()

    def _begin(self, series: Series) -> "_OpenFile":
        number = len(self._done)
        name = f"{series.schema_key}_{_safe(series.read_method)}_{self._stem}_{number}.{self._output.encoding.ending}"
        path = f"{self.folder}/{name}"
        return _OpenFile(self._output.destination.begin(path), path, self._output.encoding, series)

    def _close(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            file.rest()
        except BaseException:
            file.pending.abandon()
            raise
        self._done.append((file.pending, WrittenFile(file.path, file.rows, file.stored, file.table)))


class _OpenFile:
    """A file that is being written; ``size`` counts what was appended before compression, ``stored`` after it."""

    def __init__(self, pending: PendingFile, path: str, encoding: Encoding, series: Series) -> None:
        self.path = path
        self.table = series.table
        self.rows = 0
        self.size = self.stored = 0
        self.pending = pending
        self._encoding = encoding
        self._member: zlib._Compress | None = None
        try:
            header = encoding.header(series, path)
            self.size = len(header)
            self._append(header)
        except BaseException:
            pending.abandon()
            raise

    def append(self, rows: EncodedRows, first: int, stop: int) -> None:
        """Adds the rows from ``first`` up to but without ``stop``."""
        self._append(self._encoding.framed(rows, first, stop, self.path))
        self.size += self._encoding.framed_size(rows, first, stop)
        self.rows += stop - first

    def rest(self) -> None:
        """Releases what it holds open; a compressed file continues with another gzip member."""
        if self._member is not None:
            member, self._member = self._member, None
            self._store(member.flush())
        self.pending.rest()

    def _append(self, data: bytes | memoryview) -> None:
        if not self._encoding.gzipped:
            self._store(data)
            return
        if self._member is None:
            self._member = zlib.compressobj(6, wbits=16 + zlib.MAX_WBITS)  # a gzip member without a time
        compressed = self._member.compress(data)
        if compressed:
            self._store(compressed)

    def _store(self, data: bytes | memoryview) -> None:
        self.pending.append(data)
        self.stored += len(data)


def _encoding_of(options: FileOptions, schema_of: Callable[[str], TableSchema]) -> Encoding:
    match options.format:
        case "avro":
            return _avro(options, schema_of, deflate=options.gzip)
        case "opencdc-jsonl":
            return OpenCdc.lines(schema_of, gzip=options.gzip)
        case "opencdc-protobuf":
            return OpenCdc.messages(schema_of, gzip=options.gzip)
        case _:
            return JsonLines(
                schema_of,
                gzip=options.gzip,
                sort_fields=options.sort_fields,
                completes=options.complete_rows,
                object_names=options.object_names,
            )


def _avro(options: FileOptions, schema_of: Callable[[str], TableSchema], *, deflate: bool) -> Avro:
    return Avro(
        schema_of,
        deflate=deflate,
        timestamps=options.timestamps,
        sort_fields=options.sort_fields,
        completes=options.complete_rows,
        exact_keys=options.exact_keys,
        object_names=options.object_names,
        arrays=options.arrays,
    )


def by_series(batch: pa.RecordBatch) -> Iterator[tuple[Series, pa.RecordBatch]]:
    """The rows of a batch by table, and each table's in runs of one schema and read method, in order."""
    for table, rows in by_table(batch):
        schema = _schema(rows)
        if len(pc.unique(rows.column("schema_key"))) == len(pc.unique(rows.column("read_method"))) == 1:
            key, method = rows.column("schema_key")[0].as_py(), rows.column("read_method")[0].as_py()
            yield Series(table, key, method, schema), rows
            continue
        first = 0
        of_rows = zip(rows.column("schema_key").to_pylist(), rows.column("read_method").to_pylist(), strict=True)
        for (key, method), run in groupby(of_rows):
            length = len(list(run))
            yield Series(table, key, method, schema), rows.slice(first, length)
            first += length


def _safe(name: str) -> str:
    """A name that is one part of a path; one that is longer than a disk takes ends with its hash."""
    safe = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    data = safe.encode()
    if len(data) <= _LONGEST:
        return safe
    return f"{data[: _LONGEST - 20].decode(errors='ignore')}~{sha256(name.encode()).hexdigest()[:16]}"
