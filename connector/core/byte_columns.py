"""Rows of bytes built from columns: each row is the same sequence of literals and column values. Pure.

A column with one value becomes a literal, so the cost of a row depends on the columns that vary.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.changes import Int64s

_NOTHING = pa.scalar(b"", pa.binary())
_COMMA = pa.scalar(",", pa.string())


class RowBytes:
    """Collects the literals and columns that the rows consist of, in order.

    Args:
        rows: the number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns: list[pa.Array | pa.Scalar] = []
        self._literal = bytearray()

    def literal(self, data: bytes) -> None:
        """Appends the same bytes to every row."""
        self._literal += data

    def column(self, values: pa.Array) -> None:
        """Appends its own bytes to each row; ``values`` are binary or text, and none is null."""
        if is_constant(values):
            self.literal(values.cast(pa.binary())[0].as_py())
            return
        self._end_literal()
        self._columns.append(values.view(pa.binary()))

    def joined(self) -> pa.BinaryArray:
        """The rows, as a column."""
        self._end_literal()
        if any(isinstance(column, pa.Array) for column in self._columns):
            return pc.binary_join_element_wise(*self._columns, _NOTHING)
        literal = b"".join(column.as_py() for column in self._columns)
        return pa.repeat(pa.scalar(literal, pa.binary()), self._rows)

    def _end_literal(self) -> None:
        if self._literal:
            self._columns.append(pa.scalar(bytes(self._literal), pa.binary()))
            self._literal.clear()


def is_constant(values: pa.Array) -> bool:
    """True if every row has the same value, and none is null."""
    if len(values) == 0 or values.null_count or not values[0].equals(values[len(values) - 1]):
        return False
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def text_array(texts: Sequence[bytes], lengths: Int64s) -> pa.StringArray:
    """An Arrow array of texts.

    Args:
        texts: parts of the concatenated texts, in UTF-8.
        lengths: the length of each text in bytes.

    Raises:
        ValueError: a text is not UTF-8 (Arrow's errors are ValueErrors).
    """
    data = b"".join(texts)
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = lengths.cumsum()
    found = pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data))
    if not data.isascii():
        found.validate(full=True)
    return found


def fixed(matrix: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """A column whose values are the rows of a matrix."""
    rows, width = matrix.shape
    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def joined(texts: pa.Array) -> memoryview:
    """All texts of a column in one buffer, separated by commas."""
    whole = pa.ListArray.from_arrays(pa.array(np.array([0, len(texts)], np.int32)), texts)
    return memoryview(pc.binary_join(whole, _COMMA)[0].as_buffer())


def bytes_of(values: pa.Array) -> memoryview:
    """All values of a column in one buffer, one after another; none is null."""
    offsets = offsets_of(values)
    return memoryview(values.buffers()[2] or b"")[offsets[0] : offsets[-1]]


def ends_of(values: pa.Array) -> Int64s:
    """The offset at which each value ends in :func:`bytes_of`."""
    offsets = offsets_of(values)
    ends: Int64s = (offsets[1:] - offsets[0]).astype(np.int64)
    return ends


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """The offset at which each value begins in the array's buffer, and that at which the last one ends."""
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)


def slices_of(
    rows: pa.RecordBatch, ends: Int64s, *, most_bytes: int, most_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows in slices that hold as many as fit, or one larger row.

    Args:
        rows: the rows.
        ends: how many bytes there are up to the end of each row.
        most_bytes: of a slice, unless it is one row.
        most_rows: of a slice.
    """
    first = 0
    while first < rows.num_rows:
        before = int(ends[first - 1]) if first else 0
        count = int(np.searchsorted(ends, before + most_bytes, side="right")) - first
        count = max(1, count if most_rows is None else min(count, most_rows))
        yield rows.slice(first, count)
        first += count
