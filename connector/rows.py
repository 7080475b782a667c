"""Rows from the messages of a streaming query: values that were cut into chunks are put together again.

See https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#partialresultset: a chunked last value is
continued by the next message's first. Strings are concatenated; lists too, and where the last element of the one and
the first of the other are strings or lists, these are merged in turn.
"""

from collections.abc import Iterator
from typing import Protocol

from google.protobuf.struct_pb2 import Value


class Message(Protocol):
    """What is read of a google.spanner.v1.PartialResultSet."""

    values: list[Value]
    chunked_value: bool


class RowAssembler:
    """Puts the rows of one query together; a new query has a new one."""

    def __init__(self) -> None:
        self._columns = 0
        self._row: list[Value] = []
        self._chunk: Value | None = None

    def rows(self, message: Message, *, columns: int | None) -> Iterator[list[Value]]:
        """The rows that ``message`` completes.

        Args:
            message: the query's next message.
            columns: how many columns a row has, where the message says so; only the first does.
        """
        self._columns = columns or self._columns or 1
        values = list(message.values)
        if self._chunk is not None and values:
            merge(self._chunk, values[0])
            values[0] = self._chunk
            self._chunk = None
        if message.chunked_value and values:
            self._chunk = values.pop()
        for value in values:
            self._row.append(value)
            if len(self._row) == self._columns:
                yield self._row
                self._row = []


def merge(into: Value, more: Value) -> None:
    """Continues a chunked value by its next chunk.

    Raises:
        ValueError: the two are not of one kind.
    """
    kind = into.WhichOneof("kind")
    if kind != more.WhichOneof("kind") or kind not in ("string_value", "list_value"):
        raise ValueError(f"a chunk of kind {kind} is continued by one of kind {more.WhichOneof('kind')}")
    if kind == "string_value":
        into.string_value += more.string_value
        return
    held, rest = into.list_value.values, list(more.list_value.values)
    if held and rest:
        last = held[-1].WhichOneof("kind")
        if last == rest[0].WhichOneof("kind") and last in ("string_value", "list_value"):
            merge(held[-1], rest.pop(0))
    held.extend(rest)
