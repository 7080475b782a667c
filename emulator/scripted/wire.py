"""Encodes protocol buffers by hand: fields and google.protobuf.Value as bytes.

A scripted stream returns the same mods and column types thousands of times. As bytes they are encoded once and copied,
which is many times faster than building and serializing messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value as ProtoValue

from emulator.workload.values import Value

NULL = b"\x08\x00"
"""A null google.protobuf.Value."""

TRUE, FALSE = b"\x20\x01", b"\x20\x00"
"""The boolean Values."""

_VALUES = b"\x0a"
_STRING = b"\x1a"
_LIST = b"\x32"


def varint(number: int) -> bytes:
    """Encodes a non-negative number."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """Encodes a field of bytes, of text or of a message; `number` must be below 16."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def number_field(number: int, content: int) -> bytes:
    """Encodes a field of a number or a boolean, as nothing if it is 0; `number` must be below 16."""
    return bytes((number << 3,)) + varint(content) if content else b""


def text(content: str) -> bytes:
    """Encodes a string Value."""
    encoded = content.encode()
    return _STRING + varint(len(encoded)) + encoded


def element(value: bytes) -> bytes:
    """Encodes a Value as an element of a list."""
    return _VALUES + varint(len(value)) + value


def listed(values: Iterable[bytes]) -> bytes:
    """Encodes a list Value of these Values."""
    content = b"".join([_VALUES + varint(len(value)) + value for value in values])
    return _LIST + varint(len(content)) + content


def boolean(content: bool) -> bytes:  # noqa: FBT001 - the value itself
    """Encodes a boolean Value."""
    return TRUE if content else FALSE


def encoded(value: Value) -> bytes:
    """Encodes a value of Spanner's JSON encoding as a Value."""
    match value:
        case None:
            return NULL
        case bool():
            return boolean(value)
        case str():
            return text(value)
        case list():
            return listed(map(encoded, value))
    return serialized(ProtoValue(number_value=value))


def serialized(message: Message) -> bytes:
    """Serializes a message, whose class has no types where it is one of Spanner's."""
    content: bytes = message.SerializeToString()
    return content
