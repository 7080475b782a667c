"""Values from the messages of a streaming query: those that were cut into chunks are put together again.

See https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#partialresultset: a chunked last value is
continued by the next message's first. Strings are concatenated; lists too, and where the last element of the one and
the first of the other are strings or lists, these are merged in turn.

Messages stay bytes here, and values too, for a parser merges what is joined: of messages of which none is chunked
one parse gives all values. It needs a description of PartialResultSet that leaves values as bytes, made below.
"""

from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Value

_METADATA, _VALUES, _CHUNKED = 1, 2, 3
"""Fields of PartialResultSet."""


def _partial_result_sets() -> type[Message]:
    file = FileDescriptorProto(name="partial_result_sets.proto", syntax="proto2")
    message = file.message_type.add(name="PartialResultSets")
    for name, number, kind in (
        ("metadata", _METADATA, FieldDescriptorProto.TYPE_BYTES),
        ("values", _VALUES, FieldDescriptorProto.TYPE_BYTES),
        ("chunked_value", _CHUNKED, FieldDescriptorProto.TYPE_BOOL),
    ):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_REPEATED)
    pool = DescriptorPool()
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName("PartialResultSets"))
    return found


_PartialResultSets = _partial_result_sets()


class ValueAssembler:
    """Puts the values of one query together; a new query has a new one."""

    def __init__(self) -> None:
        self.metadata: bytes | None = None
        """The query's google.spanner.v1.ResultSetMetadata, once it has come: the first message brings it."""
        self._chunk: Value | None = None

    def values(self, messages: Sequence[bytes]) -> list[bytes]:
        """The values that ``messages`` complete, each the bytes of a google.protobuf.Value.

        Args:
            messages: the query's next messages, each the bytes of a google.spanner.v1.PartialResultSet.

        Raises:
            DecodeError: they are something else.
            ValueError: a chunk is continued by something else.
        """
        found = _PartialResultSets.FromString(b"".join(messages))
        if self.metadata is None and found.metadata:
            self.metadata = found.metadata[0]
        if self._chunk is None and True not in found.chunked_value:
            return list(found.values)
        return [value for message in messages for value in self._with_chunks(message)]

    def _with_chunks(self, message: bytes) -> list[bytes]:
        found = _PartialResultSets.FromString(message)
        values, chunked = list(found.values), found.chunked_value[-1:] == [True]
        if self._chunk is not None and values:
            merge(self._chunk, Value.FromString(values[0]))
            if chunked and len(values) == 1:
                return []
            values[0] = self._chunk.SerializeToString()
            self._chunk = None
        if chunked and values:
            self._chunk = Value.FromString(values.pop())
        return values


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
