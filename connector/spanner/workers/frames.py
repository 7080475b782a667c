"""The messages between a coordinator and its workers, as bytes.

A frame is a message in msgpack, and a body that may be empty. Data change records are the body, as Arrow's record
batches, which cost nothing to read; the message describes them. A few records, and records that are not data change
records, are cheaper within the message.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, Literal, TypeVar

import msgspec
import pyarrow as pa

from connector.core.changes import COLUMNS, Changes, RecordSchema
from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
    column_type,
)
from connector.spanner.decoding.decoder import Item
from connector.spanner.errors import NO_DETAILS, ErrorDetails
from connector.spanner.partition_query import StreamAddress

FEW = 4
"""This many data change records, or fewer, are sent within the message."""

LARGE = 100
"""Batches of this many records, on average, are sent without being joined."""

SMALL = 100
"""Bytes that a record without data is accounted with."""

HEADER = struct.Struct("<IQ")
"""The sizes of the message and of the body."""

_RECORD_SCHEMAS_KEPT = 4 * 1024 * 1024
"""Bytes of messages whose record schemas are kept."""

BytesLike = bytes | memoryview

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Message(msgspec.Struct, array_like=True, tag=True):
    """A message."""


class WorkerSetup(Message):
    """To a worker, as the first message: which change stream it reads, and how it logs."""

    stream: StreamAddress
    json_logs: bool
    verbose: bool


class StartFrame(Message):
    """To a worker: read a partition. Each query has its own number; timestamps are decimal text, of any size."""

    query: int
    token: str
    start: str
    end: str | None
    timeouts: int


class Ack(Message):
    """To a worker: so many bytes of a query's rows were read, and as many more may be sent."""

    query: int
    size: int


class Cancel(Message):
    """To a worker: cancel a query. Rows of it that still arrive are dropped."""

    query: int


class Ready(Message):
    """From a worker: it accepts queries."""


class Alive(Message):
    """From a worker, at intervals: a heartbeat."""


class FailureFrame(msgspec.Struct, array_like=True):
    """An error as data; :mod:`connector.spanner.workers.failures` converts errors to it and back."""

    kind: Literal["call", "worker", "silence", "record", "configuration", "known", "internal"]
    message: str
    code: str = ""
    hint: str = ""
    details: ErrorDetails = NO_DETAILS


class Failed(Message):
    """From a worker: it cannot start."""

    failure: FailureFrame


class Ended(Message):
    """From a worker: a query has ended, with OK where there is no error."""

    query: int
    failure: FailureFrame | None


class _Part(msgspec.Struct, array_like=True, tag=True):
    """Some of a query's rows."""


class _Columns(_Part):
    size: int
    """Bytes of the body."""
    record_schemas: list[bytes]
    """Msgpack of each schema; equal bytes are parsed once."""


class _Data(_Part):
    record: DataChangeRecord


class _Heartbeat(_Part):
    record: HeartbeatRecord


class _ChildPartitions(_Part):
    record: ChildPartitionsRecord


class _PartitionStart(_Part):
    record: PartitionStartRecord


class _PartitionEnd(_Part):
    record: PartitionEndRecord


class _PartitionEvent(_Part):
    record: PartitionEventRecord


_PART_OF: Mapping[type[Record], Callable[[Any], "_AnyPart"]] = {
    DataChangeRecord: _Data,
    HeartbeatRecord: _Heartbeat,
    ChildPartitionsRecord: _ChildPartitions,
    PartitionStartRecord: _PartitionStart,
    PartitionEndRecord: _PartitionEnd,
    PartitionEventRecord: _PartitionEvent,
}
_AnyPart = _Columns | _Data | _Heartbeat | _ChildPartitions | _PartitionStart | _PartitionEnd | _PartitionEvent


class RowsFrame(Message):
    """From a worker: rows that a query has returned, in order, accounted with ``size`` bytes."""

    query: int
    size: int
    parts: list[_AnyPart]


AnyMessage = WorkerSetup | StartFrame | Ack | Cancel | Ready | Alive | Failed | Ended | RowsFrame


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was received."""

    message: AnyMessage
    body: pa.Buffer | None


_encoder = msgspec.msgpack.Encoder()
_messages = msgspec.msgpack.Decoder(AnyMessage)
_record_schemas = msgspec.msgpack.Decoder(RecordSchema)


def framed(message: Message, body: Sequence[memoryview] = ()) -> list[BytesLike]:
    """The bytes of a frame, as buffers in order."""
    encoded = _encoder.encode(message)
    return [HEADER.pack(len(encoded), sum(map(len, body))) + encoded, *body]


def parsed(message: bytes | bytearray, body: pa.Buffer | None) -> Frame:
    """The frame of what followed its header."""
    return Frame(_messages.decode(message), body)


def size_of(item: Item) -> int:
    """Bytes that an item is accounted with."""
    return item.size if isinstance(item, Changes | DataChangeRecord) else SMALL


class _Kept(Generic[_Key, _Value]):
    """A cache of record schemas by a key; it is cleared when their messages have :data:`_RECORD_SCHEMAS_KEPT` bytes."""

    def __init__(self) -> None:
        self._values: dict[_Key, _Value] = {}
        self._bytes = 0

    def get(self, key: _Key) -> _Value | None:
        """The value of a key, or None."""
        return self._values.get(key)

    def keep(self, key: _Key, value: _Value, size: int) -> _Value:
        """Keeps a value whose message has so many bytes, and returns it."""
        if self._bytes >= _RECORD_SCHEMAS_KEPT:
            self._values.clear()
            self._bytes = 0
        self._values[key] = value
        self._bytes += size
        return value


class Packer:
    """Makes frames of what queries return: neighbouring data change records as one batch."""

    def __init__(self) -> None:
        self._known: _Kept[int, tuple[RecordSchema, bytes]] = _Kept()
        """Record schemas and their bytes, by identity, because decoders return the same object again."""

    def rows(self, query: int, items: Iterable[Item], size: int) -> list[BytesLike]:
        """The frame of the message :class:`RowsFrame`."""
        parts: list[_AnyPart] = []
        body: list[memoryview] = []
        for _, run in groupby(items, lambda item: isinstance(item, Changes | DataChangeRecord)):
            found = list(run)
            data = [item for item in found if isinstance(item, Changes | DataChangeRecord)]
            if len(data) > FEW or any(isinstance(item, Changes) for item in data):
                for changes in _joined(data):
                    body.append(memoryview(changes.batch.serialize()))
                    parts.append(_Columns(len(body[-1]), list(map(self._encoded, changes.record_schemas))))
            else:
                parts += [_PART_OF[type(item)](item) for item in found if not isinstance(item, Changes)]
        return framed(RowsFrame(query, size, parts), body)

    def _encoded(self, schema: RecordSchema) -> bytes:
        known = self._known.get(id(schema))
        if known is None:
            raw = _encoder.encode(schema)
            known = self._known.keep(id(schema), (schema, raw), len(raw))
        return known[1]


def _joined(data: list[Changes | DataChangeRecord]) -> list[Changes]:
    """Joined into one, unless they are large: then copying them costs more than sending several."""
    whole = [item for item in data if isinstance(item, Changes)]
    if len(whole) == len(data) and sum(len(changes) for changes in whole) >= LARGE * len(data):
        return whole
    return [Changes.joined(data)]


class Unpacker:
    """Reads rows from frames; one for each worker."""

    def __init__(self) -> None:
        self._known: _Kept[bytes, RecordSchema] = _Kept()

    def items(self, rows: RowsFrame, body: pa.Buffer | None) -> list[Item]:
        """The records of the frame, in order; nothing is copied."""
        found: list[Item] = []
        at = 0
        for part in rows.parts:
            if isinstance(part, _Columns):
                assert body is not None
                batch = pa.ipc.read_record_batch(body.slice(at, part.size), COLUMNS)
                found.append(Changes(batch, tuple(map(self._decoded, part.record_schemas))))
                at += part.size
            else:
                found.append(part.record)
        return found

    def _decoded(self, raw: bytes) -> RecordSchema:
        known = self._known.get(raw)
        if known is None:
            found = _record_schemas.decode(raw)
            columns = (column_type(c.name, c.type, c.is_primary_key, c.ordinal_position) for c in found.column_types)
            known = self._known.keep(raw, RecordSchema(found.table_name, tuple(columns)), len(raw))
        return known
