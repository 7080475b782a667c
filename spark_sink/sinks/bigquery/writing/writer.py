"""Writes rows with BigQuery's Storage Write API (https://cloud.google.com/bigquery/docs/write-api).

Connections are reused (:mod:`spark_sink.sinks.bigquery.writing.connections`). After a transient error a request is sent
again over a new one, with backoff. That is idempotent: the default stream of a table that is merged into applies a
change once, by its sequence number, and in a pending stream a row has an offset. Errors of single rows are returned;
any other is raised, so that only rows can be left out, and each with its reason.
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

from connector.proxies import DIRECT_CHANNEL
from connector.telemetry.retrying import attempts
from spark_sink.errors import AlteredTableError, DestinationUnavailableError, SinkError
from spark_sink.sinks.bigquery.client import PATIENCE, BigQueryClient, ExistingTable, cause_of, reason_of
from spark_sink.sinks.bigquery.rows.builder import SURELY_TAKEN
from spark_sink.sinks.bigquery.tables.mismatches import mismatches
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget
from spark_sink.sinks.bigquery.writing.connections import Call, connections

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
_ERRORS = (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError)


class BigQueryWriter:
    """Writes one table's rows.

    Args:
        target: where it is.
        table: the table. It exists with all of its columns, though the Storage Write API may take minutes to see them.
        patience: seconds for which transient errors are retried.

    Raises:
        SinkError: from every method, where BigQuery rejects a request or cannot be reached.
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
        """Appends rows, all or none; returns the index of each that BigQuery rejects, and why. Then it appended none.

        Args:
            stream: the default stream, or a pending one.
            descriptor: the message of the rows.
            rows: at most :data:`spark_sink.sinks.bigquery.rows.builder.LARGEST` bytes of them. More than
                :data:`spark_sink.sinks.bigquery.rows.builder.SURELY_TAKEN` are those of one event.
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
                with connections().taken(self._key(stream), stream, columns, self._open(stream)) as connection:
                    return _rejected(connection.send(request, columns))
            except exceptions.AlreadyExists:
                return []  # an earlier attempt appended them
            except exceptions.InvalidArgument as error:
                if _is_of_extra_fields(error):
                    raise _MissingColumnError(error.message) from None  # type: ignore[no-untyped-call]
                size = sum(map(len, rows))
                if size > SURELY_TAKEN and "too large" in str(error.message):
                    return [(0, f"the row is too large for BigQuery: it has {size:,} bytes")]
                raise
            except exceptions.NotFound:
                if offset is None:
                    raise
                raise self._expired() from None

        return self._sent(once, "its message may hold a row's values and is omitted")

    def create_pending(self) -> str:
        """Creates a pending stream, whose rows are invisible until it is committed; returns its name."""
        pending = types.WriteStream(type_=types.WriteStream.Type.PENDING)
        made = self._sent(
            lambda: self._client().create_write_stream(
                parent=self._path, write_stream=pending, retry=None, timeout=_TIMEOUT
            )
        )
        return str(made.name)

    def finalize(self, stream: str) -> int:
        """Finalizes a pending stream; returns its number of rows."""
        connections().close(self._key(stream))

        def once() -> int:
            try:
                ended = self._client().finalize_write_stream(name=stream, retry=None, timeout=_TIMEOUT)
            except exceptions.NotFound:
                raise self._expired() from None
            return int(ended.row_count)

        return self._sent(once)

    def commit(self, streams: Sequence[str], *, entry: str) -> None:
        """Makes the rows of finalized streams visible, all at once; those that are committed already are no error.

        Args:
            streams: are only ever committed together.
            entry: the document in the spool that names them.
        """

        def once() -> None:
            request = types.BatchCommitWriteStreamsRequest(parent=self._path, write_streams=streams)
            response = self._client().batch_commit_write_streams(request, retry=None, timeout=_TIMEOUT)
            codes = {error.code for error in response.stream_errors}
            if not codes or _StorageErrorCode.STREAM_ALREADY_COMMITTED in codes:
                return
            if not all(map(self._is_committed, streams)):
                names = ", ".join(sorted(code.name for code in codes))
                raise SinkError(
                    f"streams of table {self._name} cannot be committed ({names}): they have expired",
                    hint=f"Check whether the table has their rows. If it has none, remove {entry} in the spool, and"
                    ' they are written again. If it has them, set "committed": true there.',
                )

        self._sent(once)

    def _is_committed(self, stream: str) -> bool:
        """True if a stream was committed before; some errors of a commit do not distinguish that."""
        try:
            found = self._client().get_write_stream(name=stream, retry=None, timeout=_TIMEOUT)
        except (exceptions.NotFound, exceptions.InvalidArgument):
            return False
        return bool(found.commit_time)

    def _sent(self, once: Callable[[], _Result], words: str | None = None) -> _Result:
        """Retries until there is an answer; an error is reported in ``words``, or else in BigQuery's."""
        what = f"cannot write table {self._name} of BigQuery"
        with attempts(lambda error: cause_of(error, what, words), self._name) as tried:
            retrying = tenacity.Retrying(
                retry=tenacity.retry_if_exception(self._is_transient),
                wait=tenacity.wait_random_exponential(multiplier=0.2, max=30),
                stop=tenacity.stop_after_delay(self._patience),
                before_sleep=tried.before_sleep,
                reraise=True,
            )
            try:
                return retrying(once)
            except _ERRORS as error:
                if isinstance(error, exceptions.BadRequest) and self._is_altered():
                    raise AlteredTableError(
                        f"table {self._name} of BigQuery was altered while it was written",
                        hint="The sink starts again and stops this table, with the repair, if it no longer fits.",
                    ) from None
                why, hint, _ = reason_of(error, words, code=_storage_code(error))
                if isinstance(error, _TRANSIENT):
                    raise DestinationUnavailableError(f"{what}: {why}", hint=hint) from None
                raise SinkError(f"{what}: {why}", hint=hint) from None

    def _is_transient(self, error: BaseException) -> bool:
        """True if the error is transient: also if the Storage Write API does not know a new table or column yet."""
        if isinstance(error, _TRANSIENT):
            return True
        if not isinstance(error, exceptions.NotFound | _MissingColumnError):
            return False
        found = self._found()
        return found is not None and found.lacks(self._table) == []

    def _is_altered(self) -> bool:
        """True if the table no longer has the types and the key that it was prepared with."""
        found = self._found()
        return found is not None and any(mismatches(self._name, self._table, found))

    def _found(self) -> ExistingTable | None:
        """The table as it is now."""
        client = BigQueryClient(self._target, patience=_TIMEOUT)
        return client.find(self._table.dataset, self._table.name)

    def _key(self, stream: str) -> tuple[object, ...]:
        """Of the connection: one for a dataset's default streams, and one for each pending stream."""
        if stream == self.default_stream and self._table.primary_key:  # a connection has changes only, or none
            return (self._target, self._table.dataset)
        return (self._target, "", stream)

    def _open(self, stream: str) -> Call:
        """Opens a connection with gRPC's own call, which can be cancelled before its first response."""
        metadata = [("x-goog-request-params", f"write_stream={stream}")]
        open_call = cast("Callable[..., Any]", self._client().transport.append_rows)
        return lambda requests: _Responses(open_call(requests, metadata=metadata))

    def _client(self) -> BigQueryWriteClient:
        return _client(self._target, os.getpid())

    def _expired(self) -> SinkError:
        return SinkError(
            f"a pending stream of table {self._name} of BigQuery has expired",
            hint="Run it again: none of its rows was visible, and all are written again.",
        )


class _Responses:
    """The responses of a gRPC call; its errors are raised as those of Google's clients."""

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


def _rejected(response: types.AppendRowsResponse) -> list[tuple[int, str]]:
    """The rejected rows.

    Raises:
        GoogleAPIError: the whole request is rejected.
    """
    if response.row_errors:
        return [(int(error.index), f"BigQuery rejects it: {error.message}") for error in response.row_errors]
    status = response.error
    if status.code == Code.OK:
        return []
    found = types.StorageError()
    for detail in status.details:
        detail.Unpack(types.StorageError.pb(found))
    if found.code == _StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS:
        raise _MissingColumnError(status.message)  # type: ignore[no-untyped-call]
    raise exceptions.from_grpc_status(_GRPC[status.code], status.message, details=list(status.details))


def _is_of_extra_fields(error: exceptions.GoogleAPICallError) -> bool:
    """True if a call ended because the table lacks a column; a response may say so as well."""
    code = _storage_code(error)
    return code == "SCHEMA_MISMATCH_EXTRA_FIELDS" if code else ("extra proto fields" in str(error.message).lower())


def _storage_code(error: exceptions.GoogleAPIError | auth_exceptions.GoogleAuthError) -> str:
    """The name of the StorageErrorCode in an error's details, or nothing."""
    if isinstance(error, exceptions.RetryError):
        error = error.cause
    found = types.StorageError()
    for detail in error.details if isinstance(error, exceptions.GoogleAPICallError) else ():
        if isinstance(detail, AnyMessage) and detail.Unpack(types.StorageError.pb(found)):
            return str(cast("Any", found.code).name)
    return ""


_GRPC = {code.value[0]: code for code in grpc.StatusCode}


@functools.cache
def _client(target: BigQueryTarget, process: int) -> BigQueryWriteClient:
    """A client of this process; a forked child needs its own connections."""
    assert process
    if not target.grpc_endpoint:
        return BigQueryWriteClient()
    if not target.is_emulated:
        return BigQueryWriteClient(client_options={"api_endpoint": target.grpc_endpoint})
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *DIRECT_CHANNEL]
    channel = grpc.insecure_channel(target.grpc_endpoint, options)
    return BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel))
