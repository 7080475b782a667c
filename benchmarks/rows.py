"""Events in Arrow to rows for BigQuery, against a message of protobuf's library for each row.

The events are the replay's, made once by each process, and what is measured is what becomes of them. The baseline is
what Google's samples show: it parses a payload, sets the fields of a message and serializes it, to the same bytes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from struct import Struct
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from benchmarks.measure.reading import envelope
from benchmarks.measure.result import Result, Round
from benchmarks.measure.size import Size
from benchmarks.measure.subject import prepared, subject
from benchmarks.replay.http2 import Buffer
from benchmarks.replay.messages import START, Replay
from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.records import DataChangeRecord
from connector.core.schemas import SchemaRegistry
from connector.spanner.decoding.decoder import decoder
from spark_sink.sinks.bigquery.rows.builder import RowBuilder
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, bigquery_table

_BATCH = 5000
_PREFIX = Struct("!xL")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_bigquery(size: Size) -> Iterator[Result]:
    """Compares the sink's rows of the mode merge with a message of protobuf for each row."""
    share = max(int(size.mods * size.baseline_share), 1)
    for dialect in size.dialects:
        rounds: list[Round] = []
        with subject() as ours, subject() as baseline:
            for _ in range(size.rounds + 1):
                found = ours.run(by_column, dialect, size.mods)
                rounds.append((found, baseline.run(by_row, dialect, share)))
        yield Result.compared("arrow-to-bigquery-rows", dialect, None, rounds[1:], {})


def by_column(dialect: str, mods: int) -> int:
    """Builds rows as the sink does; returns how many."""
    table, batches = events(dialect, mods)
    builder = RowBuilder(table, "merge")
    prepared()
    return sum(len(builder.build(batch, now=START).rows) for batch in batches)


def by_row(dialect: str, mods: int) -> int:
    """Builds rows one by one; returns how many."""
    table, batches = events(dialect, mods)
    of = message_class(RowBuilder(table, "merge").descriptor)
    prepared()
    return sum(len(messages(table, of, batch)) for batch in batches)


@cache
def events(dialect: str, mods: int) -> tuple[BigQueryTable, list[pa.RecordBatch]]:
    """Returns the table of a replay, and about ``mods`` of its events."""
    replay, registry = Replay(dialect, "16/msg"), SchemaRegistry()
    decode = decoder(GOOGLESQL if dialect == "googlesql" else POSTGRESQL, IMMUTABLE)()
    found = [
        item
        for answer in replay.answer(replay.tokens[0], START, replay.span(mods).end)
        for item in decode(list(_unprefixed(answer)), START)
        if isinstance(item, Changes | DataChangeRecord)
    ]
    batch = envelope().build(Changes.joined(found), registry, 1)
    (schema,) = registry.schemas.values()
    batches = [batch.slice(first, _BATCH) for first in range(0, batch.num_rows, _BATCH)]
    return bigquery_table(schema, BigQueryTableOptions("dataset")), batches


def _unprefixed(answer: Buffer) -> Iterator[bytes]:
    at = 0
    while at < len(answer):
        (length,) = _PREFIX.unpack_from(answer, at)
        at += _PREFIX.size + length
        yield bytes(answer[at - length : at])


def message_class(descriptor: DescriptorProto) -> type[Message]:
    """Returns the class of a self-contained message."""
    file = FileDescriptorProto(name="row.proto", package="p", syntax="proto2")
    file.message_type.add().CopyFrom(descriptor)
    pool = DescriptorPool()
    pool.Add(file)
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"p.{descriptor.name}"))
    return found


def _day(text: str) -> int:
    return (date.fromisoformat(text) - _EPOCH.date()).days


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _itself(value: object) -> object:
    return value


_CONVERTERS: Mapping[str, Callable[[Any], object]] = {"INT64": int, "DATE": _day, "TIMESTAMP": _microseconds}


def messages(table: BigQueryTable, of: Callable[[], Any], batch: pa.RecordBatch) -> list[bytes]:
    """Returns each event's message; all are inserts."""
    converters = {
        column.name: (column.field.name, _CONVERTERS.get(column.field.type, _itself)) for column in table.columns
    }
    names = ("uuid", "change_sequence_number", "payload")
    timestamps = batch.column("source_timestamp").cast(pa.int64()).to_pylist()
    rows = zip(*(batch.column(name).to_pylist() for name in names), timestamps, strict=True)
    found = []
    for uuid, change_sequence_number, payload, timestamp in rows:
        row = of()
        for name, value in json.loads(payload).items():
            if value is not None:
                field, convert = converters[name]
                setattr(row, field, convert(value))
        row.datastream_metadata.uuid = uuid
        row.datastream_metadata.source_timestamp = timestamp // 1000
        row._CHANGE_TYPE = "UPSERT"  # noqa: SLF001 - the field's name
        row._CHANGE_SEQUENCE_NUMBER = change_sequence_number  # noqa: SLF001
        found.append(row.SerializeToString())
    return found
