"""The write streams of the BigQuery double: pending streams, whose rows appear all at once when they are committed."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import grpc
from google.cloud.bigquery_storage_v1.types import StorageError, WriteStream

from emulator.bigquery.catalog import Catalog, StoredTable
from emulator.bigquery.contents import Row
from emulator.bigquery.refusals import StorageCode, WriteError, unwritable
from emulator.bigquery.schema import to_storage

DEFAULT = "_default"
_TABLE = re.compile(r"projects/([^/]+)/datasets/([^/]+)/tables/([^/]+)")
_STREAM = re.compile(rf"({_TABLE.pattern})/streams/([^/]+)")


class StreamName(NamedTuple):
    """A stream's full name in parts: its table's full name, the dataset, the table, and what follows `streams/`."""

    parent: str
    dataset: str
    table: str
    id: str


class PendingStream:
    """A pending stream: its rows until they are committed, and how many were appended.

    Its `lock` is held while an append is checked and takes place.
    """

    def __init__(self, name: str, table: StoredTable, created: datetime) -> None:
        self.name = name
        self.table = table
        self.created = created
        self.rows: list[Row] = []
        self.count = 0
        self.finalized = False
        self.expired = False
        self.committed: datetime | None = None
        self.lock = threading.Lock()

    def check_append(self, offset: int | None) -> None:
        """Raises WriteError if the stream is finalized, or `offset` is not its end."""
        if self.finalized or self.committed is not None:
            raise unwritable(f"Stream has been finalized. Entity: {self.name}", StorageCode.STREAM_FINALIZED)
        if offset is None or offset == self.count:
            return
        place = f"expected offset {self.count}, received {offset}. Entity: {self.name}"
        if offset < self.count:
            raise WriteError(
                grpc.StatusCode.ALREADY_EXISTS,
                f"The offset is within stream, {place}",
                StorageCode.OFFSET_ALREADY_EXISTS,
            )
        raise WriteError(
            grpc.StatusCode.OUT_OF_RANGE, f"The offset is beyond stream, {place}", StorageCode.OFFSET_OUT_OF_RANGE
        )


class Streams:
    """The pending streams; may be called from many threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._pending: dict[str, PendingStream] = {}
        self._numbers = itertools.count(1)

    def parse(self, name: str) -> StreamName:
        """Parses a stream's name; raises WriteError if it is not valid or of another project."""
        match = _STREAM.fullmatch(name)
        if match is None:
            raise unwritable(f"Invalid stream name. Entity: {name}")
        parent, project, dataset, table, identifier = match.groups()
        self._check_project(project)
        return StreamName(parent, dataset, table, identifier)

    def create(self, parent: str, wanted: WriteStream) -> WriteStream:
        """Creates a pending stream."""
        table = self._table(parent)
        if wanted.type_ != WriteStream.Type.PENDING:
            raise WriteError(
                grpc.StatusCode.UNIMPLEMENTED,
                "The double supports only pending streams",
                StorageCode.INVALID_STREAM_TYPE,
            )
        stream = PendingStream(f"{parent}/streams/s{next(self._numbers)}", table, self._catalog.now())
        with self._catalog.lock:
            self._pending[stream.name] = stream
        shown = self._shown(stream)
        shown.table_schema = to_storage(table.schema)
        return shown

    def get(self, name: str) -> WriteStream:
        """A stream, the default one included."""
        parts = self.parse(name)
        if parts.id != DEFAULT:
            return self._shown(self.pending(name))
        table = self._catalog.table(parts.dataset, parts.table)
        return WriteStream(
            name=name, type_=WriteStream.Type.COMMITTED, create_time=table.created, commit_time=table.created
        )

    def pending(self, name: str) -> PendingStream:
        """Returns a pending stream; raises an error if it does not exist or has expired, or its table is gone."""
        parts = self.parse(name)
        stream = self._pending.get(name)
        if stream is None or stream.expired:
            raise WriteError(
                grpc.StatusCode.NOT_FOUND,
                f"Requested entity was not found. Entity: {name}",
                StorageCode.STREAM_NOT_FOUND,
            )
        self._catalog.table(parts.dataset, parts.table)
        if not self._catalog.holds(stream.table):
            raise WriteError(
                grpc.StatusCode.NOT_FOUND, f"Table was deleted. Entity: {name}", StorageCode.TABLE_NOT_FOUND
            )
        return stream

    def finalize(self, name: str) -> int:
        """Finalizes a stream and returns how many rows it has; may be repeated."""
        if self.parse(name).id == DEFAULT:
            raise unwritable(f"The default stream is not finalized. Entity: {name}", StorageCode.INVALID_STREAM_TYPE)
        stream = self.pending(name)
        with stream.lock:
            stream.finalized = True
            return stream.count

    def commit(self, parent: str, names: Sequence[str]) -> tuple[datetime | None, list[StorageError]]:
        """Commits streams of one table, all at once; returns when, or else None and the errors."""
        table = self._table(parent)
        if not names or len(set(names)) < len(names):
            raise unwritable("The streams to commit are none, or one is named twice")
        if others := [name for name in names if self.parse(name).parent != parent]:
            raise unwritable(f"The stream is not of the table {parent}. Entity: {others[0]}")
        with self._catalog.lock:
            if errors := [error for name in names if (error := self._why_not(name, table)) is not None]:
                return None, errors
            now = self._catalog.now()
            for name in names:
                stream = self._pending[name]
                stream.committed = now
                table.contents.append(stream.rows, now)
                stream.rows = []
            return now, []

    def expire(self, name: str, *, forgotten: bool = False) -> None:
        """Expires a stream; with `forgotten` it is as if it had never existed."""
        with self._catalog.lock:
            self._pending[name].expired = True
            if forgotten:
                del self._pending[name]

    def names(self) -> list[str]:
        """Returns the names of the streams that are neither committed nor expired."""
        with self._catalog.lock:
            return [name for name, stream in self._pending.items() if not (stream.committed or stream.expired)]

    def _why_not(self, name: str, table: StoredTable) -> StorageError | None:
        stream = self._pending.get(name)
        if self.parse(name).id == DEFAULT:
            code, message = StorageCode.INVALID_STREAM_TYPE, "Stream must be created in pending mode"
        elif stream is None or stream.table is not table:
            code, message = StorageCode.STREAM_NOT_FOUND, "Stream is not found"
        elif stream.committed is not None:
            code, message = StorageCode.STREAM_ALREADY_COMMITTED, "Stream is already committed"
        elif stream.expired:
            code, message = StorageCode.INVALID_STREAM_STATE, "Stream is garbage collected"
        elif not stream.finalized:
            code, message = StorageCode.INVALID_STREAM_STATE, "Stream is not finalized"
        else:
            return None
        return StorageError(code=code, entity=name, error_message=message)

    def _table(self, parent: str) -> StoredTable:
        match = _TABLE.fullmatch(parent)
        if match is None:
            raise unwritable(f"Invalid table name. Entity: {parent}")
        project, dataset, table = match.groups()
        self._check_project(project)
        return self._catalog.table(dataset, table)

    def _check_project(self, project: str) -> None:
        if project != self._catalog.project:
            raise WriteError(
                grpc.StatusCode.PERMISSION_DENIED, f"Permission denied on project {project} (or it may not exist)."
            )

    def _shown(self, stream: PendingStream) -> WriteStream:
        return WriteStream(
            name=stream.name,
            type_=WriteStream.Type.PENDING,
            write_mode=WriteStream.WriteMode.INSERT,
            create_time=stream.created,
            commit_time=stream.committed,
            location=self._catalog.datasets[stream.table.dataset]["location"],
        )
