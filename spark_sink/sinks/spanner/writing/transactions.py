"""Read-write transactions of the destination: each reads the bookkeeping row first, and writes only if that allows it.

A session has one transaction at a time, so there is one for each thread that commits. A transaction that Spanner
aborts, or whose answer is lost, is done again from its read on: where its first commit took effect, the row that it
reads says so. A commit of a process that was killed cannot take effect after another process has written that row: it
was read in the same transaction (https://cloud.google.com/spanner/docs/transactions).
"""

import queue
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import grpc
from google.cloud.spanner_v1 import types
from google.protobuf.message import Message

from connector.errors import SpannerCdcError
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import CREATE_SESSION, SETUP_TIMEOUT, STRING, call_headers, session_name
from connector.spanner.errors import CallAction, CallError, gone_container, is_lost_session, setup_error
from spark_sink.sinks.spanner.destination_tables import WRITER
from spark_sink.sinks.spanner.writing.retried_calls import RetriedError, repeated

THREADS = 4
"""Transactions at a time."""

_PATIENCE = 300.0
"""Seconds for which a transaction is tried again; then the sink's process ends, and is started again."""

_CALL_TIMEOUT = 120.0
_EXECUTE = "/google.spanner.v1.Spanner/ExecuteSql"
_COMMIT = "/google.spanner.v1.Spanner/Commit"
_ROLLBACK = "/google.spanner.v1.Spanner/Rollback"
_DELETE_SESSION = "/google.spanner.v1.Spanner/DeleteSession"

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_ResultSet = types.ResultSet.pb()
_CommitRequest = types.CommitRequest.pb()
_RollbackRequest = types.RollbackRequest.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_DeleteSessionRequest = types.DeleteSessionRequest.pb()

_SIZE_CODES = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
_OF_THE_DATA = {
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
}

_OF_THE_TRANSACTION = re.compile(
    r"invalid transaction|(\w+ ){0,2}transaction\b.{0,80}\b(invalidated|not found|already|closed|expired|was aborted)",
    re.IGNORECASE | re.DOTALL,
)
"""Begins the message of a commit whose transaction, not its data, is refused: it is done again. Values come later."""

_TOO_LARGE = re.compile(
    r"too many mutations|transaction exceeds the maximum|transaction is too large|message larger than max"
    r"|request payload size exceeds",
    re.IGNORECASE,
)

Read = list[str]
"""The values of a row, as text."""


class RefusedWriteError(Exception):
    """Spanner refuses the mutations of a commit for what they are; its text is Spanner's, and may hold values.

    Attributes:
        code: Spanner's.
        brief: the code alone, for logs.
        is_too_large: whether the commit has more than Spanner takes.
    """

    def __init__(self, found: CallError) -> None:
        super().__init__(str(found))
        self.code = found.code
        self.brief = f"Spanner refuses it with {found.code.name}"
        self.is_too_large = found.code in _SIZE_CODES and _TOO_LARGE.search(found.message) is not None


class SinkTransactions(AbstractContextManager["SinkTransactions"]):
    """Transactions of one database; in the end sessions are deleted, those that can be, and the channel is closed.

    Args:
        client: the connection.
        tag: of every transaction.
        select: reads the bookkeeping row.
        parameters: of ``select``, texts by name.

    Attributes:
        unanswered: how many commits were not answered, and may take effect later.
    """

    def __init__(self, client: BlockingClient, tag: str, select: str, parameters: Mapping[str, str]) -> None:
        self._client = client
        self._tag = tag
        self._select = select
        self._parameters = parameters
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.unanswered = 0

    def __exit__(self, *_: object) -> None:
        try:
            while not self._free.empty():
                session = self._free.get_nowait()
                with suppress(RetriedError, SpannerCdcError):  # Spanner deletes it after an hour
                    self._call(_DELETE_SESSION, session, _DeleteSessionRequest(name=session), SETUP_TIMEOUT)
        finally:
            self._client.close()

    def run(self, decide: Callable[[Read | None], Sequence[Message]]) -> Read | None:
        """Commits what is decided after the bookkeeping row was read, in one transaction.

        Args:
            decide: returns the mutations for the row's values, or for None if there is no such row; without mutations
                nothing is committed. It is called again for each attempt; what it raises is raised.

        Returns:
            The row's values as the last attempt has read them; None if there was no such row.

        Raises:
            RefusedError: Spanner refuses the mutations.
            SpannerCdcError: the database cannot be reached, or refuses the access.
        """

        def attempt() -> Read | None:
            with self._session() as session:
                return self._attempt(session, decide)

        part = self._client.database
        return repeated(attempt, self._client, WRITER, "write", part, patience=_PATIENCE, first_pause=0.02)

    def _attempt(self, session: str, decide: Callable[[Read | None], Sequence[Message]]) -> Read | None:
        transaction, row = self._started(session)
        try:
            mutations = decide(row)
        except Exception:
            self._roll_back(session, transaction)
            raise
        if not mutations:
            self._roll_back(session, transaction)
            return row
        request = _CommitRequest(session=session, transaction_id=transaction, mutations=mutations)
        request.request_options.transaction_tag = self._tag
        try:
            self._call(_COMMIT, session, request, _CALL_TIMEOUT, of_data=True)
        except RetriedError as error:
            if error.found.code is not grpc.StatusCode.ABORTED:
                self.unanswered += 1
            raise
        return row

    def _started(self, session: str) -> tuple[bytes, Read | None]:
        """A new transaction, and the bookkeeping row."""
        request = _ExecuteSqlRequest(session=session, sql=self._select)
        request.transaction.begin.read_write.SetInParent()
        request.request_options.transaction_tag = self._tag
        for name, value in self._parameters.items():
            request.params.fields[name].string_value = value
            request.param_types[name].code = STRING
        answer = _ResultSet.FromString(self._call(_EXECUTE, session, request, _CALL_TIMEOUT))
        rows = [[value.string_value for value in row.values] for row in answer.rows]
        return answer.metadata.transaction.id, rows[0] if rows else None

    def _roll_back(self, session: str, transaction: bytes) -> None:
        with suppress(RetriedError, SpannerCdcError):  # its locks end with the session at the latest
            self._call(_ROLLBACK, session, _RollbackRequest(session=session, transaction_id=transaction), SETUP_TIMEOUT)

    @contextmanager
    def _session(self) -> Iterator[str]:
        """A session that no other thread uses; it is not used again after an error that it may have caused."""
        try:
            session = self._free.get_nowait()
        except queue.Empty:
            database = self._client.database
            request = _CreateSessionRequest(database=database)
            answer = self._call(CREATE_SESSION, database, request, SETUP_TIMEOUT, of="database")
            session = session_name(answer)
        is_lost = False
        try:
            yield session
        except RetriedError as error:
            is_late = error.found.code is grpc.StatusCode.DEADLINE_EXCEEDED  # it may be executed yet
            is_lost = is_late or error.found.action is CallAction.NEW_SESSION
            raise
        finally:
            if not is_lost:
                self._free.put(session)

    def _call(
        self, method: str, resource: str, request: object, within: float, *, of: str = "session", of_data: bool = False
    ) -> bytes:
        headers = call_headers(self._client.database, of, resource)
        try:
            call = self._client.channel.unary_unary(method)
            answer: bytes = call(request.SerializeToString(), metadata=headers, timeout=within)  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            found = self._client.failed(error)
            if of_data and found.code in _OF_THE_DATA:
                is_gone = is_lost_session(found) or is_of_the_transaction(found)
                found = replace(found, action=CallAction.NEW_SESSION if is_gone else CallAction.STOP)
            if found.action is not CallAction.STOP:
                raise RetriedError(_without_values(found)) from error
            is_of_data = found.code in _OF_THE_DATA and not gone_container(found)
            if of_data and (is_of_data or found.code is grpc.StatusCode.RESOURCE_EXHAUSTED):
                raise RefusedWriteError(found) from error
            raise setup_error(found, self._client.database, WRITER) from error
        return answer


def is_of_the_transaction(found: CallError) -> bool:
    """True if a commit was refused because its transaction is gone, so that it may be done again."""
    return found.code in _OF_THE_DATA and _OF_THE_TRANSACTION.match(found.message) is not None


def _without_values(found: CallError) -> CallError:
    return replace(found, message="its message may hold values") if found.code in _OF_THE_DATA else found
