"""Builds protocol buffer classes that are wire-compatible with others, without generated code. Pure.

What is sent has the numbers of fields, and no names: a message may have any name, and an enum is an integer. A field
that is not declared is skipped. A message field that is declared as bytes is copied, not parsed. A repeated message
field that is declared singular is merged: the parser joins all its occurrences.
"""

from collections.abc import Mapping, Sequence

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

DescribedField = tuple[int, str]
"""A field's number, and its type as in a .proto file, such as ``int64``, ``repeated bytes`` or a message's name.

``map T`` maps texts to T. The fields of a message that are ``oneof T`` are one oneof of its name.
"""

_PACKAGE = "described"


def message_classes(
    messages: Mapping[str, Mapping[str, DescribedField]], imports: Sequence[FileDescriptor] = ()
) -> dict[str, type[Message]]:
    """The classes of messages by their names.

    Args:
        messages: the fields of each message by their names.
        imports: the files of other messages, whose names as types begin with a dot and the package.
    """
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    pool = DescriptorPool()
    for imported in imports:
        pool.AddSerializedFile(imported.serialized_pb)
        file.dependency.append(imported.name)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label, _, of = kind.rpartition(" ")
            if label == "map":
                entry = message.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                _add(entry, "key", 1, "string")
                _add(entry, "value", 2, of)
                of = f"{name}.{entry.name}"
            added = _add(message, field, number, of)
            if label in ("map", "repeated"):
                added.label = FieldDescriptorProto.LABEL_REPEATED
            elif label == "oneof":
                added.oneof_index = 0
        if any(field.HasField("oneof_index") for field in message.field):
            message.oneof_decl.add(name=name.lower())
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in messages}


def _add(message: DescriptorProto, name: str, number: int, kind: str) -> FieldDescriptorProto:
    added = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.islower():
        added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        added.type = FieldDescriptorProto.TYPE_MESSAGE
        added.type_name = kind if kind.startswith(".") else f".{_PACKAGE}.{kind}"
    return added
