"""Extracts values from the messages of a streaming query, and joins chunked values.

A message's last value may be chunked: the first value of the next message continues it. Strings are concatenated. Lists
are concatenated too, and where the last element of one and the first of the next are strings or lists, these are merged
in turn. Source: https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#partialresultset

Messages and values stay bytes here. A protocol buffer parser merges messages that are joined, so one parse gives the
values of all messages that hold no chunk.
"""

from collections.abc import Sequence
from functools import lru_cache

from google.protobuf.struct_pb2 import ListValue, Value

from connector.core.message_classes import message_classes

_FIELDS = {"metadata": (1, "repeated bytes"), "values": (2, "repeated bytes"), "chunked_value": (3, "repeated bool")}
PartialResultSets = message_classes({"Messages": _FIELDS})["Messages"]
"""Many joined google.spanner.v1.PartialResultSets, parsed as one: every field is repeated, and values stay bytes."""


_STRING_TAG = 3 << 3 | 2
"""Tag of the field string_value of a google.protobuf.Value."""


_CHUNKED_KINDS = ("string_value", "list_value")
"""Kinds of google.protobuf.Value that may be chunked."""


class ValueAssembler:
    """Extracts the values of one query; each query needs its own."""

    def __init__(self) -> None:
        self.metadata: bytes | None = None
        """The bytes of the query's google.spanner.v1.ResultSetMetadata; None until the first message has been read."""
        self._chunks: list[Value] = []

    @property
    def pending(self) -> bool:
        """True if the next value continues a chunk."""
        return bool(self._chunks)

    def values(self, messages: Sequence[bytes]) -> list[bytes]:
        """Returns the values that ``messages`` complete, each as the bytes of a google.protobuf.Value.

        Args:
            messages: the query's next messages, each the bytes of a google.spanner.v1.PartialResultSet.

        Raises:
            DecodeError: the bytes are not a PartialResultSet.
            ValueError: a chunk is continued by a value of another kind.
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
    """Encodes values as the bytes of one google.spanner.v1.PartialResultSet."""
    encoded: bytes = PartialResultSets(values=values).SerializeToString()
    return encoded


def strings(messages: bytes) -> list[memoryview] | None:
    """Returns the rows of joined google.spanner.v1.PartialResultSets whose values are strings.

    Returns:
        The UTF-8 bytes of each string; None if there is no row, or a chunked one.

    Raises:
        DecodeError: the bytes are not PartialResultSets.
        IndexError, ValueError: a value is not a string.
    """
    found = PartialResultSets.FromString(messages)
    if not found.values or True in found.chunked_value:
        return None
    return [_string(value) for value in found.values]


def _string(value: bytes) -> memoryview:
    """Returns the bytes of a google.protobuf.Value's string."""
    header = header_of(len(value), _STRING_TAG)
    if not header or not value.startswith(header):
        raise ValueError("a value is not a string")
    return memoryview(value)[len(header) :]


@lru_cache(4096)
def header_of(size: int, tag: int) -> bytes:
    """Returns a tag and a length that together with their content take ``size`` bytes; empty if impossible."""
    for digits in range(1, 6):  # seven bits each
        length = size - 1 - digits
        if length >= 0 and max(length.bit_length() - 1, 0) // 7 + 1 == digits:
            more = [length >> 7 * digit & 0x7F | 0x80 for digit in range(digits - 1)]
            return bytes([tag, *more, length >> 7 * (digits - 1)])
    return b""


def merged(chunks: Sequence[Value]) -> Value:
    """Joins the chunks of a value; each byte is copied once for each list around it.

    Raises:
        ValueError: the chunks differ in kind, or are of a kind that cannot be chunked.
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
    open_ended: list[Value] = []  # the chunks of the last item, which the next chunk may continue
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
    return kind in _CHUNKED_KINDS and kind == first.WhichOneof("kind")


def _check(first: Value, more: Value) -> None:
    if not _continues(first, more):
        kind, other = first.WhichOneof("kind"), more.WhichOneof("kind")
        raise ValueError(f"a chunk of kind {kind} is continued by one of kind {other}")
