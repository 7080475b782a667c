"""OpenCDC records as protocol buffers: the message ``opencdc.v1.Record``, without generated code.

The message is defined by ``proto/opencdc/v1/opencdc.proto`` of ConduitIO/conduit-commons. A file is a series of
messages, each after its length as a varint, which protobuf's libraries call delimited. Equal records have equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from connector.envelope.opencdc import OpenCdcRecord

OPERATIONS = ("unspecified", "create", "update", "delete", "snapshot")
"""The names of the operations, by their numbers."""
_STRUCT = ".google.protobuf.Struct"


def _record_class() -> type[Message]:
    file = FileDescriptorProto(
        name="opencdc/v1/opencdc.proto",
        package="opencdc.v1",
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    operation = file.enum_type.add(name="Operation")
    for number, name in enumerate(OPERATIONS):
        operation.value.add(name=f"OPERATION_{name.upper()}", number=number)
    record = file.message_type.add(name="Record")
    _add(record, "position", 1, FieldDescriptorProto.TYPE_BYTES)
    _add(record, "operation", 2, FieldDescriptorProto.TYPE_ENUM, ".opencdc.v1.Operation")
    entry = record.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, FieldDescriptorProto.TYPE_STRING)
    _add(entry, "value", 2, FieldDescriptorProto.TYPE_STRING)
    metadata = _add(record, "metadata", 3, FieldDescriptorProto.TYPE_MESSAGE, ".opencdc.v1.Record.MetadataEntry")
    metadata.label = FieldDescriptorProto.LABEL_REPEATED
    _add(record, "key", 4, FieldDescriptorProto.TYPE_MESSAGE, ".opencdc.v1.Data")
    _add(record, "payload", 5, FieldDescriptorProto.TYPE_MESSAGE, ".opencdc.v1.Change")
    change = file.message_type.add(name="Change")
    _add(change, "before", 1, FieldDescriptorProto.TYPE_MESSAGE, ".opencdc.v1.Data")
    _add(change, "after", 2, FieldDescriptorProto.TYPE_MESSAGE, ".opencdc.v1.Data")
    data = file.message_type.add(name="Data")
    data.oneof_decl.add(name="data")
    _add(data, "raw_data", 1, FieldDescriptorProto.TYPE_BYTES).oneof_index = 0
    _add(data, "structured_data", 2, FieldDescriptorProto.TYPE_MESSAGE, _STRUCT).oneof_index = 0
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName("opencdc.v1.Record"))
    return found


def _add(
    message: DescriptorProto, name: str, number: int, kind: "FieldDescriptorProto.Type", type_name: str | None = None
) -> FieldDescriptorProto:
    label = FieldDescriptorProto.LABEL_OPTIONAL
    return message.field.add(name=name, number=number, label=label, type=kind, type_name=type_name)


RecordMessage = _record_class()
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
