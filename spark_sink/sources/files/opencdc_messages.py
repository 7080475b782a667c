"""Reads files of delimited protobuf messages ``opencdc.v1.Record``; it needs the library of protobuf, of an extra."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec
import orjson
from google.protobuf.message import DecodeError, Message

from connector.envelope.opencdc_protobuf import OPERATIONS, RecordMessage
from spark_sink.errors import EventFileError

_LONGEST = 2**31
"""Bytes of a message; protobuf has no longer ones."""


def opencdc_messages(path: str, stream: BinaryIO) -> Iterator[dict[str, object]]:
    """The fields of the records of protobuf messages, each of which is preceded by its length.

    Raises:
        EventFileError: a message is not a record, or is incomplete.
    """
    number = 0
    while (size := _length(stream)) != 0:
        number += 1
        data = b"" if size is None or size > _LONGEST else stream.read(size)
        if size is None or len(data) < size:
            raise EventFileError(f"cannot read {path}: it is damaged or incomplete")
        try:
            yield _fields(RecordMessage.FromString(data))
        except (DecodeError, LookupError):
            raise EventFileError(f"cannot read {path}: message {number} is not an OpenCDC record") from None


def _length(stream: BinaryIO) -> int | None:
    """A varint; 0 at the end of the file, None if it is not complete."""
    found = shift = 0
    while byte := stream.read(1):
        found |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return found or None  # a record is never empty
        if shift > 35:
            return None
    return None if shift else 0


def _fields(message: Message) -> dict[str, object]:
    payload = message.payload
    return {
        "operation": OPERATIONS[message.operation],
        "metadata": dict(message.metadata),
        "key": msgspec.Raw(_json(message.key)),
        "payload": {"after": msgspec.Raw(_json(payload.after) if payload.HasField("after") else b"null")},
    }


def _json(data: Message) -> bytes:
    fields = data.structured_data.fields
    return orjson.dumps({name: _value(value) for name, value in fields.items()})


def _value(value: Message) -> object:
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(value, kind)
    if kind == "struct_value":
        return {name: _value(one) for name, one in found.fields.items()}
    return [_value(one) for one in found.values] if kind == "list_value" else found
