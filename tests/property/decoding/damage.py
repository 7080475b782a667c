"""Damages bytes and texts at random, and says whether a damaged row is still of its type."""

from random import Random

from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

_Metadata = types.ResultSetMetadata.pb()
_KINDS = {
    types.TypeCode.BOOL: "bool_value",
    types.TypeCode.INT64: "string_value",
    types.TypeCode.JSON: "string_value",
    types.TypeCode.STRING: "string_value",
    types.TypeCode.TIMESTAMP: "string_value",
}

_MEANINGFUL = b'\x00\x08\x12\x1a "2{}[],:\\Z.09eE-\xff'
"""Tags of a Value's kinds, and the characters that have a meaning in JSON, timestamps and numbers."""


def damaged(random: Random, whole: bytes, other: bytes) -> bytes:
    """Flips, changes, drops, inserts or doubles one or some of the bytes, or copies some from another message."""
    for _ in range(random.choice((1, 1, 1, 1, 2, 5))):
        start = random.randrange(len(whole) + 1)
        stop = start + random.choice((1, 1, 1, 2, 10, 200))
        part, first = whole[start:stop], random.randrange(len(other) + 1)
        match random.choice(("flip", "flip", "change", "change", "copy", "drop", "insert", "double")):
            case "flip":  # the length stays as encoded before
                part = bytes(byte ^ 1 << random.randrange(8) for byte in part[:1]) + part[1:]
            case "change":
                part = bytes(random.choice(_MEANINGFUL) for _ in part[:1]) + part[1:]
            case "copy":
                part = (other[first : first + len(part)] + part)[: len(part)]
            case "drop":
                part = b""
            case "insert":
                part = random.randbytes(random.randrange(1, 4)) + part
            case "double":
                part += part
        whole = whole[:start] + part + whole[stop:]
    return whole


def garbled(random: Random, text: str, other: str) -> str:
    """Damages a text; the result is still a text."""
    return damaged(random, text.encode(), other.encode()).decode(errors="ignore")


def is_of(row: bytes, metadata: bytes) -> bool:
    """True if a typed engine can send the row: its value is encoded canonically, and of the row's type."""
    try:
        value = Value.FromString(row)
    except (DecodeError, ValueError):
        return False
    type_ = _Metadata.FromString(metadata).row_type.fields[0].type_
    return bool(value.SerializeToString(deterministic=True) == row) and _fits(value, type_)


def _fits(value: Value, of: types.Type) -> bool:
    kind = value.WhichOneof("kind")
    if kind == "null_value":
        return True
    if of.code == types.TypeCode.ARRAY:
        return kind == "list_value" and all(_fits(item, of.array_element_type) for item in value.list_value.values)
    if of.code == types.TypeCode.STRUCT:
        fields, items = of.struct_type.fields, value.list_value.values
        fit = len(fields) == len(items)
        return kind == "list_value" and fit and all(map(_fits, items, (field.type_ for field in fields)))
    return bool(kind == _KINDS[of.code])
