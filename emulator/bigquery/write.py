"""The Write API of the BigQuery double: a gRPC server of google.cloud.bigquery.storage.v1.BigQueryWrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import grpc
from google.cloud.bigquery_storage_v1 import types
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from emulator.bigquery.catalog import Catalog, StoredTable
from emulator.bigquery.contents import WrittenRow
from emulator.bigquery.meter import APPLIES, LEAST_SCANNED, SCANNED
from emulator.bigquery.refusals import RefusedError, WriteError, unwritable
from emulator.bigquery.rows import RowReader
from emulator.bigquery.schema import ColumnDefinition, Definition, to_storage
from emulator.bigquery.streams import DEFAULT, PendingStream, Streams
from emulator.bigquery.traffic import APPEND_ROWS, Failure, Traffic

_SERVICE = "/google.cloud.bigquery.storage.v1.BigQueryWrite/"
_ROW_ERRORS_SHOWN = 100
_ROUTING = "x-goog-request-params"
_THREADS = 64  # an open stream needs one
_AppendRowsRequest = types.AppendRowsRequest.pb()
_AppendRowsResponse = types.AppendRowsResponse.pb()
_StorageError = types.StorageError.pb()
_FIELDS_ERROR = int(types.RowError.RowErrorCode.FIELDS_ERROR)


class BigQueryWrite(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library ships no types
    """The methods of write streams, on raw bytes; may be called from many threads.

    Args:
        catalog: the tables.
        streams: the pending streams.
        traffic: counts appends and injects failures.
        keep_rows: whether rows are kept; if not, they are checked and counted.
        check: whether rows are checked; if not, they are only counted.
    """

    def __init__(
        self, catalog: Catalog, streams: Streams, traffic: Traffic, *, keep_rows: bool = True, check: bool = True
    ) -> None:
        self.catalog = catalog
        self.streams = streams
        self.traffic = traffic
        self.keep_rows = keep_rows and check
        self.check = check
        unary: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {
            "CreateWriteStream": (types.CreateWriteStreamRequest, self._create),
            "GetWriteStream": (types.GetWriteStreamRequest, lambda request: streams.get(request.name)),
            "FinalizeWriteStream": (types.FinalizeWriteStreamRequest, self._finalize),
            "BatchCommitWriteStreams": (types.BatchCommitWriteStreamsRequest, self._commit),
        }
        self._methods = {
            _SERVICE + name: grpc.unary_unary_rpc_method_handler(self._unary(name, *method))
            for name, method in unary.items()
        }
        self._methods[_SERVICE + APPEND_ROWS] = grpc.stream_stream_rpc_method_handler(self._append_rows)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Finds a method's handler; a method without one is UNIMPLEMENTED."""
        return self._methods.get(details.method)

    def _unary(
        self, name: str, request_type: type[Any], work: Callable[[Any], Any]
    ) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def answer(raw: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                failure = self.traffic.request(name)
                if failure is not None and not failure.after:
                    context.abort(failure.code, failure.message)
                response = work(request_type.deserialize(raw))
            except (RefusedError, WriteError) as error:
                _abort(context, error)
            if failure is not None:
                context.abort(failure.code, failure.message)
            serialized: bytes = type(response).serialize(response)
            return serialized

        return answer

    def _create(self, request: types.CreateWriteStreamRequest) -> types.WriteStream:
        return self.streams.create(request.parent, request.write_stream)

    def _finalize(self, request: types.FinalizeWriteStreamRequest) -> types.FinalizeWriteStreamResponse:
        return types.FinalizeWriteStreamResponse(row_count=self.streams.finalize(request.name))

    def _commit(self, request: types.BatchCommitWriteStreamsRequest) -> types.BatchCommitWriteStreamsResponse:
        committed, errors = self.streams.commit(request.parent, request.write_streams)
        return types.BatchCommitWriteStreamsResponse(commit_time=committed, stream_errors=errors)

    def _append_rows(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        if not any(key == _ROUTING and "write_stream=" in value for key, value in context.invocation_metadata()):
            self.traffic.unrouted()
        try:
            self.traffic.meter.opened()
        except RefusedError as error:
            _abort(context, error)
        try:
            yield from self._answers(_WriteConnection(self), requests, context)
        finally:
            self.traffic.meter.closed()

    def _answers(
        self, connection: _WriteConnection, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        for raw in requests:
            failure = self.traffic.request(APPEND_ROWS)
            if failure is not None and not failure.in_band and not failure.after:
                context.abort(failure.code, failure.message)
            try:
                response = connection.answer(raw, failure)
            except (RefusedError, WriteError) as error:
                _abort(context, error)
            if failure is not None and not failure.in_band:
                context.abort(failure.code, failure.message)
            yield response.SerializeToString()


class _WriteConnection:
    """One AppendRows call, with what its requests may omit because an earlier one had it."""

    def __init__(self, api: BigQueryWrite) -> None:
        self._api = api
        self._stream = ""
        self._writer_schema: bytes | None = None
        self._seen: tuple[ColumnDefinition, ...] | None = None
        self._changes: bool | None = None

    def answer(self, raw: bytes, failure: Failure | None) -> Any:
        """Returns the response to a request; raises WriteError or RefusedError if the call ends with it."""
        if len(raw) > (most := self._api.traffic.largest_request):
            raise unwritable(f"AppendRows request too large: {len(raw)} limit {most}")
        try:
            request = _AppendRowsRequest.FromString(raw)
        except DecodeError as error:
            raise unwritable("Request contains an invalid argument.") from error
        if request.write_stream and request.write_stream != self._stream:
            self._stream, self._writer_schema = request.write_stream, None
            self._seen = None
        name = self._api.streams.parse(self._stream)
        pending = None if name.id == DEFAULT else self._api.streams.pending(self._stream)
        table = self._api.catalog.table(name.dataset, name.table) if pending is None else pending.table
        self._api.catalog.check_access(name.dataset, name.table)
        response = _AppendRowsResponse(write_stream=self._stream)
        try:
            _fail(failure, after=False)
            offset = self._append(request, table, pending)
            _fail(failure, after=True)
        except WriteError as error:
            response.error.CopyFrom(_status(error, self._stream))
            for index, message in error.rows[:_ROW_ERRORS_SHOWN]:
                response.row_errors.add(index=index, code=_FIELDS_ERROR, message=message)
        else:
            response.append_result.SetInParent()
            if offset is not None:
                response.append_result.offset.value = offset
        if self._seen is not None and self._seen is not table.schema:
            response.updated_schema.CopyFrom(types.TableSchema.pb(to_storage(table.schema)))
        self._seen = table.schema
        return response

    def _append(self, request: Any, table: StoredTable, pending: PendingStream | None) -> int | None:
        if request.WhichOneof("rows") != "proto_rows":
            raise unwritable("The double supports only rows as protocol buffers, and a request must have some")
        if request.proto_rows.writer_schema.HasField("proto_descriptor"):
            self._writer_schema = request.proto_rows.writer_schema.proto_descriptor.SerializeToString()
        if self._writer_schema is None:
            raise unwritable("Writer schema is missing: the first request to a stream must have it")
        given = request.proto_rows.rows.serialized_rows
        if not given:
            raise unwritable("Rows must be specified")
        size = request.proto_rows.rows.ByteSize()
        offset = request.offset.value if request.HasField("offset") else None
        if pending is not None:
            with pending.lock:
                pending.check_append(offset)
                changes = self._read(given, table.definition, default=False)
                start = pending.count
                pending.count += len(given)
                pending.rows += (change.row for change in changes)
            self._api.traffic.appended(len(given), size)
            table.bytes += size
            return start
        if offset is not None:
            raise unwritable("Offset cannot be specified for the default stream")
        changes = self._read(given, table.definition, default=True)
        with self._api.catalog.lock:
            table.contents.apply(changes, self._api.catalog.now())
            table.bytes += size
            self._count_apply(table)
        self._api.traffic.appended(len(given), size)
        return None

    def _count_apply(self, table: StoredTable) -> None:
        """Counts BigQuery's background job, which reads the whole table once in each max_staleness."""
        staleness, now = table.definition.max_staleness, self._api.catalog.now()
        if staleness and now - table.applied >= staleness:
            table.applied = now
            self._api.traffic.meter.count(APPLIES)
            self._api.traffic.meter.count(SCANNED, max(table.bytes, LEAST_SCANNED))

    def _read(self, given: Sequence[bytes], definition: Definition, *, default: bool) -> list[WrittenRow]:
        assert self._writer_schema is not None
        reader = _reader(self._writer_schema, definition.schema, definition.key, changes=default)
        if self._changes not in (None, reader.changes):
            raise unwritable("The given value is not a valid CHANGE_TYPE: changes and other rows in one connection")
        self._changes = reader.changes
        if not self._api.check:
            return []
        changes, errors = [], []
        for index, raw in enumerate(given):
            try:
                change = reader.read(raw)
                self._check(change)
            except ValueError as error:
                errors.append((index, str(error)))
            else:
                changes.append(change)
        if errors:
            raise WriteError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "Errors found while processing rows. Please refer to the row_errors field for details."
                f" The list may not be complete because of the size limitations. Entity: {self._stream}",
                rows=errors,
            )
        return changes if self._api.keep_rows else []

    def _check(self, change: WrittenRow) -> None:
        for refused in self._api.traffic.refused:
            if refused.found_in(change.row):
                raise ValueError(f"{refused.column}: {refused.message}")


@lru_cache(maxsize=256)
def _reader(
    writer_schema: bytes, schema: tuple[ColumnDefinition, ...], key: tuple[str, ...], *, changes: bool
) -> RowReader:
    return RowReader(DescriptorProto.FromString(writer_schema), schema, key, changes=changes)


def _fail(failure: Failure | None, *, after: bool) -> None:
    if failure is not None and failure.in_band and failure.after == after:
        raise WriteError(failure.code, failure.message, failure.storage)


def _abort(context: grpc.ServicerContext, error: RefusedError | WriteError) -> NoReturn:
    """Ends a call with an error, and with the code of StorageError if there is one."""
    status = _status(error, "")
    if status.details:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(error.code, error.message)
    raise AssertionError("abort raises") from error


def _status(error: RefusedError | WriteError, entity: str) -> Status:
    status = Status(code=error.code.value[0], message=error.message)
    if isinstance(error, WriteError) and error.storage is not None:
        detail = AnyMessage()
        detail.Pack(_StorageError(code=int(error.storage), entity=entity, error_message=error.message))
        status.details.append(detail)
    return status


@contextmanager
def serving_write(api: BigQueryWrite) -> Iterator[int]:
    """Serves on a port of 127.0.0.1 while the context is open; yields the port."""
    options = (
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.so_reuseport", 0),
    )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="BigQuery double, gRPC") as threads:
        server = grpc.server(threads, handlers=[api], options=options)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(grace=None).wait()
