"""The plain clients of destinations that Spark has no writer for: what a task does with the rows of a partition."""

from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import Any

import grpc
from google.cloud.bigquery_storage_v1 import BigQueryWriteClient, types
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from benchmarks.destinations.databases import connected
from benchmarks.destinations.library import Parts, Row, written
from benchmarks.measure.snapshots import in_batches
from benchmarks.replay.rows import COLUMNS, TABLE
from benchmarks.rows import message_class
from connector.config.address import DatabaseAddress
from connector.proxies import DIRECT_CHANNEL
from spark_sink.sinks.spanner.writing.mutations import CELLS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_spanner(parts: Parts, target: DatabaseAddress) -> int:
    """Copies the table by google-cloud-spanner's batches, with as many cells a commit as the sink's."""
    return written(parts, partial(_into_spanner, target))


def _into_spanner(target: DatabaseAddress, rows: Iterator[Row]) -> int:
    database, columns = connected(target), tuple(COLUMNS)
    count = 0
    for some in in_batches(rows, CELLS // len(columns)):
        with database.batch() as batch:
            batch.insert_or_update(TABLE, columns, some)
        count += len(some)
    return count


def to_bigquery(parts: Parts, endpoint: str, table: str) -> int:
    """Copies it by the Storage Write API's client into a default stream, a message of protobuf for each row."""
    return written(parts, partial(_into_bigquery, endpoint, f"{table}/streams/_default"))


def _into_bigquery(endpoint: str, stream: str, rows: Iterator[Row]) -> int:
    descriptor = _descriptor()
    of = message_class(descriptor)
    converters = [(name, _CONVERTERS.get(code)) for name, code in COLUMNS.items()]
    sent = 0

    def requests() -> Iterator[types.AppendRowsRequest]:
        nonlocal sent
        for some in in_batches(rows):
            data = types.AppendRowsRequest.ProtoData(
                rows=types.ProtoRows(serialized_rows=_messages(of, converters, some))
            )
            if not sent:
                data.writer_schema = types.ProtoSchema(proto_descriptor=descriptor)
            yield types.AppendRowsRequest(write_stream=stream, proto_rows=data)
            sent += len(some)

    for response in _client(endpoint).append_rows(requests()):
        assert not response.error.code, response.error.message
    return sent


def _messages(
    of: type[Any], converters: list[tuple[str, Callable[[Any], object] | None]], rows: list[Row]
) -> list[bytes]:
    found = []
    for row in rows:
        message = of()
        for (name, convert), value in zip(converters, row, strict=True):
            if value is not None:
                setattr(message, name, convert(value) if convert else value)
        found.append(message.SerializeToString())
    return found


_CONVERTERS: dict[str, Callable[[Any], object]] = {
    "NUMERIC": str,
    "DATE": lambda day: (day - date(1970, 1, 1)).days,
    "TIMESTAMP": lambda at: (at - _EPOCH) // _MICROSECOND,
    "BYTES": b64decode,
}
_FIELDS = {
    "INT64": FieldDescriptorProto.TYPE_INT64,
    "FLOAT64": FieldDescriptorProto.TYPE_DOUBLE,
    "BOOL": FieldDescriptorProto.TYPE_BOOL,
    "DATE": FieldDescriptorProto.TYPE_INT32,
    "TIMESTAMP": FieldDescriptorProto.TYPE_INT64,
    "BYTES": FieldDescriptorProto.TYPE_BYTES,
}
"""The types of a message's fields; of others it is a string."""


def _descriptor() -> DescriptorProto:
    described = DescriptorProto(name="Row")
    for number, (name, code) in enumerate(COLUMNS.items(), 1):
        kind = _FIELDS.get(code, FieldDescriptorProto.TYPE_STRING)
        described.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    return described


@cache
def _client(endpoint: str) -> BigQueryWriteClient:
    channel = grpc.insecure_channel(endpoint, DIRECT_CHANNEL)
    return BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel))
