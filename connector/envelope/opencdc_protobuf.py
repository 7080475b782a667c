"""OpenCDC records as protocol buffers: the message ``opencdc.v1.Record``, without generated code.

The message is defined by ``proto/opencdc/v1/opencdc.proto`` of ConduitIO/conduit-commons. A file is a series of
messages, each after its length as a varint, which protobuf's libraries call delimited. Equal records have equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import struct_pb2
from google.protobuf.message import Message

from connector.core.message_classes import message_classes
from connector.envelope.opencdc import OpenCdcRecord

OPERATIONS = ("unspecified", "create", "update", "delete", "snapshot")
"""The names of the operations, by their numbers."""

RecordMessage = message_classes(
    {
        "Record": {
            "position": (1, "bytes"),
            "operation": (2, "int32"),
            "metadata": (3, "map string"),
            "key": (4, "Data"),
            "payload": (5, "Change"),
        },
        "Change": {"before": (1, "Data"), "after": (2, "Data")},
        "Data": {"raw_data": (1, "oneof bytes"), "structured_data": (2, "oneof .google.protobuf.Struct")},
    },
    imports=[struct_pb2.DESCRIPTOR],
)["Record"]
"""The class of the message."""


Data = Mapping[str, object] | bytes
"""Structured data, or raw data: a row that is encoded by the schema which the record's metadata name."""


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """An OpenCDC record with data of either form."""

    position: bytes
    operation: str
    metadata: Mapping[str, str]
    key: Data
    before: Data | None
    after: Data | None


def delimited(record: OpenCdcRecord | EncodedRecord) -> bytes:
    """The record's message, preceded by its length as a varint."""
    message = RecordMessage()
    message.position = record.position
    message.operation = OPERATIONS.index(record.operation)
    metadata = message.metadata
    for name, text in record.metadata.items():
        metadata[name] = text
    payload = message.payload
    payload.SetInParent()
    _set(message.key, record.key)
    if record.before is not None:
        _set(payload.before, record.before)
    if record.after is not None:
        _set(payload.after, record.after)
    data: bytes = message.SerializeToString(deterministic=True)
    return varint(len(data)) + data


def _set(data: Message, values: Data) -> None:
    if isinstance(values, bytes):
        data.raw_data = values
        return
    struct = data.structured_data
    struct.SetInParent()
    _set_fields(struct, values)


def _set_fields(struct: Message, values: Mapping[str, object]) -> None:
    fields = struct.fields
    for name, value in values.items():
        _set_value(fields[name], value)


def _set_value(to: Message, value: object) -> None:
    match value:
        case None:
            to.null_value = 0
        case bool():
            to.bool_value = value
        case int() | float():
            to.number_value = value
        case str():
            to.string_value = value
        case dict():
            to.struct_value.SetInParent()
            _set_fields(to.struct_value, value)
        case list():
            _set_items(to.list_value, value)


def _set_items(to: Message, items: Sequence[object]) -> None:
    to.SetInParent()
    for item in items:
        _set_value(to.values.add(), item)


def varint(number: int) -> bytes:
    """A number, 0 or more, in groups of seven bits, the lowest first: as protobuf's messages and Avro have it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
