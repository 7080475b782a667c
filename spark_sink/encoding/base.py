"""How rows become the bytes of a file: what the file sink writes, whatever the destination.

The bytes of a file depend on its rows and its path alone, so that a replay writes the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from connector.core.byte_columns import bytes_of, ends_of
from connector.core.changes import Int64s
from connector.core.schemas import TableSchema
from connector.envelope.events import EventWriter
from connector.errors import EventError


@dataclass(frozen=True, slots=True)
class Series:
    """What all rows of a file share; ``schema`` is the table's, which a table of the default schema is not named by."""

    table: str
    schema_key: str
    read_method: str
    schema: str = ""

    @property
    def folder(self) -> str:
        """The name of the table's folder, which Datastream calls the object."""
        return f"{self.schema}_{self.table.rpartition('.')[2]}"


class EncodedRows:
    """Rows as bytes, one after another.

    Args:
        data: the rows.
        ends: where each row ends in ``data``.
    """

    def __init__(self, data: bytes | memoryview, ends: Int64s) -> None:
        self._data = memoryview(data)
        self._ends = ends

    @classmethod
    def of(cls, rows: pa.BinaryArray) -> "EncodedRows":
        """Of a column that holds each row's bytes."""
        return cls(bytes_of(rows), ends_of(rows))

    @classmethod
    def joined(cls, some: Sequence["EncodedRows"]) -> "EncodedRows":
        """Of others, one after another."""
        if len(some) == 1:
            return some[0]
        lengths = [np.diff(rows.ends, prepend=0) for rows in some]
        ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]))
        return cls(b"".join(rows.between(0, len(rows)) for rows in some), ends)

    @property
    def ends(self) -> Int64s:
        """Where each row ends."""
        return self._ends

    def __len__(self) -> int:
        return len(self._ends)

    def fitting(self, first: int, room: int) -> int:
        """The row after the last one that ends within ``room`` bytes of the beginning of row ``first``."""
        return max(first, int(np.searchsorted(self._ends, self._start(first) + room, side="right")))

    def between(self, first: int, stop: int) -> memoryview:
        """The bytes of the rows from ``first`` up to but without ``stop``."""
        return self._data[self._start(first) : self._start(stop)]

    def _start(self, row: int) -> int:
        return int(self._ends[row - 1]) if row else 0


def unfit_payloads(payloads: pa.Array, convert: Callable[[str], object]) -> dict[int, str]:
    """The payloads that a conversion refuses, by their index, and why."""
    found: dict[int, str] = {}
    for index, text in enumerate(payloads.to_pylist()):
        try:
            convert(text)
        except EventError as error:
            found[index] = str(error)
    return found


class Encoding(Protocol):
    """A format of files."""

    @property
    def ending(self) -> str:
        """Of the files' names, without the dot."""

    @property
    def gzipped(self) -> bool:
        """Whether the whole file is compressed after it was encoded."""

    @property
    def needs_before(self) -> bool:
        """Whether the rows need their old values."""

    def header(self, series: Series, path: str) -> bytes:
        """What stands at the beginning of a file; ``path`` is relative to the root."""

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """Rows of the envelope's columns, all of one series.

        Raises:
            TableRefusedError: the format cannot hold this table.
            EventError, SinkError, ValueError: it cannot hold one of the rows.
            SpoolError: the table's schema cannot be read.
        """

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """Rows whose values cannot be encoded, by their index, and why; found quicker than by :meth:`encode`.

        What this does not look at may keep others from it.
        """

    def framed(self, rows: EncodedRows, first: int, stop: int, path: str) -> bytes | memoryview:
        """The rows from ``first`` up to but without ``stop``, as they stand in the file at ``path``."""

    def framed_size(self, rows: EncodedRows, first: int, stop: int) -> int:
        """The bytes of :meth:`framed`, before any compression."""


def with_object(rows: pa.RecordBatch, series: Series, object_names: str) -> pa.RecordBatch:
    """The rows, their objects named as is wished."""
    if object_names == "table":
        return rows
    names = pa.repeat(pa.scalar(series.folder, pa.string()), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index("object"), "object", names)


class JsonLines:
    """One JSON object a line.

    Args:
        schema_of: the schema that a schema key names.
        gzip: whether files are compressed.
        sort_fields: whether the source metadata ends with those that the Dataflow templates sort by.
        object_names: ``table``, or ``schema_table``, the folder's name.
    """

    needs_before = False

    def __init__(
        self,
        schema_of: Callable[[str], TableSchema],
        *,
        gzip: bool,
        sort_fields: bool = True,
        object_names: str = "table",
    ) -> None:
        self._events = EventWriter(schema_of, sort_fields=sort_fields)
        self._object_names = object_names
        self.gzipped = gzip
        self.ending = "jsonl.gz" if gzip else "jsonl"

    def header(self, series: Series, path: str) -> bytes:
        """Nothing."""
        return b""

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """Each row's line."""
        return EncodedRows.of(self._events.encoded(with_object(rows, series, self._object_names)))

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """Those whose payload cannot be written."""
        return unfit_payloads(rows.column("payload"), lambda text: self._events.payload(text, series.schema_key))

    def framed(self, rows: EncodedRows, first: int, stop: int, path: str) -> memoryview:
        """The rows themselves."""
        return rows.between(first, stop)

    def framed_size(self, rows: EncodedRows, first: int, stop: int) -> int:
        """The rows' own."""
        return len(rows.between(first, stop))
