"""Values from the messages of a streaming query: those that were cut into chunks are put together again.

See https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#partialresultset: a chunked last value is
continued by the next message's first. Strings are concatenated; lists too, and where the last element of the one and
the first of the other are strings or lists, these are merged in turn.

Messages stay bytes here, and values too, for a parser merges what is joined: of messages of which none is chunked
one parse gives all values, by a description of PartialResultSet that leaves them as bytes.
"""

from collections.abc import Sequence
from functools import lru_cache

from google.protobuf.struct_pb2 import ListValue, Value

from connector.decoding.message_class import message_class

PartialResultSets = message_class(
    "Messages", {"Messages": [("metadata", 1, bytes), ("values", 2, bytes), ("chunked_value", 3, bool)]}
)
"""Joined google.spanner.v1.PartialResultSets, of which all fields are repeated; values stay the bytes of each."""


_STRING_TAG = 3 << 3 | 2
"""Of the field string_value of a google.protobuf.Value."""


_CUT = ("string_value", "list_value")
"""Kinds of google.protobuf.Value that may be cut."""


class ValueAssembler:
    """Puts the values of one query together; a new query has a new one."""

    def __init__(self) -> None:
        self.metadata: bytes | None = None
        """The query's google.spanner.v1.ResultSetMetadata, once it has come: the first message brings it."""
        self._chunks: list[Value] = []

    @property
    def pending(self) -> bool:
        """Whether the next value begins with what a chunk has left."""
        return bool(self._chunks)

    def values(self, messages: Sequence[bytes]) -> list[bytes]:
        """The values that ``messages`` complete, each the bytes of a google.protobuf.Value.

        Args:
            messages: the query's next messages, each the bytes of a google.spanner.v1.PartialResultSet.

        Raises:
            DecodeError: they are something else.
            ValueError: a chunk is continued by something else.
        """
        found = PartialResultSets.FromString(b"".join(messages))
        if self.metadata is None and found.metadata:
            self.metadata = found.metadata[0]
        if not self._chunks and True not in found.chunked_value:
            return list(found.values)
        return [value for message in messages for value in self._with_chunks(message)]

    def _with_chunks(self, message: bytes) -> list[bytes]:
        found = PartialResultSets.FromString(message)
        values, chunked = list(found.values), found.chunked_value[-1:] == [True]
        if self._chunks and values:
            chunk = Value.FromString(values[0])
            _check(self._chunks[0], chunk)
            self._chunks.append(chunk)
            if chunked and len(values) == 1:
                return []
            values[0] = merged(self._chunks).SerializeToString()
            self._chunks = []
        if chunked and values:
            self._chunks = [Value.FromString(values.pop())]
        return values


def as_message(values: Sequence[bytes]) -> bytes:
    """The bytes of one google.spanner.v1.PartialResultSet with these values."""
    encoded: bytes = PartialResultSets(values=values).SerializeToString()
    return encoded


def strings(messages: bytes) -> list[memoryview] | None:
    """The rows of joined google.spanner.v1.PartialResultSets whose values are strings, as the strings' bytes.

    None where there is no row, or one that has been cut.

    Raises:
        DecodeError: they are something else.
        IndexError, ValueError: a value is no string.
    """
    found = PartialResultSets.FromString(messages)
    if not found.values or True in found.chunked_value:
        return None
    return [_string(value) for value in found.values]


def _string(value: bytes) -> memoryview:
    """The string that is all of a google.protobuf.Value."""
    header = _string_header(len(value))
    if not value.startswith(header):
        raise ValueError("a value is no string")
    return memoryview(value)[len(header) :]


@lru_cache(4096)
def _string_header(size: int) -> bytes:
    """What stands before the string in a google.protobuf.Value of so many bytes: its tag, and its length.

    Raises:
        ValueError: no Value that is a string has that size.
    """
    for digits in range(1, 6):  # seven bits each
        length = size - 1 - digits
        if length >= 0 and max(length.bit_length() - 1, 0) // 7 + 1 == digits:
            more = [length >> 7 * digit & 0x7F | 0x80 for digit in range(digits - 1)]
            return bytes([_STRING_TAG, *more, length >> 7 * (digits - 1)])
    raise ValueError("a value is no string")


def merged(chunks: Sequence[Value]) -> Value:
    """The value that was cut into these chunks; each byte is copied once for each list around it.

    Raises:
        ValueError: they are not of one kind, or of one that cannot be cut.
    """
    first = chunks[0]
    for more in chunks[1:]:
        _check(first, more)
    if len(chunks) == 1:
        return first
    if first.WhichOneof("kind") == "string_value":
        return Value(string_value="".join([chunk.string_value for chunk in chunks]))
    whole = Value(list_value=ListValue())
    items = whole.list_value.values
    open_ended: list[Value] = []  # the pieces of the last item as far as it goes
    for chunk in chunks:
        rest = list(chunk.list_value.values)
        if rest and open_ended and _continues(open_ended[0], rest[0]):
            open_ended.append(rest.pop(0))
        if rest:
            if open_ended:
                items.append(merged(open_ended))
            items.extend(rest[:-1])
            open_ended = rest[-1:]
    if open_ended:
        items.append(merged(open_ended))
    return whole


def _continues(last: Value, first: Value) -> bool:
    kind = last.WhichOneof("kind")
    return kind in _CUT and kind == first.WhichOneof("kind")


def _check(first: Value, more: Value) -> None:
    if not _continues(first, more):
        kind, other = first.WhichOneof("kind"), more.WhichOneof("kind")
        raise ValueError(f"a chunk of kind {kind} is continued by one of kind {other}")
