"""Protocol buffers written by hand: fields and google.protobuf.Value as bytes.

A scripted stream returns the same mods and column types thousands of times. As bytes they are made once and copied,
which is many times faster than building messages, and needs no second serialization.
"""

from __future__ import annotations

from collections.abc import Iterable

NULL = b"\x08\x00"
"""A google.protobuf.Value that is null."""

TRUE, FALSE = b"\x20\x01", b"\x20\x00"
"""Values that are booleans."""

_VALUES = b"\x0a"
_STRING = b"\x1a"
_LIST = b"\x32"


def varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """Give a field of bytes, of text or of a message; `number` is below 16."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def number_field(number: int, content: int) -> bytes:
    """Give a field of a number or a boolean, nothing where it is 0; `number` is below 16."""
    return bytes((number << 3,)) + varint(content) if content else b""


def text(content: str) -> bytes:
    """Give a Value that is a string."""
    encoded = content.encode()
    return _STRING + varint(len(encoded)) + encoded


def element(value: bytes) -> bytes:
    """Give a Value as one of a list's."""
    return _VALUES + varint(len(value)) + value


def listed(values: Iterable[bytes]) -> bytes:
    """Give a Value that is a list of these Values."""
    content = b"".join([_VALUES + varint(len(value)) + value for value in values])
    return _LIST + varint(len(content)) + content


def boolean(content: bool) -> bytes:  # noqa: FBT001 - the value itself
    """Give a Value that is a boolean."""
    return TRUE if content else FALSE
