"""Reads files of events back into the envelope's columns: what :mod:`spark_sink.files` has written.

A payload stays the text that stands in the file, in Datastream's unified types; so it is not what a spool holds of the
event, where values are in Spanner's own encoding. Old values and the epoch are not in a file: those columns are null.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from connector.changes import sequence_numbers
from connector.envelope import SCHEMA, SOURCE_METADATA
from connector.texts import change_sequence_numbers
from connector.timestamps import parse
from spark_sink.errors import EventFileError

_BATCH_ROWS = 8192
_BATCH_BYTES = 8 * 1024 * 1024


class _Event(msgspec.Struct):
    """An event as it stands in a line."""

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


_DECODER = msgspec.json.Decoder(_Event)
_TEXTS = {"object": "table", **{name: name for name in ("stream_name", "read_method", "schema_key", "uuid")}}


def json_lines(path: Path, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The events of JSON lines.

    Raises:
        EventFileError: a line is no event.
    """
    events: list[_Event] = []
    size = 0
    for number, line in enumerate(stream, 1):
        try:
            events.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):  # what it says might hold a row's values
            raise EventFileError(f"cannot read {path}: line {number} is no event as Datastream writes it") from None
        size += len(line)
        if len(events) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _columns(path, events)
            events, size = [], 0
    if events:
        yield _columns(path, events)


def _columns(path: Path, events: Sequence[_Event]) -> pa.RecordBatch:
    try:
        times = np.array([event.sort_keys[1] for event in events], np.int64)
        indexes = np.array([event.sort_keys[3] for event in events], np.int64)
        sequences = sequence_numbers(pa.array([event.sort_keys[2] for event in events]))
        columns: dict[str, pa.Array] = {
            **{
                name: pa.array([getattr(event, field) for event in events], pa.string())
                for name, field in _TEXTS.items()
            },
            "read_timestamp": _moments([event.read_timestamp for event in events]),
            "source_timestamp": _moments([event.source_timestamp for event in events]),
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


def _moments(texts: Sequence[str]) -> pa.Array:
    return pa.array([parse(text) // 1000 for text in texts], pa.int64()).cast(SCHEMA.field("read_timestamp").type)


_FORMATS: Mapping[str, Callable[[Path, BinaryIO], Iterator[pa.RecordBatch]]] = {".jsonl": json_lines}
"""By the ending of a file's name, without that of a compression."""

_FOREIGN = (".opencdc.jsonl", ".opencdc.pb")


def files_below(root: Path) -> list[Path]:
    """The files of events below a folder, or the one file, in the order of their paths.

    What is hidden, or being written, or no file of events by its name, is passed over.

    Raises:
        EventFileError: there is nothing at that path, it cannot be read, or it holds OpenCDC records.
    """

    def refuse(error: OSError) -> None:
        raise EventFileError(f"cannot read {error.filename}: {error.strerror}") from error

    if not root.exists():
        raise EventFileError(f"there are no files at {root}", hint="Give load() the path that sink.path names.")
    if root.is_file():
        return [root] if _is_of_events(root) else []
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for name in names if _is_of_events(path := Path(folder, name))]
    return sorted(found)


def _is_of_events(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    if name.startswith("."):
        return False
    if name.endswith(_FOREIGN):
        raise EventFileError(f"{path} holds OpenCDC records, not events as Datastream writes them")
    return name.endswith(tuple(_FORMATS))


def read_file(path: Path) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order.

    Raises:
        EventFileError: it cannot be read.
    """
    ending = Path(path.name.removesuffix(".gz")).suffix
    try:
        with path.open("rb") as stream:
            if path.name.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as inner:
                    yield from _FORMATS[ending](path, inner)  # type: ignore[arg-type]
            else:
                yield from _FORMATS[ending](path, stream)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise EventFileError(f"cannot read {path}: it is damaged, or not whole") from None
    except OSError as error:
        raise EventFileError(f"cannot read {path}: {error.strerror or error}") from error
