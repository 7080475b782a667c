"""Writes events as Datastream writes them to Cloud Storage: files in a folder for each table and minute.

A file is ``{schema}_{table}/{yyyy}/{mm}/{dd}/{hh}/{minute}/{schema_key}_{read_method}_{spool}_{epoch}_{n}.jsonl``
below the root, with the time of the commits in UTC, the first epoch of its group, and n counting the table's files
there. It ends at a size, and where the table's schema or the read method changes. Rows go from the Arrow segments to
the file in the order of commits; of a minute no more is in memory than a record batch and what waits to be encoded.

A file appears at its destination whole or not at all (:mod:`spark_sink.sink.destination`). A replay writes the same
bytes (:mod:`spark_sink.encoding.base`) under the same name; so nothing is asked of the destination, and nothing need be
remembered.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import ends_of
from connector.core.changes import Int64s
from connector.core.schemas import TableSchema
from connector.core.timestamps import MINUTE, format_rfc3339
from connector.spool.reading import Spool
from connector.storage.store import FileStore, PendingFile
from spark_sink.encoding.avro import Avro
from spark_sink.encoding.base import EncodedRows, Encoding, JsonLines, Series
from spark_sink.encoding.opencdc import OpenCdc
from spark_sink.errors import TableRefusedError
from spark_sink.files.plan import FileGroup, FileShape
from spark_sink.sink.dead_letter_files import Refusals, TableLetters, letters_of
from spark_sink.sink.dead_letters import DeadLetters
from spark_sink.sink.sifting import sifted

_OPEN_FILES = 100
"""Files of different tables that are held open at a time; compressed bytes depend on it."""

_PIECE = 8 * 1024 * 1024
"""Bytes of a table's rows that are encoded at once, of several epochs if need be; Avro's blocks depend on it."""

_WAITING = 64 * 1024 * 1024
"""Bytes of all tables' rows that wait to be encoded."""

_ROW = 512
"""Bytes of a row beside its payload, about."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is there; ``path`` is relative to the root."""

    path: str
    rows: int
    bytes: int
    table: str = ""


class FileWriter:
    """Writes the files of groups of epochs.

    Args:
        spool: where the epochs are.
        spool_id: the spool's own id.
        destination: where files go.
        shape: the options that decide names and bytes.
        letters: where events go that cannot be encoded.
    """

    def __init__(
        self, spool: Spool, spool_id: str, destination: FileStore, shape: FileShape, letters: DeadLetters
    ) -> None:
        self._spool = spool
        self._spool_id = spool_id
        self._destination = destination
        self._shape = shape
        self._letters = letters
        self.refusals: list[Refusals] = []
        """What became dead letters of the groups that were written."""
        self.encoding = _encoding_of(shape, spool.schema)
        self._schemas = _avro(shape, spool.schema, deflate=False)
        self._described: set[str] = set()

    def write(self, group: FileGroup) -> Iterator[WrittenFile]:
        """Writes a group's files; each is there, durably, when it is told of.

        Raises:
            SinkError: the destination refuses; what was not finished leaves nothing behind.
            SpoolError: the spool cannot be read.
        """
        batches = (batch for segment in group.segments for batch in self._spool.batches(segment))
        stem, letters = f"{self._spool_id}_{group.first_epoch}", letters_of(self._spool_id, group.first_epoch)
        return self.write_rows(batches, group.minute, stem, letters)

    def write_rows(
        self, batches: Iterable[pa.RecordBatch], minute: int, stem: str, letters: str
    ) -> Iterator[WrittenFile]:
        """Writes rows of one minute; as :meth:`write`.

        Args:
            batches: the rows, in commit order.
            minute: since 1970.
            stem: of the files' names: the same for the same rows.
            letters: what the names of their dead letters begin with.
        """
        tables: dict[str, _TableFiles] = {}
        output = _Output(self._destination, self.encoding, self._shape.rotate_bytes)
        with ExitStack() as undo:
            for batch in batches:
                if not self.encoding.needs_before:
                    batch = batch.drop_columns(["before"])  # it would be held until they are encoded
                for series, rows in by_series(batch):
                    files = tables.get(series.table)
                    if files is None:
                        kept = TableLetters(self._letters, series.table, letters, most=_PIECE, size_of=size_of)
                        files = tables[series.table] = _TableFiles(output, _folder(rows, minute), stem, kept)
                        undo.callback(files.abandon)
                    files.extend(series, rows)
                if sum(files.waiting for files in tables.values()) > _WAITING:
                    for files in tables.values():
                        files.encode()
            for files in tables.values():
                files.encode()
            for files in tables.values():
                refused = files.refused()
                if refused is not None:
                    self.refusals.append(refused)
                if self._shape.schema_files:
                    self._write_schemas(files)
                yield from files.finish()

    def _write_schemas(self, files: "_TableFiles") -> None:
        """The Avro schema of each schema key, in the table's folder; the same bytes whenever it is written again."""
        table = files.folder.partition("/")[0]
        for key, series in files.described.items():
            if key not in self._described:
                with suppress(TableRefusedError):  # which `check` tells; the events are dead letters, or JSON has them
                    self._destination.put(f"{table}/{self._shape.schema_name(key)}", self._schemas.schema(series))
                self._described.add(key)


def _schema(rows: pa.RecordBatch) -> str:
    """The schema of the table that rows are of."""
    name: str = rows.column("source_metadata")[0]["schema"].as_py()
    return name


def _folder(rows: pa.RecordBatch, minute: int) -> str:
    """The folder of a table's files of a minute."""
    name = f"{_schema(rows)}_{rows.column('source_metadata').field('table')[0].as_py()}"
    time = format_rfc3339(minute * MINUTE)
    return "/".join((_safe(name), time[0:4], time[5:7], time[8:10], time[11:13], time[14:16]))


class _Output:
    """What the files of all tables of a group have in common; not too many of them hold something open."""

    def __init__(self, destination: FileStore, encoding: Encoding, rotate_bytes: int) -> None:
        self.destination = destination
        self.encoding = encoding
        self.rotate_bytes = rotate_bytes
        self._in_use: dict[str, _TableFiles] = {}  # by folder; the least recently used first

    def use(self, files: "_TableFiles") -> None:
        """Notes that a table's file is written to; the one that was not for the longest time may have to rest."""
        self._in_use.pop(files.folder, None)
        self._in_use[files.folder] = files
        if len(self._in_use) > _OPEN_FILES:
            self._in_use.pop(next(iter(self._in_use))).rest()


class _TableFiles:
    """A table's files of one group: one is open, the others are whole and wait for their names.

    Rows are encoded when there are many of them, for few cost as much. ``waiting`` is how many bytes wait for that.
    """

    def __init__(self, output: _Output, folder: str, stem: str, letters: TableLetters) -> None:
        self.folder = folder
        self._letters = letters
        self.waiting = 0
        self.described: dict[str, Series] = {}  # by schema key
        self._output = output
        self._stem = stem
        self._rows: list[pa.RecordBatch] = []
        self._series: Series | None = None
        self._file: _OpenFile | None = None
        self._done: list[tuple[_OpenFile, WrittenFile]] = []

    def extend(self, series: Series, rows: pa.RecordBatch) -> None:
        """Appends rows, beginning a new file where they are of another series."""
        if series != self._series:
            self.encode()
            self._close()
            self._series = series
            self.described.setdefault(series.schema_key, series)
        self._rows.append(rows)
        self.waiting += size_of(rows)
        if self.waiting >= _PIECE:
            self.encode()

    def encode(self) -> None:
        """Writes the rows that wait."""
        if self._series is None or not self._rows:
            return
        self._output.use(self)
        rows = pa.Table.from_batches(self._rows).combine_chunks()
        self._rows, self.waiting = [], 0
        for batch in rows.to_batches():
            for piece in pieces_of(batch, _PIECE):
                done = sifted(self._output.encoding, self._series, piece)
                self._letters.take(piece, done)
                self._write(self._series, done.rows)

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
        """Gives back what it holds open until the next rows."""
        if self._file is not None:
            self._file.rest()

    def refused(self) -> Refusals | None:
        """What could not be encoded, once all of it is a dead letter; all rows were encoded before."""
        return self._letters.finish()

    def finish(self) -> Iterator[WrittenFile]:
        """Gives every file its name."""
        self._close()
        if self._done:
            self._output.destination.make_folder(self.folder)
        while self._done:
            file, written = self._done[0]
            file.publish()
            del self._done[0]
            yield written

    def abandon(self) -> None:
        """Removes what has no name yet."""
        for file in (self._file, *(file for file, _ in self._done)):
            if file is not None:
                file.abandon()

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
            file.abandon()
            raise
        self._done.append((file, WrittenFile(file.path, file.rows, file.size, file.table)))


class _OpenFile:
    """A file that is being written; ``size`` counts what was appended, before compression."""

    def __init__(self, pending: PendingFile, path: str, encoding: Encoding, series: Series) -> None:
        self.path = path
        self.table = series.table
        self.rows = 0
        self.size = 0
        self._pending = pending
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
        """Gives back what it holds open; a compressed file goes on with another gzip member."""
        if self._member is not None:
            member, self._member = self._member, None
            self._pending.append(member.flush())
        self._pending.rest()

    def publish(self) -> None:
        """Gives the file its name."""
        self._pending.publish()

    def abandon(self) -> None:
        """Removes it."""
        self._pending.abandon()

    def _append(self, data: bytes | memoryview) -> None:
        if not self._encoding.gzipped:
            self._pending.append(data)
            return
        if self._member is None:
            self._member = zlib.compressobj(6, wbits=16 + zlib.MAX_WBITS)  # a gzip member without a time
        compressed = self._member.compress(data)
        if compressed:
            self._pending.append(compressed)


def _encoding_of(shape: FileShape, schema_of: Callable[[str], TableSchema]) -> Encoding:
    match shape.format:
        case "avro":
            return _avro(shape, schema_of, deflate=shape.gzip)
        case "opencdc-jsonl":
            return OpenCdc.lines(schema_of, gzip=shape.gzip)
        case "opencdc-protobuf":
            return OpenCdc.messages(schema_of, gzip=shape.gzip)
        case _:
            return JsonLines(schema_of, gzip=shape.gzip, sort_fields=shape.sort_fields, object_names=shape.object_names)


def _avro(shape: FileShape, schema_of: Callable[[str], TableSchema], *, deflate: bool) -> Avro:
    return Avro(
        schema_of,
        deflate=deflate,
        timestamps=shape.timestamps,
        sort_fields=shape.sort_fields,
        exact_keys=shape.exact_keys,
        object_names=shape.object_names,
        arrays=shape.arrays,
    )


def by_series(batch: pa.RecordBatch) -> Iterator[tuple[Series, pa.RecordBatch]]:
    """The rows of a batch by table, each table's in runs of one schema and read method, in order."""
    for table, rows in by_table(batch):
        schema = _schema(rows)
        if len(pc.unique(rows.column("schema_key"))) == len(pc.unique(rows.column("read_method"))) == 1:
            key, method = rows.column("schema_key")[0].as_py(), rows.column("read_method")[0].as_py()
            yield Series(table, key, method, schema), rows
            continue
        keys = rows.column("schema_key").to_pylist()
        methods = rows.column("read_method").to_pylist()
        first = 0
        for index in range(1, rows.num_rows + 1):
            if index == rows.num_rows or (keys[index], methods[index]) != (keys[first], methods[first]):
                yield Series(table, keys[first], methods[first], schema), rows.slice(first, index - first)
                first = index


def by_table(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by table, in the order of each one's first row; each table's in their order."""
    tables = batch.column("object")
    different = pc.unique(tables).to_pylist()
    for table in different:
        yield table, batch.filter(pc.equal(tables, table)) if len(different) > 1 else batch


def pieces_of(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows in slices of so many bytes, or of one row that has more."""
    ends = _ends(rows)
    first = 0
    while first < rows.num_rows:
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield rows.slice(first, stop - first)
        first = stop


def size_of(rows: pa.RecordBatch) -> int:
    """The memory that rows take, about; there is at least one."""
    return int(_ends(rows)[-1])


def _ends(rows: pa.RecordBatch) -> Int64s:
    """Where each row ends in the memory that they take, about."""
    ends: Int64s = ends_of(rows.column("payload")) + np.arange(1, rows.num_rows + 1) * _ROW
    if "before" in rows.schema.names:
        ends = ends + ends_of(rows.column("before"))
    return ends


def _safe(name: str) -> str:
    """A name that is one part of a path."""
    name = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return f"%2E{name[1:]}" if name.startswith(".") else name
