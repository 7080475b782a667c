"""Reads the changes in files of OpenCDC records: JSON lines, and delimited protobuf messages."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, BinaryIO, Literal

import msgspec
import pyarrow as pa

from connector.extras import extras_named
from spark_sink.errors import EventFileError
from spark_sink.sources.files.table_rows import decoded_lines, in_batches

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


def _messages(path: str, stream: BinaryIO) -> Iterator[OpenCdcChange]:
    """The records of protobuf messages.

    Raises:
        ConfigurationError: the library of protobuf is not installed.
        EventFileError: a message is not a valid record, or is incomplete.
    """
    with extras_named(f"reading {path}"):
        from spark_sink.sources.files.opencdc_messages import opencdc_messages
    for number, fields in enumerate(opencdc_messages(path, stream), 1):
        try:
            yield msgspec.convert(fields, OpenCdcChange)
        except msgspec.MsgspecError:
            raise EventFileError(f"cannot read {path}: message {number} is not an OpenCDC record") from None


_FORMATS: Mapping[str, Callable[[str, BinaryIO], Iterator[OpenCdcChange]]] = {
    ".opencdc.jsonl": partial(decoded_lines, decoder=msgspec.json.Decoder(OpenCdcChange), what="an OpenCDC record"),
    ".opencdc.pb": _messages,
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
    for some in in_batches(read(path, stream), attrgetter("payload.after")):
        yield _batch(path, some)


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
