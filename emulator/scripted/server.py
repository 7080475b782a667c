"""Serves a scripted Spanner over gRPC: sessions, streaming queries, connections that are reset.

`emulator.scripted.spanner` makes the answers. Messages stay bytes from there to the wire, and gRPC's flow control
pauses a query whose reader does not read.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager

import grpc
import grpc.aio
from google.cloud.spanner_admin_instance_v1 import InstanceConfig, ListInstanceConfigsResponse
from google.cloud.spanner_v1 import types
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.directed_reads import DirectedReads
from emulator.scripted.fault_plan import FaultPlan
from emulator.scripted.framing import Framing
from emulator.scripted.relay import Relay
from emulator.scripted.spanner import ResetError, ScriptedSpanner, SessionExpiredError
from emulator.scripted.stream_query import ScriptedError, invalid, reads_change_stream
from emulator.scripted.table_reads import TableReads
from emulator.scripted.wire import element, field, serialized

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_ReadRequest = types.ReadRequest.pb()
_BeginTransactionRequest = types.BeginTransactionRequest.pb()
_PartitionQueryRequest = types.PartitionQueryRequest.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_BatchCreateSessionsRequest = types.BatchCreateSessionsRequest.pb()
_BatchCreateSessionsResponse = types.BatchCreateSessionsResponse.pb()
_GetSessionRequest = types.GetSessionRequest.pb()
_DeleteSessionRequest = types.DeleteSessionRequest.pb()
_Session = types.Session.pb()
_DATABASE = re.compile(r"(projects/[^/]+/instances/[^/]+)/databases/[^/]+")
_NOT_STREAMING = (
    "Change stream queries are not supported for the ExecuteSql API. Change stream queries must be strong reads"
    " executed via single use transactions using the ExecuteStreamingSql API."
)
_NOT_STRONG = (
    "Change stream queries are not supported for multi use transactions. Change stream queries must be strong reads"
    " executed via single use transactions using the ExecuteStreamingSql API."
)
_MANY = 1_000_000
_Unary = Callable[[bytes], bytes]
_Streaming = Callable[[bytes], tuple[str, AsyncGenerator[bytes]]]
"""Takes a request; returns its session and the messages of the answer."""


class ScriptedServer:
    """A scripted Spanner that listens at `host` ("127.0.0.1:port"); `engine` has the counters and the fault plan.

    `tables` serves the rows of its tables, and `directed_reads` counts the replicas that requests ask for.
    """

    def __init__(self, handler: _CallHandler, host: str, relay: Relay | None) -> None:
        self.engine = handler.engine
        self.tables = handler.tables
        self.directed_reads = handler.directed_reads
        self._handler = handler
        self.host = host
        self._relay = relay

    @property
    def now(self) -> int:
        """The server's time, in nanoseconds since 1970."""
        return self.engine.clock.now()

    @property
    def database(self) -> str:
        """The database's full name: projects/P/instances/I/databases/D."""
        return _database(self.engine.scenario)

    def refuse(self, code: grpc.StatusCode, message: str, *, only_queries: bool = False) -> None:
        """Ends every call from now on with an error, or every query and read of a session, until `accept`.

        Queries that run already continue.
        """
        self._handler.refusal = (code, message, only_queries)

    def accept(self) -> None:
        """Answers calls again after `refuse`."""
        self._handler.refusal = None

    def want_token(self, token: str | None) -> None:
        """Ends every call with UNAUTHENTICATED from now on, unless it has that token; None wants none."""
        self._handler.token = token

    @property
    def resets(self) -> int:
        """The number of connections that have been reset."""
        return self._relay.resets if self._relay else 0

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        scenario: Scenario,
        *,
        faults: FaultPlan | None = None,
        begins: int | None = None,
        speed: float = 1.0,
        framing: Framing | None = None,
        max_streams_per_connection: int = 100,
        credentials: grpc.ServerCredentials | None = None,
    ) -> AsyncIterator[ScriptedServer]:
        """Serves in the running event loop while the context is open; see `started` for the arguments."""
        clock = ScriptedClock(scenario.history.origin if begins is None else begins, speed)
        engine = ScriptedSpanner(scenario, clock=clock, faults=faults, framing=framing)
        handler = _CallHandler(engine, TableReads(engine))
        options = (
            ("grpc.max_concurrent_streams", max_streams_per_connection),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.so_reuseport", 0),
            # By default gRPC sheds load: of thousands of simultaneous queries, some end with CANCELLED.
            ("grpc.server.max_pending_requests", _MANY),
            ("grpc.server.max_pending_requests_hard_limit", _MANY),
        )
        server = grpc.aio.server(handlers=[handler], options=options)
        address = "127.0.0.1:0"
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        await server.start()
        clock.start()
        try:
            if not engine.faults.may_reset:
                yield cls(handler, f"127.0.0.1:{port}", None)
            else:
                async with Relay.before(port) as relay:
                    handler.reset = relay.reset
                    yield cls(handler, f"127.0.0.1:{relay.port}", relay)
        finally:
            await server.stop(grace=None)
            engine.close()

    @classmethod
    @contextmanager
    def started(
        cls,
        scenario: Scenario,
        *,
        faults: FaultPlan | None = None,
        begins: int | None = None,
        speed: float = 1.0,
        framing: Framing | None = None,
        max_streams_per_connection: int = 100,
        credentials: grpc.ServerCredentials | None = None,
    ) -> Iterator[ScriptedServer]:
        """Serves in a separate thread while the context is open.

        Args:
            scenario: the history that is served.
            faults: the faults to inject. Connections can only be reset if the plan has such faults when the server
                starts.
            begins: the server's time when it starts, in nanoseconds since 1970; the history's origin if None. With the
                history's horizon all of it is a backlog.
            speed: how many times as fast as real time the server's time runs.
            framing: how rows are put into messages; one row in each if None.
            max_streams_per_connection: HTTP/2's limit, beyond which a connection's queries wait.
            credentials: the certificates of a server that wants encryption, as one of Spanner Omni may.
        """
        ready: Future[tuple[ScriptedServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            async with cls.serving(
                scenario,
                faults=faults,
                begins=begins,
                speed=speed,
                framing=framing,
                max_streams_per_connection=max_streams_per_connection,
                credentials=credentials,
            ) as server:
                ready.set_result((server, asyncio.get_running_loop(), stop))
                await stop.wait()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=run, name="scripted Spanner", daemon=True)
        thread.start()
        server, loop, stop = ready.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


class _CallHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library ships no types
    """Spanner's methods, on raw bytes."""

    def __init__(self, engine: ScriptedSpanner, tables: TableReads) -> None:
        self.engine = engine
        self.tables = tables
        self.directed_reads = DirectedReads()
        self._sessions = _Sessions(engine.scenario)
        self.reset: Callable[[int], bool] = lambda _: False
        self.refusal: tuple[grpc.StatusCode, str, bool] | None = None
        self.token: str | None = None
        sessions, service = self._sessions, "/google.spanner.v1.Spanner/"
        self._unary: Mapping[str, _Unary] = {
            f"{service}CreateSession": sessions.create,
            f"{service}BatchCreateSessions": sessions.create_batch,
            f"{service}GetSession": sessions.get,
            f"{service}DeleteSession": sessions.delete,
            f"{service}ExecuteSql": self._execute_sql,
            f"{service}BeginTransaction": self._in_session(_BeginTransactionRequest, tables.begin),
            f"{service}PartitionQuery": self._in_session(_PartitionQueryRequest, tables.partition_query),
            "/google.spanner.admin.instance.v1.InstanceAdmin/ListInstanceConfigs": self._list_instance_configs,
        }
        self._streaming_sql, self._streaming_read = f"{service}ExecuteStreamingSql", f"{service}StreamingRead"

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Finds a method's handler; a method without one is UNIMPLEMENTED."""
        if self.token is not None and ("authorization", f"Bearer {self.token}") not in details.invocation_metadata:
            return grpc.unary_stream_rpc_method_handler(_refuse_token)
        if details.method == self._streaming_sql:
            return grpc.unary_stream_rpc_method_handler(self._execute_streaming_sql)
        if details.method == self._streaming_read:
            return grpc.unary_stream_rpc_method_handler(self._read_by_key)
        known = self._unary.get(details.method)
        return None if known is None else grpc.unary_unary_rpc_method_handler(self._answering(known))

    async def _execute_streaming_sql(self, request: bytes, context: grpc.aio.ServicerContext) -> None:
        await self._answer(self._rows_of_statement, request, context)

    async def _read_by_key(self, request: bytes, context: grpc.aio.ServicerContext) -> None:
        await self._answer(self._rows_of_keys, request, context)

    async def _answer(self, stream: _Streaming, request: bytes, context: grpc.aio.ServicerContext) -> None:
        session = ""
        try:
            self._check_refusal(is_query=True)
            session, found = stream(request)
            async with aclosing(found) as messages:
                async for message in messages:
                    await context.write(message)
        except SessionExpiredError as error:
            self._sessions.forget(session)
            await context.abort(error.code, f"Session not found: {session}" if session else error.message)
        except ResetError as error:
            self.reset(_port(context.peer()))
            await context.abort(error.code, error.message)  # if there was no connection to reset
        except ScriptedError as error:
            await context.abort(error.code, error.message)

    def _answering(self, method: _Unary) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
        async def answer(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                self._check_refusal(is_query=False)
                return method(request)
            except ScriptedError as error:
                await context.abort(error.code, error.message)
                raise

        return answer

    def _check_refusal(self, *, is_query: bool) -> None:
        if self.refusal is not None and (is_query or not self.refusal[2]):
            raise ScriptedError(*self.refusal[:2])

    def _rows_of_statement(self, request: bytes) -> tuple[str, AsyncGenerator[bytes]]:
        node = _ExecuteSqlRequest.FromString(request)
        self._sessions.check(node.session)
        self.directed_reads.check(node)
        if node.transaction.id:
            return node.session, self.tables.execute(request)
        if reads_change_stream(node.sql):
            _check_stream(node)
        return node.session, self.engine.execute(node.sql, _parameters(node), _past(node.transaction))

    def _rows_of_keys(self, request: bytes) -> tuple[str, AsyncGenerator[bytes]]:
        node = _ReadRequest.FromString(request)
        self._sessions.check(node.session)
        self.directed_reads.check(node)
        return node.session, self.tables.read(request)

    def _in_session(self, kind: type[Message], method: _Unary) -> _Unary:
        def answer(request: bytes) -> bytes:
            self._sessions.check(kind.FromString(request).session)
            return method(request)

        return answer

    def _execute_sql(self, request: bytes) -> bytes:
        node = _ExecuteSqlRequest.FromString(request)
        self._sessions.check(node.session)
        if reads_change_stream(node.sql):
            raise invalid(_NOT_STREAMING)
        answer = self.engine.describe(node.sql, _parameters(node))
        rows = (field(2, b"".join(map(element, row))) for row in answer.rows)
        return field(1, answer.metadata) + b"".join(rows)

    def _list_instance_configs(self, _request: bytes) -> bytes:
        config = InstanceConfig(
            name=f"projects/{self.engine.scenario.project}/instanceConfigs/emulator-config",
            display_name="Scripted Instance Config",
        )
        found = ListInstanceConfigsResponse(instance_configs=[config])
        encoded: bytes = ListInstanceConfigsResponse.serialize(found)
        return encoded


async def _refuse_token(_request: bytes, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "The token is missing, or has expired.")


class _Sessions:
    """The existing sessions; each method takes a request and returns the response, or raises ScriptedError."""

    def __init__(self, scenario: Scenario) -> None:
        self._database = _database(scenario)
        self._instance = self._database.rpartition("/databases/")[0]
        self._known: dict[str, types.Session] = {}
        self._numbers = itertools.count(1)

    def create(self, request: bytes) -> bytes:
        node = _CreateSessionRequest.FromString(request)
        self._check_database(node.database)
        return serialized(self._new(node.session))

    def create_batch(self, request: bytes) -> bytes:
        node = _BatchCreateSessionsRequest.FromString(request)
        self._check_database(node.database)
        made = [self._new(node.session_template) for _ in range(max(1, node.session_count))]
        return serialized(_BatchCreateSessionsResponse(session=made))

    def get(self, request: bytes) -> bytes:
        name = _GetSessionRequest.FromString(request).name
        self.check(name)
        return serialized(self._known[name])

    def delete(self, request: bytes) -> bytes:
        self.forget(_DeleteSessionRequest.FromString(request).name)
        return b""

    def check(self, name: str) -> None:
        """Raises SessionExpiredError for a session that does not exist."""
        if name in self._known:
            return
        self._check_database(name.rpartition("/sessions/")[0])
        raise SessionExpiredError(name)

    def forget(self, name: str) -> None:
        """Deletes a session."""
        self._known.pop(name, None)

    def _new(self, template: types.Session) -> types.Session:
        session: types.Session = _Session(
            name=f"{self._database}/sessions/scripted-{next(self._numbers)}",
            multiplexed=template.multiplexed,
            creator_role=template.creator_role,
            labels=template.labels,
        )
        session.create_time.GetCurrentTime()
        self._known[session.name] = session
        return session

    def _check_database(self, name: str) -> None:
        match = _DATABASE.fullmatch(name)
        if match is None:
            raise invalid(f"Invalid {'database' if name.startswith('projects/') else 'project'} uri: {name}")
        if match[1] != self._instance:
            raise ScriptedError(grpc.StatusCode.NOT_FOUND, f"Instance not found: {match[1]}")
        if name != self._database:
            raise ScriptedError(grpc.StatusCode.NOT_FOUND, f"Database not found: {name}")


def _check_stream(node: types.ExecuteSqlRequest) -> None:
    """Reject a change stream query that is not a strong read in a single-use transaction, or has a resume token."""
    if node.HasField("transaction") and not node.transaction.single_use.read_only.strong:
        raise invalid(_NOT_STRONG)
    if node.resume_token:
        raise invalid("Change stream queries cannot be resumed by a resume_token: query from a later start_timestamp.")


def _past(transaction: types.TransactionSelector) -> int | None:
    """Returns the timestamp of a single-use transaction that reads in the past."""
    read_only = transaction.single_use.read_only
    if not read_only.HasField("read_timestamp"):
        return None
    return int(read_only.read_timestamp.ToNanoseconds())


def _parameters(node: types.ExecuteSqlRequest) -> dict[str, str | None]:
    return {name: _plain(value) for name, value in node.params.fields.items()}


def _plain(value: Value) -> str | None:
    match value.WhichOneof("kind"):
        case "string_value":
            return str(value.string_value)
        case "number_value":
            return str(int(value.number_value) if value.number_value.is_integer() else value.number_value)
        case "bool_value":
            return str(value.bool_value).lower()
    return None


def _database(scenario: Scenario) -> str:
    return f"projects/{scenario.project}/instances/{scenario.instance}/databases/{scenario.database}"


def _port(peer: str) -> int:
    """Returns the port of a peer such as ipv4:127.0.0.1:50000."""
    return int(peer.rpartition(":")[2])
