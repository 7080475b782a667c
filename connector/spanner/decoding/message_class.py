"""Builds protocol buffer classes that are wire-compatible with others, but parse only the fields that are needed.

A field that is not declared is skipped. A message field that is declared as bytes is copied, not parsed. A repeated
message field that is declared singular is merged: the parser joins all its occurrences.
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
    """A singular scalar; ``scalar`` is its type in a .proto file, such as ``int64``."""

    scalar: str


@dataclass(frozen=True, slots=True)
class Many:
    """A repeated message; ``message`` is its name."""

    message: str


FieldOfMessage = tuple[str, int, type | str | One | Many]
"""A field's name, its number, and its type: a Python type is a repeated scalar, a string names a singular message."""


def message_class(top: str, messages: Mapping[str, Sequence[FieldOfMessage]]) -> type[Message]:
    """Returns the class of the message ``top``; ``messages`` has the fields of each message by its name."""
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
