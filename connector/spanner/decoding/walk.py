"""The row decoders: each walks over one row's value and returns its records. One a dialect and partition mode.

A row decoder accepts every row of the documented format, and rejects every other row with an error. It defines what a
row means: the column decoders, which :mod:`connector.spanner.decoding.decoder` prefers, must give the same records.
Payloads are not changed.
"""

from collections.abc import Callable

from google.protobuf.struct_pb2 import Value

from connector.core.dialects import MUTABLE, POSTGRESQL, Dialect
from connector.core.records import Record
from connector.spanner.decoding.googlesql_walk import GooglesqlWalk
from connector.spanner.decoding.mutable_walk import MutableWalk
from connector.spanner.decoding.postgresql_walk import PostgresqlWalk
from connector.spanner.decoding.row_fields import UnknownRecordError

__all__ = ["UnknownRecordError", "Walk", "walk"]

Walk = Callable[[Value, int], list[Record]]
"""Takes a row's only value, and the time at which it was received, in Unix nanoseconds.

Raises :class:`UnknownRecordError` if the row is not of the documented format.
"""


def walk(dialect: Dialect, partition_mode: str) -> Walk:
    """Returns a new row decoder for a dialect and partition mode, with its own cache of column types."""
    if partition_mode == MUTABLE:
        return MutableWalk()
    return PostgresqlWalk() if dialect is POSTGRESQL else GooglesqlWalk()
