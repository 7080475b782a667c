"""Some rows of a table, as they came from Spanner, and their columns as JSON or as Arrow types. Pure."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from connector.core.changes import Int64s
from connector.core.column_kinds import SpannerType
from connector.core.masking.masks import ColumnMask
from connector.core.records import ColumnType
from connector.core.value_texts import equal_object_texts, member_names
from connector.errors import EventError
from connector.spanner.snapshot.arrow_types import arrow_array, arrow_schema
from connector.spanner.snapshot.values import ValueReader

# The texts of these hold values, so that errors have none of them as their cause.
_NOT_VALID = (DecodeError, IndexError, KeyError, TypeError, ValueError)
_NEXT = (
    "Nothing was skipped. To continue without this table or column, leave it out. Please report it with the column's"
    " type."
)


class RowBlock:
    """Some hundred kilobytes of rows.

    Args:
        columns: the columns of the rows, in order.
        values: the bytes of a google.protobuf.Value for each column of each row, row after row.
        what: what the rows are of, for errors.
        mask: what becomes of columns that are excluded or hashed; None if there are none.

    Attributes:
        columns: the columns that are returned: without excluded ones, and hashed ones as strings.
    """

    def __init__(
        self,
        columns: Sequence[ColumnType],
        values: Sequence[bytes],
        what: str = "a table",
        mask: ColumnMask | None = None,
    ) -> None:
        self._all = tuple(columns)
        self._mask = mask
        self.columns = self._all if mask is None else mask.columns
        self._what = what
        self.rows = len(values) // len(self._all)
        self._raw = values

    @property
    def bytes(self) -> int:
        """Bytes of the values as Spanner sent them."""
        return int(self._values.end[-1]) if self.rows else 0

    def payloads(self, names: Sequence[str]) -> pa.StringArray:
        """The text of a JSON object a row, with these columns in this order, in the encoding of change records.

        Raises:
            KeyError: the rows have no such column.
            EventError: a value is not of the documented format; with its column. The message contains no value.
        """
        at = {column.name: number for number, column in enumerate(self._all)}
        wanted = np.array([at[name] for name in names], np.int64)
        if not names or not self.rows:
            return pa.repeat(pa.scalar("{}", pa.string()), self.rows)
        fragment, first_name, fragments = self._fragments
        try:
            texts = equal_object_texts(first_name + 2 * wanted, fragment[:, wanted], fragments)
            if self._mask is None:
                return texts
            return pa.array(list(map(self._mask.payload, texts.to_pylist())), pa.string())
        except _NOT_VALID as error:
            raise self._unreadable(error) from None

    def typed(self) -> pa.RecordBatch:
        """A column of an Arrow type for each column: see :mod:`connector.spanner.snapshot.arrow_types`.

        Raises:
            EventError: a value is not of its column's type. The message contains no value.
            ValueError: columns are excluded or hashed, which :meth:`payloads` alone can do.
        """
        if self._mask is not None:
            raise ValueError("columns are masked in payloads only")
        arrays = [self._typed(number, column) for number, column in enumerate(self._all)]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._all))

    def _typed(self, number: int, column: ColumnType) -> pa.Array:
        try:
            return arrow_array(SpannerType.parse(column.type), self._values.column(number, len(self._all)))
        except _NOT_VALID:
            raise EventError(
                f"{self._what}: a value of column {column.name} is not of its type {column.type}", hint=_NEXT
            ) from None

    def _unreadable(self, error: Exception) -> EventError:
        """The error of rows that cannot be converted, with the first column whose values cannot be."""
        column = next((f" of column {one.name}" for at, one in enumerate(self._all) if self._is_broken(at)), "")
        return EventError(
            f"{self._what}: a value{column} cannot be converted to JSON: {type(error).__name__}", hint=_NEXT
        )

    def _is_broken(self, number: int) -> bool:
        try:
            ValueReader.of(self._raw[number :: len(self._all)]).fragments()
        except _NOT_VALID:
            return True
        return False

    @cached_property
    def _values(self) -> ValueReader:
        return ValueReader.of(self._raw)

    @cached_property
    def _fragments(self) -> tuple[Int64s, int, pa.BinaryArray]:
        """The fragment of each value, a row of them for each row; that of the first column's name; the fragments."""
        try:
            fragment, fragments = self._values.fragments()
        except _NOT_VALID as error:
            raise self._unreadable(error) from None
        names = member_names([[column.name for column in self._all]])
        first_name = sum(map(len, fragments))
        return fragment.reshape(self.rows, len(self._all)), first_name, pa.concat_arrays([*fragments, names])
