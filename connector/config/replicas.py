"""What a destination holds, as ``spanner-cdc verify`` reads it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator

import pyarrow as pa


class Replica(ABC):
    """A destination that was written by a sink.

    Attributes:
        name: of the destination, for people.
        delivered: everything committed up to here is in it; nanoseconds since 1970.
        bytes: about how many bytes :meth:`changes` returns.
    """

    name: str
    delivered: int
    bytes: int

    @abstractmethod
    def changes(self, tables: Collection[str]) -> Iterator[pa.RecordBatch]:
        """The changes of these tables' rows, in any order.

        The columns are those of :data:`connector.envelope.envelope.SCHEMA`, payloads in Datastream's unified types.

        Raises:
            SpannerCdcError: it cannot be read.
        """
