"""Writes events as Datastream writes them to Cloud Storage: JSON lines in a folder for each table and minute.

A file is ``{schema}_{table}/{yyyy}/{mm}/{dd}/{hh}/{minute}/{schema_key}_{read_method}_{spool}_{epoch}_{n}.jsonl``
below the root, with the time of the commits in UTC, the first epoch of its group, and n counting the table's files
there. It ends at a size, and where the table's schema or the read method changes. Rows go from the Arrow segments to
the file in the order of commits; of a minute there is never more than a record batch in memory.

A file is written under a temporary name, made durable, and renamed, so it appears whole or not at all. A replay
writes the same bytes under the same name; so nothing is asked of the destination, and nothing need be remembered.
"""

import gzip
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from connector.events import EventWriter
from connector.spool import Spool
from connector.timestamps import MINUTE, format_rfc3339
from spark_sink.errors import refused
from spark_sink.minutes import FileGroup, FileShape

_OPEN_FILES = 100
"""Files of different tables that are held open at a time; compressed bytes depend on it."""

_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is there; ``path`` is relative to the root."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Series:
    """What all rows of a file share."""

    table: str
    schema_key: str
    read_method: str


class FileWriter:
    """Writes the files of groups of epochs.

    Args:
        spool: where the epochs are.
        spool_id: the spool's own id.
        root: the folder below which files go.
        shape: the options that decide names and bytes.
    """

    def __init__(self, spool: Spool, spool_id: str, root: Path, shape: FileShape) -> None:
        self._spool = spool
        self._spool_id = spool_id
        self._root = root
        self._shape = shape
        self._events = EventWriter(spool.schema)

    def write(self, group: FileGroup) -> Iterator[WrittenFile]:
        """Writes a group's files; each is there, durably, when it is told of.

        Raises:
            SinkError: the disk refuses; what was not finished leaves nothing behind.
            SpoolError: the spool cannot be read.
        """
        tables: dict[str, _TableFiles] = {}
        in_use: dict[str, _TableFiles] = {}  # the least recently used first
        with ExitStack() as undo:
            for segment in group.segments:
                for batch in self._spool.batches(segment):
                    for series, rows in _by_series(batch):
                        files = tables.get(series.table)
                        if files is None:
                            files = self._table(series.table, rows, group)
                            undo.callback(files.abandon)
                            tables[series.table] = files
                        in_use.pop(series.table, None)
                        in_use[series.table] = files
                        if len(in_use) > _OPEN_FILES:
                            in_use.pop(next(iter(in_use))).rest()
                        files.extend(series, self._events.lines(rows))
            for files in tables.values():
                yield from files.finish()

    def _table(self, table: str, rows: pa.RecordBatch, group: FileGroup) -> "_TableFiles":
        metadata = rows.column("source_metadata")
        schema = metadata.field("schema")[0].as_py()
        name = f"{schema}_{metadata.field('table')[0].as_py()}"
        time = format_rfc3339(group.minute * MINUTE)
        folder = Path(_safe(name), time[0:4], time[5:7], time[8:10], time[11:13], time[14:16])
        return _TableFiles(self._root, folder, f"{self._spool_id}_{group.first_epoch}", self._shape)


class _TableFiles:
    """A table's files of one group: one is open, the others are whole and wait for their names."""

    def __init__(self, root: Path, folder: Path, stem: str, shape: FileShape) -> None:
        self._root = root
        self._folder = folder
        self._stem = stem
        self._shape = shape
        self._series: _Series | None = None
        self._file: _OpenFile | None = None
        self._done: list[tuple[_OpenFile, WrittenFile]] = []

    def extend(self, series: _Series, lines: Iterator[bytes]) -> None:
        """Appends rows, beginning new files where it must."""
        if series != self._series:
            self._close()
            self._series = series
        for line in lines:
            if self._file is not None and self._file.size + len(line) > self._shape.rotate_bytes:
                self._close()
            if self._file is None:
                self._file = self._begin(series)
            self._file.append(line)

    def rest(self) -> None:
        """Gives its descriptor back until the next rows."""
        if self._file is not None:
            self._file.rest()

    def finish(self) -> Iterator[WrittenFile]:
        """Gives every file its name."""
        self._close()
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

    def _begin(self, series: _Series) -> "_OpenFile":
        ending = "jsonl.gz" if self._shape.gzip else "jsonl"
        number = len(self._done)
        name = f"{series.schema_key}_{_safe(series.read_method)}_{self._stem}_{number}.{ending}"
        return _OpenFile(self._root / self._folder / name, compressed=self._shape.gzip)

    def _close(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            file.rest()
        except BaseException:
            file.abandon()
            raise
        path = file.path.relative_to(self._root).as_posix()
        self._done.append((file, WrittenFile(path, file.rows, file.size)))


class _OpenFile:
    """A file under a temporary name; ``size`` counts what was appended, before compression."""

    def __init__(self, path: Path, *, compressed: bool) -> None:
        self.path = path
        self.rows = 0
        self.size = 0
        self._compressed = compressed
        self._stream: BinaryIO | None = None
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in path.parent.glob(f".{path.name}.*.tmp"):  # of a writer that was killed
                leftover.unlink(missing_ok=True)
            descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(path, error) from error
        self._use(os.fdopen(descriptor, "wb", _BUFFER))

    def append(self, line: bytes) -> None:
        """Adds a row."""
        try:
            if self._stream is None:
                self._use(self._temporary.open("ab", _BUFFER))
            self._out.write(line)
        except OSError as error:
            raise refused(self.path, error) from error
        self.rows += 1
        self.size += len(line)

    def rest(self) -> None:
        """Makes what was written durable and gives the descriptor back; what is appended later goes on there."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        try:
            with stream:
                if self._compressed:
                    self._out.close()
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise refused(self.path, error) from error

    def publish(self) -> None:
        """Gives the file its name, durably."""
        try:
            self._temporary.replace(self.path)
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused(self.path, error) from error

    def abandon(self) -> None:
        """Removes it."""
        stream, self._stream = self._stream, None
        self._temporary.unlink(missing_ok=True)
        if stream is not None:
            with suppress(OSError, ValueError):  # the disk that refused a write refuses to flush; the file is gone
                self._out.close()
            with suppress(OSError):
                stream.close()

    def _use(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._out: BinaryIO | gzip.GzipFile = stream
        if self._compressed:
            self._out = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0, compresslevel=6)


def _by_series(batch: pa.RecordBatch) -> Iterator[tuple[_Series, pa.RecordBatch]]:
    """The rows of a batch by table, each table's in runs of one schema and read method, in order."""
    tables = batch.column("object")
    for table in pc.unique(tables).to_pylist():
        rows = batch.filter(pc.equal(tables, table))
        if len(pc.unique(rows.column("schema_key"))) == len(pc.unique(rows.column("read_method"))) == 1:
            yield _Series(table, rows.column("schema_key")[0].as_py(), rows.column("read_method")[0].as_py()), rows
            continue
        keys = rows.column("schema_key").to_pylist()
        methods = rows.column("read_method").to_pylist()
        first = 0
        for index in range(1, rows.num_rows + 1):
            if index == rows.num_rows or (keys[index], methods[index]) != (keys[first], methods[first]):
                yield _Series(table, keys[first], methods[first]), rows.slice(first, index - first)
                first = index


def _safe(name: str) -> str:
    """A name that is one part of a path."""
    name = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return f"%2E{name[1:]}" if name.startswith(".") else name
