"""The messages of a query to records: the seam between what Spanner sends and what the reader works with.

A query's messages come as the bytes of google.spanner.v1.PartialResultSet, many at once where many have come. Where
the fast way of the dialect knows all of what it has before it, it makes columns of many rows at once. Where it does
not, the rows are halved until what it does not know stands alone, and the plain walk takes that: what comes out is the
same in either way, only as columns or as objects.
"""

from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Changes
from connector.core.dialects import MUTABLE, POSTGRESQL, Dialect
from connector.core.records import Record
from connector.decoding.chunks import ValueAssembler, as_message
from connector.decoding.googlesql import GooglesqlColumns, is_known
from connector.decoding.mutable import MutableColumns
from connector.decoding.postgresql import PostgresqlColumns
from connector.decoding.row_fields import UnknownRecordError
from connector.decoding.walk import Walk, walk

FEW = 16 * 1024
"""Bytes of rows that are cheaper to walk: columns cost some 200 us, however few their rows are."""

Item = Record | Changes
Columns = Callable[[bytes, int], Changes | None]
"""Takes the joined bytes of google.spanner.v1.PartialResultSets, and when they came, in nanoseconds since the epoch.

It gives their rows, or None where it does not know what it has before it, chunks among it.
"""


class Decoder:
    """Decodes the messages of one query, in their order; :func:`decoder` makes one for each.

    Args:
        walk: takes any row.
        columns: takes many at once, or None where there is no such way.
        knows: whether ``columns`` may take rows of a query with these google.spanner.v1.ResultSetMetadata.
    """

    def __init__(self, walk: Walk, columns: Columns | None, knows: Callable[[bytes | None], bool]) -> None:
        self._walk = walk
        self._columns = columns
        self._knows = knows
        self._known = False
        self._values = ValueAssembler()

    def __call__(self, messages: Sequence[bytes], read_timestamp: int) -> list[Item]:
        """What the messages hold, in order; ``read_timestamp`` is when they came, nanoseconds since the epoch.

        Raises:
            UnknownRecordError: a row that no version of the format describes.
        """
        try:
            if self._known and not self._values.pending:
                joined = b"".join(messages)
                changes = self._columns_of(joined, read_timestamp)
                if changes is not None:
                    return [changes]
            begins = self._values.metadata is None
            values = self._values.values(messages)
            if begins and self._columns is not None:
                self._known = self._knows(self._values.metadata)
            return self._decoded(values, read_timestamp)
        except UnknownRecordError:
            raise
        except (DecodeError, RecursionError, TypeError, ValueError) as error:
            raise UnknownRecordError(f"a message cannot be read: {type(error).__name__}") from error

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
        return [item for value in values for item in self._walk(Value.FromString(value), read_timestamp)]


def decoder(dialect: Dialect, partition_mode: str) -> Callable[[], Decoder]:
    """Makes the decoders of the queries of a change stream; they share what they have learned of its tables."""
    walker = walk(dialect, partition_mode)
    if partition_mode == MUTABLE:
        messages = MutableColumns()
        return lambda: Decoder(walker, messages, lambda _: True)
    if dialect is POSTGRESQL:
        documents = PostgresqlColumns()
        return lambda: Decoder(walker, documents, lambda _: True)
    rows = GooglesqlColumns()
    return lambda: Decoder(walker, rows, is_known)
