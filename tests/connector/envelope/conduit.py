"""Reads OpenCDC records like Conduit: every field is required, and every number is a float64."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from connector.envelope.opencdc_protobuf import RecordMessage

Data = dict[str, Any]
Decode = Callable[[str, dict[str, str], bytes], Data]
"""Decodes raw data of ``key``, ``before`` or ``after``, with the record's metadata."""

OPERATIONS = ("create", "update", "delete", "snapshot")


@dataclass(frozen=True)
class ConduitRecord:
    """A record in Conduit's representation."""

    position: bytes
    operation: str
    metadata: dict[str, str]
    key: Data | None
    before: Data | None
    after: Data | None


def of_json(line: bytes) -> ConduitRecord:
    """Parses a line like opencdc/fromjson.go, which fails where key, before or after is missing."""
    node = json.loads(line, parse_int=float)
    assert list(node) == ["position", "operation", "metadata", "key", "payload"]
    assert list(node["payload"]) == ["before", "after"]
    assert node["operation"] in OPERATIONS
    assert all(type(name) is str and type(text) is str for name, text in node["metadata"].items())
    for data in (node["key"], *node["payload"].values()):
        assert data is None or type(data) is dict
    return ConduitRecord(
        b64decode(node["position"], validate=True),
        node["operation"],
        node["metadata"],
        node["key"],
        node["payload"]["before"],
        node["payload"]["after"],
    )


def of_messages(data: bytes, *, tag: bytes = b"", decode: Decode | None = None) -> Iterator[ConduitRecord]:
    """Parses delimited messages like opencdc/fromproto.go; with a tag before each, those of a repeated field.

    Raw data is decoded like a destination's middleware does; without ``decode`` there is none.
    """
    at = 0
    while at < len(data):
        assert data[at : at + len(tag)] == tag
        length, at = _varint(data, at + len(tag))
        assert at + length <= len(data)
        message: Any = RecordMessage.FromString(data[at : at + length])
        at += length
        metadata = dict(message.metadata)
        parts = {"key": message.key, "before": message.payload.before, "after": message.payload.after}
        key, before, after = (_data(part, each, metadata, decode) for part, each in parts.items())
        yield ConduitRecord(message.position, OPERATIONS[message.operation - 1], metadata, key, before, after)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _data(part: str, data: Any, metadata: dict[str, str], decode: Decode | None) -> Data | None:
    kind = data.WhichOneof("data")
    if kind is None:
        return None
    if kind == "raw_data" and decode is not None:
        return decode(part, metadata, data.raw_data)
    assert kind == "structured_data"
    return {name: _value(value) for name, value in data.structured_data.fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    assert kind is not None
    match kind:
        case "null_value":
            return None
        case "struct_value":
            return {name: _value(inner) for name, inner in value.struct_value.fields.items()}
        case "list_value":
            return [_value(inner) for inner in value.list_value.values]
    return getattr(value, kind)
