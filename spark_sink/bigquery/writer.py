"""Rows on their way into BigQuery: the Storage Write API (https://cloud.google.com/bigquery/docs/write-api).

Connections are kept (:mod:`spark_sink.bigquery.connections`). A request is sent again, over a new one, with backoff,
where what it met may pass by itself. That does no harm: the default stream of a table that is merged into takes a
change once, by its sequence number, and in a pending stream a row has its offset. What BigQuery says of single rows is
given back; whatever else it refuses is an error, so that nothing but rows can ever be left out.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import grpc
import tenacity
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud.bigquery_storage_v1 import BigQueryWriteClient, types
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.rpc.code_pb2 import Code

from spark_sink.bigquery.client import PATIENCE, BigQueryClient, reason_of
from spark_sink.bigquery.connections import Call, connections, own, shared
from spark_sink.bigquery.table import BigQueryTable, BigQueryTarget
from spark_sink.errors import SinkError

_Result = TypeVar("_Result")
_StorageErrorCode = types.StorageError.StorageErrorCode

_TIMEOUT = 120.0
_TRANSIENT = (
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.RetryError,
    exceptions.ServiceUnavailable,
    exceptions.TooManyRequests,
    exceptions.Unknown,
    auth_exceptions.TransportError,
)
_FAULTS = (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError)


class BigQueryWriter:
    """Writes one table's rows.

    Args:
        target: where.
        table: the table; it is there, with all its columns, though BigQuery may take minutes to know it.
        patience: seconds for which what may pass by itself is retried.

    Raises:
        SinkError: from every method, where BigQuery refuses.
    """

    def __init__(self, target: BigQueryTarget, table: BigQueryTable, *, patience: float = PATIENCE) -> None:
        self._target = target
        self._table = table
        self._patience = patience
        self._name = f"{table.dataset}.{table.name}"
        self._path = f"projects/{target.project}/datasets/{table.dataset}/tables/{table.name}"

    @property
    def default_stream(self) -> str:
        """The table's default stream."""
        return f"{self._path}/streams/_default"

    def append(
        self, stream: str, descriptor: DescriptorProto, rows: Sequence[bytes], offset: int | None = None
    ) -> list[tuple[int, str]]:
        """Appends rows, all or none; returns the index of each that BigQuery refuses, and why: then it took none.

        Args:
            stream: the default stream, or a pending one.
            descriptor: what the rows are.
            rows: at most :data:`spark_sink.bigquery.rows.LARGEST` bytes of them.
            offset: of the first row in a pending stream.
        """
        columns = descriptor.SerializeToString(deterministic=True)

        def once() -> list[tuple[int, str]]:
            request = types.AppendRowsRequest(
                write_stream=stream,
                offset=offset,
                proto_rows=types.AppendRowsRequest.ProtoData(
                    writer_schema=types.ProtoSchema(proto_descriptor=descriptor),
                    rows=types.ProtoRows(serialized_rows=rows),
                ),
            )
            try:
                with connections().taken(self._key(stream), stream, columns, self._begin(stream)) as connection:
                    return _refused(connection.send(request, columns))
            except exceptions.AlreadyExists:
                return []  # it came with an earlier attempt
            except exceptions.InvalidArgument as error:
                if _tells_of_extra_fields(error):
                    raise _MissingColumnError(error.message) from None  # type: ignore[no-untyped-call]
                raise
            except exceptions.NotFound:
                if offset is None:
                    raise
                raise self._expired() from None

        return self._sent(once, "what it says may hold a row's values, and is not told")

    def create_pending(self) -> str:
        """Makes a pending stream, whose rows nobody sees before it is committed; returns its name."""
        pending = types.WriteStream(type_=types.WriteStream.Type.PENDING)
        made = self._sent(
            lambda: self._client().create_write_stream(
                parent=self._path, write_stream=pending, retry=None, timeout=_TIMEOUT
            )
        )
        return str(made.name)

    def finalize(self, stream: str) -> int:
        """Ends a pending stream; returns how many rows it has."""
        connections().close(self._key(stream))
        ended = self._sent(lambda: self._client().finalize_write_stream(name=stream, retry=None, timeout=_TIMEOUT))
        return int(ended.row_count)

    def commit(self, streams: Sequence[str], *, entry: str) -> None:
        """Makes the rows of finalized streams visible, all at once; what was committed before is no error.

        Args:
            streams: never committed but together.
            entry: the document in the spool that names them.
        """

        def once() -> None:
            request = types.BatchCommitWriteStreamsRequest(parent=self._path, write_streams=streams)
            response = self._client().batch_commit_write_streams(request, retry=None, timeout=_TIMEOUT)
            codes = {error.code for error in response.stream_errors}
            if not codes or _StorageErrorCode.STREAM_ALREADY_COMMITTED in codes:
                return
            if not all(map(self._is_committed, streams)):
                told = ", ".join(sorted(code.name for code in codes))
                raise SinkError(
                    f"streams of table {self._name} cannot be committed ({told}): they have expired",
                    hint=f"Look whether the table has their rows. If it has none, remove {entry} in the spool, and they"
                    ' are written again; if it has them, set "committed": true there (docs/bigquery.md).',
                )

        self._sent(once)

    def _is_committed(self, stream: str) -> bool:
        """Whether a stream was committed before: what some errors of a commit do not tell from other states."""
        try:
            found = self._client().get_write_stream(name=stream, retry=None, timeout=_TIMEOUT)
        except (exceptions.NotFound, exceptions.InvalidArgument):
            return False
        return bool(found.commit_time)

    def _sent(self, once: Callable[[], _Result], words: str | None = None) -> _Result:
        """Sends until it is answered; ``words`` are told of a refusal, instead of BigQuery's."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=30),
            stop=tenacity.stop_after_delay(self._patience),
            reraise=True,
        )
        try:
            return retrying(once)
        except _FAULTS as error:
            why, hint = reason_of(error, words)
            raise SinkError(f"cannot write table {self._name} of BigQuery: {why}", hint=hint) from None

    def _may_pass(self, error: BaseException) -> bool:
        """Whether to ask again: for a table or a column too, if only the Storage Write API does not know it yet."""
        if isinstance(error, _TRANSIENT):
            return True
        if not isinstance(error, exceptions.NotFound | _MissingColumnError):
            return False
        client = BigQueryClient(self._target, failure=SinkError, patience=_TIMEOUT)
        found = client.find(self._table.dataset, self._table.name)
        return found is not None and found.lacks(self._table) == []

    def _key(self, stream: str) -> tuple[object, ...]:
        if stream == self.default_stream:
            return shared(self._target, self._table.dataset)
        return own(self._target, stream)

    def _begin(self, stream: str) -> Call:
        """Opens a connection: by gRPC's own call, which is there to be cancelled before its first answer has come."""
        metadata = [("x-goog-request-params", f"write_stream={stream}")]
        open_call = cast("Callable[..., Any]", self._client().transport.append_rows)
        return lambda requests: _Answers(open_call(requests, metadata=metadata))

    def _client(self) -> BigQueryWriteClient:
        return _client(self._target, os.getpid())

    def _expired(self) -> SinkError:
        return SinkError(
            f"a pending stream of table {self._name} of BigQuery has expired",
            hint="Run it again: its rows are written anew, and nobody has seen any of them.",
        )


class _Answers:
    """The answers of a call of gRPC's, whose errors are those of Google's clients."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __next__(self) -> types.AppendRowsResponse:
        try:
            return cast("types.AppendRowsResponse", next(self._call))
        except grpc.RpcError as error:
            raise exceptions.from_grpc_error(error) from error

    def cancel(self) -> object:
        """Ends the call."""
        return self._call.cancel()


class _MissingColumnError(exceptions.BadRequest):
    """The table lacks a column that rows have."""


def _refused(response: types.AppendRowsResponse) -> list[tuple[int, str]]:
    """The rows that are refused.

    Raises:
        GoogleAPIError: the request is.
    """
    if response.row_errors:
        return [(int(error.index), f"BigQuery refuses it: {error.message}") for error in response.row_errors]
    status = response.error
    if status.code == Code.OK:
        return []
    found = types.StorageError()
    for detail in status.details:
        detail.Unpack(types.StorageError.pb(found))
    if found.code == _StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS:
        raise _MissingColumnError(status.message)  # type: ignore[no-untyped-call]
    raise exceptions.from_grpc_status(_GRPC[status.code], status.message)


def _tells_of_extra_fields(error: exceptions.GoogleAPICallError) -> bool:
    """Whether a call that ended did so of a column that the table lacks; its answer may tell it as well."""
    found = types.StorageError()
    for detail in error.details:
        if isinstance(detail, AnyMessage) and detail.Unpack(types.StorageError.pb(found)):
            return found.code == _StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS
    return "extra proto fields" in str(error.message).lower()


_GRPC = {code.value[0]: code for code in grpc.StatusCode}


@functools.cache
def _client(target: BigQueryTarget, process: int) -> BigQueryWriteClient:
    """A client of this process: a child that was forked needs connections of its own."""
    assert process
    if not target.grpc_endpoint:
        return BigQueryWriteClient()
    if not target.is_emulated:
        return BigQueryWriteClient(client_options={"api_endpoint": target.grpc_endpoint})
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    channel = grpc.insecure_channel(target.grpc_endpoint, options)
    return BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel))
