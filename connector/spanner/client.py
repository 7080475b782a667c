"""Calls to Spanner on raw gRPC stubs: credentials, the session, headers, and statements that return rows.

google-cloud-spanner's result sets are not used for the stream: they take much more processor time, restart on their own
without limit, and return rows at resume tokens only. Its protocol buffers are used. One multiplexed session serves all
queries. A stream has no deadline: its reader limits how long it may be silent.
"""

import asyncio
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from urllib.parse import quote

import google.auth
import grpc
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.config.address import DatabaseAddress
from connector.config.emulator_address import emulator_options
from connector.core.timestamps import SECOND
from connector.credentials import why_unusable
from connector.errors import SpannerCdcError, UnreachableError
from connector.process import EMULATOR_HOST
from connector.proxies import grpc_proxy
from connector.spanner.decoding.chunks import ValueAssembler
from connector.spanner.emulators import PATIENCE, SILENCE, checked_address
from connector.spanner.errors import READER, Access, CallAction, classify, no_answer_hint, setup_error
from connector.spanner.omni.certificates import certified_channel
from connector.spanner.omni.handshake import refused_connection
from connector.spanner.omni.texts import with_token_option
from connector.spanner.omni.tokens import TokenFile
from connector.spanner.tokens import Tokens
from connector.spanner.transport import Transport

SETUP_TIMEOUT = 20.0
"""Seconds that a call before reading may take."""

DATA = ("https://www.googleapis.com/auth/spanner.data",)
ADMIN = ("https://www.googleapis.com/auth/spanner.admin",)
"""OAuth scopes: for rows, and for the tables themselves."""

USER_AGENT = f"spanner-cdc-spark/{version('spanner-cdc-spark')}"
API_CLIENT = f"gl-python/{platform.python_version()} grpc/{grpc.__version__} gccl/{version('spanner-cdc-spark')}"
STREAMING_SQL = "/google.spanner.v1.Spanner/ExecuteStreamingSql"
CREATE_SESSION = "/google.spanner.v1.Spanner/CreateSession"

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_Metadata = types.ResultSetMetadata.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_Session = types.Session.pb()
_Priority = types.RequestOptions.Priority
_PRIORITIES = {"low": _Priority(1), "medium": _Priority(2), "high": _Priority(3)}
_ReplicaSelection = types.DirectedReadOptions.ReplicaSelection.pb()
_REPLICA_TYPES = {None: 0, "READ_WRITE": 1, "READ_ONLY": 2}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A statement's parameter: its text, or None for NULL, and its google.spanner.v1.TypeCode."""

    value: str | None
    code: int


TIMESTAMP, STRING, INT64 = 4, 6, 2
"""google.spanner.v1.TypeCode of the parameters that are sent."""


def set_options(
    request: types.ExecuteSqlRequest | types.ReadRequest, rpc_priority: str, address: DatabaseAddress
) -> None:
    """Gives a read its priority, and the replicas that the address names.

    See https://cloud.google.com/spanner/docs/directed-reads.
    """
    request.request_options.priority = _PRIORITIES[rpc_priority]
    reads = address.directed_reads
    if reads is None:
        return
    options = request.directed_read_options
    if reads.auto_failover_disabled:
        options.include_replicas.auto_failover_disabled = True
    listed = options.include_replicas if reads.include else options.exclude_replicas
    for one in reads.include or reads.exclude:
        listed.replica_selections.append(_ReplicaSelection(location=one.location, type_=_REPLICA_TYPES[one.type]))


@dataclass(slots=True)
class SpannerClient:
    """A database's connection; used inside ``async with client.connected()``.

    Args:
        address: the database.
        rpc_priority: low, medium or high.
        access: who has access, for hints.
    """

    address: DatabaseAddress
    rpc_priority: str = "high"
    access: Access = READER
    _transport: Transport | None = None
    _tokens: Tokens | TokenFile | None = None
    _session: str | None = None
    _is_found: bool = False
    """True if the address of an emulator, or of Spanner Omni, was seen to accept a connection."""
    _session_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator["SpannerClient"]:
        """Finds the credentials and opens channels; closes every channel at the end."""
        if self.address.emulator_host:
            checked_address(self.address.emulator_host, self.access.section)
        self._tokens, credentials = await asyncio.to_thread(credentials_for, self.address)
        self._transport = Transport(self.host, credentials, user_agent=USER_AGENT)
        try:
            yield self
        finally:
            await self._transport.close()

    @property
    def database(self) -> str:
        """The database's resource name."""
        return self.address.path

    @property
    def host(self) -> str:
        """The address of Spanner, or of the emulator."""
        return self.address.host

    @property
    def proxy(self) -> str:
        """The environment variable with the proxy that calls go through; empty if there is none."""
        return "" if self.address.is_plain else grpc_proxy(self.host)

    async def rows(self, sql: str, *, at: int | None = None) -> list[list[object]]:
        """The rows of a statement that reads metadata; strings, numbers as Spanner's JSON values, booleans.

        ``at`` is a timestamp in the past, Unix nanoseconds; None for a strong read.

        Raises:
            SpannerCdcError: one clear line; transient errors have been retried for a while.
        """
        if (self.address.emulator_host or self.address.omni) and not self._is_found:
            await self._find_server()
        deadline = asyncio.get_running_loop().time() + SETUP_TIMEOUT
        pause = 0.1
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    assembler = ValueAssembler()
                    values = [
                        _plain(Value.FromString(value))
                        async for messages in self.stream(sql, {}, at=at)
                        for value in assembler.values(messages)
                    ]
                    columns = len(_Metadata.FromString(assembler.metadata or b"").row_type.fields) or 1
                    return [values[start : start + columns] for start in range(0, len(values), columns)]
            except TimeoutError as error:
                raise UnreachableError(
                    f"Spanner did not answer for {self.database} within {SETUP_TIMEOUT:.0f} s",
                    hint=no_answer_hint(self.access.section, self.proxy),
                ) from error
            except grpc.RpcError as error:
                found = replace(classify(error), proxy=self.proxy)
                now = asyncio.get_running_loop().time()
                is_first = found.action is CallAction.WAIT and self._session is None  # nothing was accepted yet
                if found.action is CallAction.STOP or is_first or now + pause > deadline:
                    cause = error.with_traceback(None)  # gRPC's frames explain nothing, and would be 50 lines
                    cause.__cause__ = None
                    raised = setup_error(found, self.database, self.access)
                    if found.action is CallAction.WAIT and not is_first:  # they were accepted before, and may be again
                        raised = UnreachableError(raised.args[0], hint=raised.hint)
                    raise raised from cause
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

    async def _find_server(self) -> None:
        """Finds an emulator or a server of Spanner Omni, which are near or absent."""
        assert self._transport is not None
        if why := await self._transport.accepts(PATIENCE, SILENCE):
            if self.address.omni is not None and not self.proxy:
                raise await asyncio.to_thread(refused_connection, self.address, why)
            what, hint = "emulator", f"Start it, or correct {emulator_options(self.access.section)}."
            if self.address.omni is not None:
                what, hint = "Omni server", no_answer_hint(self.access.section, self.proxy)
            raise UnreachableError(f"no Spanner {what} answers at {self.host}: {why}", hint=hint)
        self._is_found = True

    async def stream(
        self, sql: str, parameters: Mapping[str, Parameter], *, behind: bool = False, at: int | None = None
    ) -> AsyncGenerator[list[bytes]]:
        """The messages of a statement, in a single-use read-only transaction, as they are pulled.

        Each is the bytes of a google.spanner.v1.PartialResultSet; those that have arrived meanwhile are returned
        together. While nothing is pulled, gRPC's flow control stops the server. Ending the iteration cancels the call.

        Args:
            sql: the statement.
            parameters: its parameters, by name.
            behind: whether the stream has a backlog; a wrong value costs only speed.
            at: the transaction's timestamp, Unix nanoseconds; None for a strong read.

        Raises:
            grpc.RpcError: the call failed; see :func:`connector.spanner.errors.classify`.
        """
        session: str | None = None
        assert self._transport is not None
        try:
            session = await self._current_session()
            request = self._request(session, sql, parameters, at)
            headers = call_headers(self.database, "session", session)
            async with self._transport.streaming(STREAMING_SQL, request, headers, behind=behind) as take:
                while messages := await take():
                    yield messages
        except grpc.RpcError as error:
            action = classify(error).action
            if action is CallAction.NEW_SESSION and self._session == session:
                self._session = None
            if action is CallAction.WAIT and self._tokens is not None:
                self._tokens.renew()
            if action is CallAction.WAIT and self.address.omni is not None:
                raise _with_details(error, with_token_option(error.details() or "", self.address.omni)) from error
            raise

    def _request(self, session: str, sql: str, parameters: Mapping[str, Parameter], at: int | None) -> bytes:
        request = _ExecuteSqlRequest(session=session, sql=sql)
        read_only = request.transaction.single_use.read_only
        if at is None:
            read_only.strong = True
        else:
            read_only.read_timestamp.seconds, read_only.read_timestamp.nanos = divmod(at, SECOND)
        set_options(request, self.rpc_priority, self.address)
        for name, parameter in parameters.items():
            if parameter.value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = parameter.value
            request.param_types[name].code = parameter.code
        encoded: bytes = request.SerializeToString()
        return encoded

    async def _current_session(self) -> str:
        async with self._session_lock:
            if self._session is None:
                request = create_session_request(self.database, self.address.database_role)
                assert self._transport is not None
                headers = call_headers(self.database, "database", self.database)
                try:
                    answer = await self._transport.unary(CREATE_SESSION, request, headers, SETUP_TIMEOUT)
                except grpc.aio.AioRpcError as error:
                    raise _with_details(error, f"no session can be created: {error.details()}") from error
                self._session = session_name(answer)
            return self._session


def _with_details(error: grpc.RpcError, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        error.code(), error.initial_metadata(), error.trailing_metadata(), details, error.debug_error_string()
    )


def create_session_request(database: str, database_role: str | None) -> bytes:
    """The request for a multiplexed session."""
    request = _CreateSessionRequest(database=database)
    request.session.multiplexed = True
    if database_role:
        request.session.creator_role = database_role
    encoded: bytes = request.SerializeToString()
    return encoded


def session_name(answer: bytes) -> str:
    """The name in the response to :func:`create_session_request`."""
    return str(_Session.FromString(answer).name)


def call_headers(database: str, parameter: str, resource: str) -> tuple[tuple[str, str], ...]:
    """The headers of a call, which name the resource that routes it."""
    return (
        ("google-cloud-resource-prefix", database),
        ("x-goog-request-params", f"{parameter}={quote(resource, safe='')}"),
        ("x-goog-api-client", API_CLIENT),
    )


def credentials_for(
    address: DatabaseAddress, scopes: Sequence[str] = DATA
) -> tuple[Tokens | TokenFile | None, grpc.ChannelCredentials | None]:
    """The access tokens for a database, and the credentials of its channels; None for a channel in plain text.

    Raises:
        SpannerCdcError: there are none, or those of Spanner Omni are invalid.
    """
    server = address.omni
    if address.is_plain:
        return None, None
    if server is None:
        tokens = tokens_of_application(scopes)
        return tokens, tokens.channel_credentials()
    assert server.tls is not None, "else it is plain text"
    channel = certified_channel(server, server.tls)
    if server.token_file is None:
        return None, channel
    token = TokenFile(server, server.token_file)
    token.check()
    return token, token.channel_credentials(channel)


def tokens_of_application(scopes: Sequence[str] = DATA) -> Tokens:
    """The access tokens of the application default credentials."""
    try:
        found, _ = google.auth.default(scopes=scopes)
    except (google.auth.exceptions.GoogleAuthError, ValueError, AttributeError) as error:  # of a file that is a list
        why, hint = why_unusable()
        raise SpannerCdcError(why, hint=f"{hint}; for an emulator set {EMULATOR_HOST}.") from error
    return Tokens(found)


def _plain(value: Value) -> object:
    kind = value.WhichOneof("kind")
    return None if kind in (None, "null_value") else getattr(value, kind)
