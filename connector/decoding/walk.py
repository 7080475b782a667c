"""The plain walk over a change stream's rows: one row's value to records, one walk a dialect and partition mode.

It takes whatever the service may send, in the order in which google.spanner.v1 defines it, and refuses everything
else. :mod:`connector.decoding.decoder` takes it wherever a faster way cannot tell what it has before it, and that way
must give the same records. Payloads are handed on as they came.
"""

from collections.abc import Callable

from google.protobuf.struct_pb2 import Value

from connector.core.dialects import MUTABLE, POSTGRESQL, Dialect
from connector.core.records import Record
from connector.decoding.googlesql_walk import GooglesqlWalk
from connector.decoding.mutable_walk import MutableWalk
from connector.decoding.postgresql_walk import PostgresqlWalk
from connector.decoding.row_fields import UnknownRecordError

__all__ = ["UnknownRecordError", "Walk", "walk"]

Walk = Callable[[Value, int], list[Record]]
"""Takes a row's one value and the time it was received, nanoseconds since the epoch.

Raises :class:`UnknownRecordError` where the row has another form.
"""


def walk(dialect: Dialect, partition_mode: str) -> Walk:
    """The walk of a dialect and a partition mode; each call makes one with a cache of its own."""
    if partition_mode == MUTABLE:
        return MutableWalk()
    return PostgresqlWalk() if dialect is POSTGRESQL else GooglesqlWalk()
