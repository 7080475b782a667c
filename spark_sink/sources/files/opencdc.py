"""Reads the changes in files of OpenCDC records: JSON lines, and delimited protobuf messages."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Literal

import msgspec
import orjson
import pyarrow as pa
from google.protobuf.message import DecodeError, Message

from connector.envelope.opencdc_protobuf import OPERATIONS, RecordMessage
from spark_sink.errors import EventFileError

CHANGES = pa.schema(
    [
        pa.field("object", pa.string()),
        pa.field("sort_keys", pa.list_(pa.string())),
        pa.field("source_metadata", pa.struct([pa.field("mod_type", pa.string())])),
        pa.field("payload", pa.string()),
    ]
)
"""A record as the columns of :data:`connector.envelope.envelope.SCHEMA` that say what has changed. The payload holds
the columns of ``after``, or the key of a deleted row, with OpenCDC's values."""

_BATCH_ROWS, _BATCH_BYTES = 8192, 8 * 1024 * 1024
_LONGEST = 2**31
"""Bytes of a message; protobuf has no longer ones."""

_MOD_TYPES = {"create": "INSERT", "snapshot": "INSERT", "update": "UPDATE", "delete": "DELETE"}
_MILLISECOND = 1_000_000


class _Payload(msgspec.Struct):
    after: msgspec.Raw


class OpenCdcChange(msgspec.Struct):
    """The fields of a record that are verified; the others are ignored."""

    operation: Literal["create", "update", "delete", "snapshot"]
    metadata: dict[str, str]
    key: msgspec.Raw
    payload: _Payload


_DECODER = msgspec.json.Decoder(OpenCdcChange)


def opencdc_lines(path: str, stream: BinaryIO) -> Iterator[OpenCdcChange]:
    """The records of JSON lines.

    Raises:
        EventFileError: a line is not a valid record.
    """
    for number, line in enumerate(stream, 1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # its text might hold a row's values
            raise EventFileError(f"cannot read {path}: line {number} is not an OpenCDC record") from None


def opencdc_messages(path: str, stream: BinaryIO) -> Iterator[OpenCdcChange]:
    """The records of protobuf messages, each of which is preceded by its length.

    Raises:
        EventFileError: a message is not a valid record, or is incomplete.
    """
    number = 0
    while (size := _length(stream)) != 0:
        number += 1
        try:
            data = b"" if size is None or size > _LONGEST else stream.read(size)
            if size is None or len(data) < size:
                raise EventFileError(f"cannot read {path}: it is damaged or incomplete")
            yield _change(RecordMessage.FromString(data))
        except (DecodeError, LookupError, msgspec.MsgspecError):
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


def _change(message: Message) -> OpenCdcChange:
    payload = message.payload
    return msgspec.convert(
        {
            "operation": OPERATIONS[message.operation],
            "metadata": dict(message.metadata),
            "key": msgspec.Raw(_json(message.key)),
            "payload": _Payload(msgspec.Raw(_json(payload.after) if payload.HasField("after") else b"null")),
        },
        OpenCdcChange,
    )


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


_FORMATS: Mapping[str, Callable[[str, BinaryIO], Iterator[OpenCdcChange]]] = {
    ".opencdc.jsonl": opencdc_lines,
    ".opencdc.pb": opencdc_messages,
}
"""By the ending of a file's name without ``.gz``."""

ENDINGS = tuple(_FORMATS)


def opencdc_changes(path: str, name: str, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The changes of a file, in batches of :data:`CHANGES`.

    Args:
        path: of the file, for messages.
        name: its name without ``.gz``, with one of the :data:`ENDINGS`.
        stream: its contents, uncompressed.

    Raises:
        EventFileError: a record is not valid.
    """
    (read,) = (read for ending, read in _FORMATS.items() if name.endswith(ending))
    held: list[OpenCdcChange] = []
    size = 0
    for change in read(path, stream):
        held.append(change)
        size += len(bytes(change.payload.after))
        if len(held) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(path, held)
            held, size = [], 0
    if held:
        yield _batch(path, held)


def _batch(path: str, changes: list[OpenCdcChange]) -> pa.RecordBatch:
    try:
        columns: dict[str, list[Any]] = {
            "object": [change.metadata["opencdc.collection"] for change in changes],
            "sort_keys": [_sort_keys(change.metadata) for change in changes],
            "source_metadata": [{"mod_type": _MOD_TYPES[change.operation]} for change in changes],
            "payload": [
                bytes(change.key if change.operation == "delete" else change.payload.after).decode()
                for change in changes
            ],
        }
    except (KeyError, ValueError):
        raise EventFileError(f"cannot read {path}: it holds OpenCDC records, but not of this connector") from None
    return pa.RecordBatch.from_pydict(columns, schema=CHANGES)


def _sort_keys(metadata: Mapping[str, str]) -> list[str]:
    time = int(metadata["opencdc.createdAt"])
    index = int(metadata["spanner.mod_index"])
    return [str(time // _MILLISECOND), str(time), metadata["spanner.record_sequence"], str(index)]
