"""Events of a file as the envelope's columns.

A payload stays the text of a JSON object in Datastream's unified types; in a spool the same event's values are in
Spanner's own encoding. Old values and the epoch are not in a file: those columns are null.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import BinaryIO, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from connector.core.changes import sequence_numbers
from connector.core.text_columns import change_sequence_numbers
from connector.core.timestamps import parse
from connector.envelope.envelope import SCHEMA, SOURCE_METADATA
from spark_sink.errors import EventFileError

_BATCH_ROWS = 8192
_BATCH_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class FileEvent(msgspec.Struct):
    """An event as a file holds it, timestamps as RFC 3339."""

    stream_name: str
    read_method: str
    table: str = msgspec.field(name="object")
    schema_key: str
    uuid: str
    read_timestamp: str
    source_timestamp: str
    sort_keys: tuple[int, int, str, int]
    source_metadata: dict[str, object]
    payload: msgspec.Raw


_TEXTS = {"object": "table", **{name: name for name in ("stream_name", "read_method", "schema_key", "uuid")}}


def rows_of(path: str, events: Iterable[FileEvent]) -> Iterator[pa.RecordBatch]:
    """The envelope's columns of the events of a file.

    Raises:
        EventFileError: a field is not as Datastream writes it.
    """
    for some in in_batches(events, attrgetter("payload")):
        yield _columns(path, some)


def decoded_lines(path: str, stream: BinaryIO, decoder: "msgspec.json.Decoder[T]", what: str) -> Iterator[T]:
    """The documents of JSON lines.

    Raises:
        EventFileError: a line is not ``what`` it should be.
    """
    for number, line in enumerate(stream, 1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # its text might hold a row's values
            raise EventFileError(f"cannot read {path}: line {number} is not {what}") from None


def in_batches(items: Iterable[T], payload: Callable[[T], msgspec.Raw]) -> Iterator[list[T]]:
    """The items in lists whose payloads have some megabytes at most, and one item more."""
    held: list[T] = []
    size = 0
    for item in items:
        held.append(item)
        size += len(bytes(payload(item)))
        if len(held) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _columns(path: str, events: Sequence[FileEvent]) -> pa.RecordBatch:
    try:
        times = np.array([event.sort_keys[1] for event in events], np.int64)
        indexes = np.array([event.sort_keys[3] for event in events], np.int64)
        sequences = sequence_numbers(pa.array([event.sort_keys[2] for event in events]))
        columns: dict[str, pa.Array] = {
            **{
                name: pa.array([getattr(event, field) for event in events], pa.string())
                for name, field in _TEXTS.items()
            },
            "read_timestamp": _timestamps([event.read_timestamp for event in events]),
            "source_timestamp": _timestamps([event.source_timestamp for event in events]),
            "sort_keys": pa.array(
                [[str(key) for key in event.sort_keys] for event in events], SCHEMA.field("sort_keys").type
            ),
            "change_sequence_number": change_sequence_numbers(times, sequences, indexes),
            "source_metadata": pa.array([event.source_metadata for event in events], SOURCE_METADATA),
            "payload": pa.array([bytes(event.payload) for event in events], pa.binary()).cast(pa.string()),
            "before": pa.nulls(len(events), pa.string()),
            "epoch": pa.nulls(len(events), pa.int64()),
        }
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        raise EventFileError(f"cannot read {path}: it holds events, but not as Datastream writes them") from None
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _timestamps(texts: Sequence[str]) -> pa.Array:
    return pa.array([parse(text) // 1000 for text in texts], pa.int64()).cast(SCHEMA.field("read_timestamp").type)
