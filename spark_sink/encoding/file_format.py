"""The base of the file formats, and their shared parts: rows as bytes, and the series of a file.

The bytes of a file depend only on its rows and its path, so that a replay writes the same bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from connector.core.byte_columns import bytes_of, ends_of
from connector.core.changes import Int64s
from connector.errors import EventError


@dataclass(frozen=True, slots=True)
class Series:
    """The columns that all rows of a file share; ``schema`` is the table's, even where the table's name omits it."""

    table: str
    schema_key: str
    read_method: str
    schema: str = ""

    @property
    def folder(self) -> str:
        """The name of the table's folder; Datastream calls it the object."""
        return f"{self.schema}_{self.table.rpartition('.')[2]}"


class EncodedRows:
    """Rows as bytes, one after another.

    Args:
        data: the rows.
        ends: where each row ends in ``data``.

    Attributes:
        ends: the offset at which each row ends.
    """

    def __init__(self, data: bytes | memoryview, ends: Int64s) -> None:
        self._data = memoryview(data)
        self.ends = ends

    @classmethod
    def of(cls, rows: pa.BinaryArray) -> "EncodedRows":
        """The rows in a column of bytes."""
        return cls(bytes_of(rows), ends_of(rows))

    @classmethod
    def joined(cls, some: Sequence["EncodedRows"]) -> "EncodedRows":
        """Concatenates encoded rows."""
        if len(some) == 1:
            return some[0]
        lengths = [np.diff(rows.ends, prepend=0) for rows in some]
        ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]))
        return cls(b"".join(rows.between(0, len(rows)) for rows in some), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def fitting(self, first: int, room: int) -> int:
        """The end (exclusive) of the rows from ``first`` on that fit into ``room`` bytes; ``first`` if none does."""
        return max(first, int(np.searchsorted(self.ends, self._start(first) + room, side="right")))

    def between(self, first: int, stop: int) -> memoryview:
        """The bytes of the rows from ``first`` to ``stop`` (exclusive)."""
        return self._data[self._start(first) : self._start(stop)]

    def _start(self, row: int) -> int:
        return int(self.ends[row - 1]) if row else 0


def unfit_payloads(payloads: pa.Array, convert: Callable[[str], object]) -> dict[int, str]:
    """The payloads that a conversion rejects, by index, with the reason."""
    found: dict[int, str] = {}
    for index, text in enumerate(payloads.to_pylist()):
        try:
            convert(text)
        except EventError as error:
            found[index] = error.reason
    return found


class Encoding(ABC):
    """A file format; unless it says otherwise, a file is the encoded rows as they are, without a header.

    Attributes:
        ending: the extension of the file names, without the dot.
        gzipped: whether the encoded file is compressed as a whole.
        needs_before: whether encoding needs the old values of the rows.
    """

    ending: str
    gzipped: bool
    needs_before: bool

    def header(self, series: Series, path: str) -> bytes:
        """The first bytes of a file; ``path`` is relative to the root."""
        return b""

    @abstractmethod
    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """Encodes rows of the envelope's columns, all of one series.

        Raises:
            TableRefusedError: the format cannot represent this table.
            EventError, SinkError, ValueError: the format cannot represent one of the rows.
            SpoolError: the table's schema cannot be read.
        """

    @abstractmethod
    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """The rows whose payload cannot be encoded, by index, with the reason; faster than encoding each row.

        It checks payloads only, so :meth:`encode` may reject further rows.
        """

    def framed(self, rows: EncodedRows, first: int, stop: int, path: str) -> bytes | memoryview:
        """The content of the file at ``path`` for the rows from ``first`` to ``stop`` (exclusive)."""
        return rows.between(first, stop)

    def framed_size(self, rows: EncodedRows, first: int, stop: int) -> int:
        """The size of :meth:`framed` in bytes, before compression."""
        return len(rows.between(first, stop))


def with_object(rows: pa.RecordBatch, series: Series, object_names: str) -> pa.RecordBatch:
    """The rows with the object named as the option ``object_names`` says."""
    if object_names == "table":
        return rows
    names = pa.repeat(pa.scalar(series.folder, pa.string()), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index("object"), "object", names)
