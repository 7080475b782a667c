"""Google's clients of BigQuery for the double's tests: tables over REST, rows over the Write API."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery.table import PrimaryKey, TableConstraints
from google.cloud.bigquery_storage_v1.services.big_query_write import BigQueryWriteClient
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport
from google.cloud.bigquery_storage_v1.types import (
    AppendRowsRequest,
    AppendRowsResponse,
    BatchCommitWriteStreamsRequest,
    BatchCommitWriteStreamsResponse,
    ProtoRows,
    ProtoSchema,
    StorageError,
    WriteStream,
)
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from emulator.bigquery.double import BigQueryDouble, StorageCode

DATASET = "sales"
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Caller:
    """A double with one dataset, and clients of it."""

    double: BigQueryDouble
    tables: bigquery.Client
    write: BigQueryWriteClient

    def make(
        self, name: str, *columns: SchemaField, key: Sequence[str] = (), clustering: Sequence[str] | None = None
    ) -> str:
        """Creates a table; returns its full name for the Write API."""
        table = bigquery.Table(self.name(name), schema=columns)
        if key:
            table.table_constraints = TableConstraints(PrimaryKey(list(key)), None)
        if clustering is not None:
            table.clustering_fields = list(clustering)
        self.tables.create_table(table)
        return f"projects/{self.double.project}/datasets/{DATASET}/tables/{name}"

    def name(self, table: str) -> str:
        return f"{self.double.project}.{DATASET}.{table}"

    def rows(self, table: str) -> list[dict[str, object]]:
        return self.double.rows(DATASET, table)

    def pend(self, table: str) -> str:
        """Creates a pending stream; returns its name."""
        return str(self.write.create_write_stream(parent=table, write_stream=PENDING).name)

    def append(self, stream: str, schema: DescriptorProto, *rows: Row, offset: int | None = None) -> AppendRowsResponse:
        """Appends in a separate call; returns the response."""
        return self.send([request(stream, schema, *rows, offset=offset)])[0]

    def send(self, requests: Sequence[AppendRowsRequest]) -> list[AppendRowsResponse]:
        """Appends in one call; returns the responses."""
        metadata = (("x-goog-request-params", f"write_stream={requests[0].write_stream}"),)
        return list(self.write.append_rows(iter(requests), metadata=metadata, retry=None))

    def commit(self, table: str, *streams: str) -> BatchCommitWriteStreamsResponse:
        return self.write.batch_commit_write_streams(
            BatchCommitWriteStreamsRequest(parent=table, write_streams=streams), retry=None
        )


PENDING = WriteStream(type_=WriteStream.Type.PENDING)


@contextmanager
def calling(double: BigQueryDouble) -> Iterator[Caller]:
    """Creates clients of a double, and a dataset in it."""
    tables = bigquery.Client(
        project=double.project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": double.endpoint},
    )
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(double.grpc_endpoint, options=options) as channel:
        write = BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel))
        tables.create_dataset(DATASET)
        yield Caller(double, tables, write)
    tables.close()


def message(name: str = "Row", /, **fields: str | DescriptorProto | list[str | DescriptorProto]) -> DescriptorProto:
    """Returns a message class; fields have types as in a .proto file or messages, a list of one is repeated."""
    described = DescriptorProto(name=name)
    for number, (field, of) in enumerate(fields.items(), 1):
        kind = of[0] if isinstance(of, list) else of
        label = FieldDescriptorProto.LABEL_REPEATED if isinstance(of, list) else FieldDescriptorProto.LABEL_OPTIONAL
        added = described.field.add(name=field, number=number, label=label)
        if isinstance(kind, DescriptorProto):
            if kind.name not in {nested.name for nested in described.nested_type}:
                described.nested_type.add().CopyFrom(kind)
            added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind.name
        else:
            added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    return described


def request(
    stream: str, schema: DescriptorProto, *rows: Row | bytes, offset: int | None = None, described: bool = True
) -> AppendRowsRequest:
    """Returns a request with rows, or with bytes instead of rows; with its schema if `described`."""
    raw = [row if isinstance(row, bytes) else _serialized(schema, row) for row in rows]
    data = AppendRowsRequest.ProtoData(rows=ProtoRows(serialized_rows=raw))
    if described:
        data.writer_schema = ProtoSchema(proto_descriptor=schema)
    asked = AppendRowsRequest(write_stream=stream, proto_rows=data)
    if offset is not None:
        asked.offset = offset
    return asked


def default(table: str) -> str:
    return f"{table}/streams/_default"


def storage_code(response: AppendRowsResponse) -> StorageCode | None:
    """Returns the code of the StorageError in a response's error."""
    if not response.error.details:
        return None
    unpacked = StorageError.pb()()
    assert response.error.details[0].Unpack(unpacked)
    return StorageCode(unpacked.code)


def _serialized(schema: DescriptorProto, row: Row) -> bytes:
    file = FileDescriptorProto(name="test.proto")
    file.message_type.add().CopyFrom(schema)
    pool = DescriptorPool()
    pool.Add(file)
    made: bytes = GetMessageClass(pool.FindMessageTypeByName(schema.name))(**row).SerializeToString()
    return made
