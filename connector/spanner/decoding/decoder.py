"""Decodes the messages of a query into records: the one entry point of this package.

A query's messages are the bytes of google.spanner.v1.PartialResultSet, as many at once as have arrived. There are two
decoders for each dialect and partition mode. The column decoder turns many rows at once into Arrow columns. It declines
a block that holds anything but ordinary data change records. Such a block is halved until the rows that it declines are
alone, and these go to the row decoder, which accepts every valid row. Both give the same records, one as columns, the
other as objects.
"""

from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Changes
from connector.core.dialects import MUTABLE, POSTGRESQL, Dialect
from connector.core.masking.masks import UnlistedColumnError
from connector.core.masking.records import RecordMasking
from connector.core.masking.rules import ColumnRules
from connector.core.records import DataChangeRecord, Record
from connector.spanner.decoding.chunks import ValueAssembler, as_message
from connector.spanner.decoding.googlesql import googlesql_columns, is_known
from connector.spanner.decoding.googlesql_walk import googlesql_walk
from connector.spanner.decoding.mutable import mutable_columns
from connector.spanner.decoding.mutable_walk import mutable_walk
from connector.spanner.decoding.postgresql import postgresql_columns
from connector.spanner.decoding.postgresql_walk import postgresql_walk
from connector.spanner.decoding.row_fields import UnknownRecordError, named

FEW = 16 * 1024
"""Blocks of at most so many bytes go to the row decoder: columns have a fixed cost, however few rows they hold."""

Item = Record | Changes
Walk = Callable[[Value, int], list[Record]]
"""Walks over one row's value and returns its records: a row decoder, one a dialect and partition mode.

Takes a row's only value, and the time at which it was received, in Unix nanoseconds. It accepts every row of the
documented format, and raises :class:`UnknownRecordError` for every other row. It defines what a row means: the column
decoders, which are preferred, must give the same records. Payloads are not changed.
"""

ColumnDecoder = Callable[[bytes, int], Changes | None]
"""Decodes many rows at once.

Takes the joined bytes of google.spanner.v1.PartialResultSets, and the time at which they were received, in Unix
nanoseconds. Returns their rows, or None where it declines them, for instance because of a chunked value.
"""


class Decoder:
    """Decodes the messages of one query, in order; :func:`decoder` makes one for each query.

    Args:
        walk: decodes any single row.
        columns: decodes many rows at once; None if only ``walk`` is used.
        knows: whether ``columns`` can decode the rows of a query with this google.spanner.v1.ResultSetMetadata.
        masking: applies ``source.columns`` to all that is returned; None if nothing is excluded or hashed.
    """

    def __init__(
        self,
        walk: Walk,
        columns: ColumnDecoder | None,
        knows: Callable[[bytes | None], bool],
        masking: RecordMasking | None = None,
    ) -> None:
        self._walk = walk
        self._masking = masking
        self._columns = columns
        self._knows = knows
        self._known = False
        self._values = ValueAssembler()

    def __call__(self, messages: Sequence[bytes], read_timestamp: int) -> list[Item]:
        """Decodes the query's next messages.

        Args:
            messages: the bytes of a google.spanner.v1.PartialResultSet each.
            read_timestamp: when they were received, in Unix nanoseconds.

        Returns:
            The records that the messages complete, in order.

        Raises:
            UnknownRecordError: a row is not of the documented format; with its table, commit and transaction, as far
                as the row has them. Or a column of a mod is not listed, so that it is not known whether it is excluded.
            ConfigurationError: ``source.columns`` excludes a column of a table's key.
        """
        items = self._items(messages, read_timestamp)
        return items if self._masking is None else _masked(items, self._masking)

    def _items(self, messages: Sequence[bytes], read_timestamp: int) -> list[Item]:
        try:
            if self._known and not self._values.pending:
                joined = b"".join(messages)
                changes = self._columns_of(joined, read_timestamp)
                if changes is not None:
                    return [changes]
            is_first = self._values.metadata is None
            values = self._values.values(messages)
            if is_first and self._columns is not None:
                self._known = self._knows(self._values.metadata)
            return self._decoded(values, read_timestamp)
        except UnknownRecordError:
            raise
        except (DecodeError, RecursionError, TypeError, ValueError) as error:
            raise UnknownRecordError(f"a message cannot be read: {type(error).__name__}") from None

    def _decoded(self, values: list[bytes], read_timestamp: int) -> list[Item]:
        if not self._known or sum(map(len, values)) <= FEW:
            return self._walked(values, read_timestamp)
        changes = self._columns_of(as_message(values), read_timestamp)
        if changes is not None:
            return [changes]
        if len(values) == 1:
            return self._walked(values, read_timestamp)
        half = len(values) // 2
        return self._decoded(values[:half], read_timestamp) + self._decoded(values[half:], read_timestamp)

    def _columns_of(self, messages: bytes, read_timestamp: int) -> Changes | None:
        if self._columns is None or len(messages) <= FEW:
            return None
        return self._columns(messages, read_timestamp)

    def _walked(self, values: list[bytes], read_timestamp: int) -> list[Item]:
        items: list[Item] = []
        for value in values:
            row = Value.FromString(value)
            try:
                items += self._walk(row, read_timestamp)
            except UnknownRecordError as error:
                raise named(error, row) from None
        return items


def _masked(items: list[Item], masking: RecordMasking) -> list[Item]:
    """The items after the rules for columns; all records pass here, whichever decoder they come from."""
    found: list[Item] = []
    for item in items:
        try:
            match item:
                case Changes():
                    found.append(masking.changes(item))
                case DataChangeRecord():
                    found.append(masking.record(item))
                case _:
                    found.append(item)
        except UnlistedColumnError as error:
            raise UnknownRecordError(str(error)) from None
        except (RecursionError, ValueError) as error:
            raise UnknownRecordError(f"a payload cannot be read: {type(error).__name__}") from None
    return found


def walk(dialect: Dialect, partition_mode: str) -> Walk:
    """Returns the row decoder of a dialect and partition mode."""
    if partition_mode == MUTABLE:
        return mutable_walk
    return postgresql_walk if dialect is POSTGRESQL else googlesql_walk


def decoder(dialect: Dialect, partition_mode: str, rules: ColumnRules | None = None) -> Callable[[], Decoder]:
    """Returns a factory of decoders, one for each query of a change stream.

    Args:
        dialect: of the database.
        partition_mode: of the change stream.
        rules: for columns that are excluded or hashed; None if there are none.
    """
    walker = walk(dialect, partition_mode)
    masking = None if rules is None else RecordMasking(rules)
    if walker is googlesql_walk:
        return lambda: Decoder(walker, googlesql_columns, is_known, masking)
    columns = mutable_columns if partition_mode == MUTABLE else postgresql_columns
    return lambda: Decoder(walker, columns, lambda _: True, masking)
