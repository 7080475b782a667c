"""Protocol buffer classes that are wire-compatible with others, and read of their bytes only what is wanted.

A field that is not described is passed over; one that is a message on the wire may be described as bytes, and is then
copied, not parsed; and where a message field is described as singular, all that occurs of it is merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_SCALARS = {
    bool: FieldDescriptorProto.TYPE_BOOL,
    bytes: FieldDescriptorProto.TYPE_BYTES,
    float: FieldDescriptorProto.TYPE_DOUBLE,
    int: FieldDescriptorProto.TYPE_INT64,
    str: FieldDescriptorProto.TYPE_STRING,
}


@dataclass(frozen=True, slots=True)
class One:
    """A scalar, singular; ``scalar`` is what a .proto file calls it."""

    scalar: str


@dataclass(frozen=True, slots=True)
class Many:
    """Messages of that name, repeated."""

    message: str


Field = tuple[str, int, type | str | One | Many]
"""A name, the number on the wire, and what it holds: scalars, repeated, or a message of that name, singular."""


def message_class(top: str, messages: Mapping[str, Sequence[Field]]) -> type[Message]:
    """The class of the message ``top``, one of ``messages``, each with its fields."""
    file = FileDescriptorProto(name="described.proto", package="described", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number)
            singular = isinstance(kind, str | One)
            added.label = FieldDescriptorProto.LABEL_OPTIONAL if singular else FieldDescriptorProto.LABEL_REPEATED
            match kind:
                case str(of) | Many(of):
                    added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".described.{of}"
                case One(of):
                    added.type = FieldDescriptorProto.Type.Value(f"TYPE_{of.upper()}")
                case _:
                    added.type = _SCALARS[kind]
    pool = DescriptorPool()
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"described.{top}"))
    return found
