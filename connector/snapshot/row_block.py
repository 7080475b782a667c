"""Some rows of a table, as they came from Spanner, and their columns as JSON or as Arrow types."""

from collections.abc import Sequence

import pyarrow as pa

from connector.core.records import ColumnType


class RowBlock:
    """Some hundred kilobytes of rows.

    Args:
        columns: the columns of the rows, in order.
        values: the bytes of a google.protobuf.Value for each column of each row, row after row.
    """

    def __init__(self, columns: Sequence[ColumnType], values: Sequence[bytes]) -> None:
        self.columns = tuple(columns)
        self.rows = len(values) // len(self.columns)

    @property
    def bytes(self) -> int:
        """Bytes of the values as Spanner sent them."""
        raise NotImplementedError

    def payloads(self, names: Sequence[str]) -> pa.StringArray:
        """The text of a JSON object a row, with these columns in this order, in the encoding of change records.

        Raises:
            KeyError: the rows have no such column.
            SpannerCdcError: a value is not of the documented format. The message contains no value.
        """
        raise NotImplementedError

    def typed(self) -> pa.RecordBatch:
        """A column of an Arrow type for each column, those of :func:`connector.snapshot.typed_columns.arrow_schema`.

        Raises:
            SpannerCdcError: a value is not of its column's type. The message contains no value.
        """
        raise NotImplementedError
