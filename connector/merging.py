"""Parses many nested values as one: all strings of one depth in one list.

A protocol buffer parser merges what occurs repeatedly of a message field that is declared singular, and bytes of
messages that are joined parse as their merge. A google.protobuf.Value nests lists of values; the classes made here are
wire-compatible with it, but declare each level singular. Parsed with one, any number of values are a single message, in
which every string of one level stands in one repeated field, in the order of the bytes: the parser's inner loop does
what would be a walk over an object for each value.

What is merged cannot be told apart any more: whoever parses so must know how much each value holds, and count.
"""

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_KINDS = {"null": 1, "number": 2, "string": 3, "flag": 4, "struct": 5}
"""Fields of google.protobuf.Value, beside its list."""

_WIRE = {
    "null": _Field.TYPE_INT64,
    "number": _Field.TYPE_DOUBLE,
    "flag": _Field.TYPE_BOOL,
    "struct": _Field.TYPE_BYTES,
}
_LIST = 6
_TEXTS = {str: _Field.TYPE_STRING, bytes: _Field.TYPE_BYTES}


def merging(top: str, depth: int, *, strings: type[str | bytes], lists_apart: bool) -> type[Message]:
    """A class whose messages merge ``depth`` levels of values.

    A level has the repeated fields ``null``, ``number``, ``string``, ``flag`` and ``struct``, and the next level as
    ``lists.values``. It is no message for a walk: what it has of a value is where it stands.

    Args:
        top: what is parsed: ``Value0`` for a google.protobuf.Value, ``List0`` for a ListValue.
        depth: how many levels there are; what lies deeper is not read.
        strings: what the strings are given as.
        lists_apart: whether the last level has ``lists``, the bytes of each of its ListValues.
    """
    file = FileDescriptorProto(name=f"{top}-{depth}.proto", package="merging", syntax="proto2")
    for number in range(depth):
        _add(file.message_type.add(name=f"List{number}"), "values", 1, f".merging.Value{number}")
        value = file.message_type.add(name=f"Value{number}")
        for name, field in _KINDS.items():
            kind = _TEXTS[strings] if name == "string" else _WIRE[name]
            value.field.add(name=name, number=field, label=_Field.LABEL_REPEATED, type=kind)
        if number < depth - 1:
            _add(value, "lists", _LIST, f".merging.List{number + 1}")
        elif lists_apart:
            value.field.add(name="lists", number=_LIST, label=_Field.LABEL_REPEATED, type=_Field.TYPE_BYTES)
    pool = DescriptorPool()
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"merging.{top}"))
    return found


def _add(message: DescriptorProto, name: str, number: int, of: str) -> None:
    message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_MESSAGE, type_name=of)


def has_only(level: Message, *kinds: str) -> bool:
    """Whether the values of a level are of these kinds or lists; a NULL is of another."""
    return not any(len(getattr(level, kind)) for kind in _KINDS if kind not in kinds)
