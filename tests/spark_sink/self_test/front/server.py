"""A front before the official emulator: with it, change streams may be of the mode MUTABLE_KEY_RANGE, with placements.

All calls are passed on, and so tables, commits and the other change streams are the emulator's. Only these differ: the
options of such streams, what INFORMATION_SCHEMA shows of them, their queries, and AddSplitPoints.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.cloud.spanner_admin_database_v1 import (
    AddSplitPointsRequest,
    CreateDatabaseRequest,
    DatabaseDialect,
    DropDatabaseRequest,
    UpdateDatabaseDdlRequest,
)
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.core.timestamps import parse
from connector.spanner.decoding.chunks import ValueAssembler
from emulator.scripted.read_functions import read_functions
from emulator.scripted.row_types import read_function
from emulator.scripted.stream_query import ScriptedError
from emulator.workload.tables import Dialect
from tests.spark_sink.self_test.front.catalog import Catalog, Statement, function_in, statement_of
from tests.spark_sink.self_test.front.lineage import Lineage
from tests.spark_sink.self_test.front.recording import EmulatedStream, Recording

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_Session = types.Session.pb()
_SERVICE = "/google.spanner.v1.Spanner/"
_ADMIN = "/google.spanner.admin.database.v1.DatabaseAdmin/"
_STREAMING = (f"{_SERVICE}ExecuteStreamingSql", f"{_SERVICE}StreamingRead")
_OWN_HEADERS = ("user-agent", "content-type", "te", "accept-encoding", "authorization")
_LIMITS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Nature:
    """The differences between a front and the emulator.

    Attributes:
        placements: names, the default one first; empty if the option per_placement_tvf is refused.
        has_plain: whether a stream with placements also has the function without a placement.
        copies: how often the mod of a number is recorded, where that is not once: a planted fault.
    """

    placements: tuple[str, ...] = ()
    has_plain: bool = False
    copies: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class FrontDatabase:
    """A database of the emulator.

    Attributes:
        session: of the front's own.
        catalog: what INFORMATION_SCHEMA shows.
        recordings: the streams that the front serves, by name.
        by_function: the same, by their read functions in lower case.
        writing: held while a commit is on its way.
    """

    session: str
    catalog: Catalog
    recordings: dict[str, Recording] = field(default_factory=dict)
    by_function: dict[str, Recording] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def forget(self, stream: str) -> None:
        """Forgets a change stream that is dropped."""
        self.catalog.mutable.pop(stream, None)
        self.catalog.functions.pop(stream, None)
        self.recordings.pop(stream, None)
        if task := self.tasks.pop(stream, None):
            task.cancel()


class Front(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library ships no types
    """Spanner's methods, on raw bytes; see `fronted`."""

    def __init__(self, channel: grpc.aio.Channel, nature: Nature, group: asyncio.TaskGroup) -> None:
        self._channel = channel
        self._nature = nature
        self._group = group
        self._databases: dict[str, FrontDatabase] = {}
        self._changed = {
            f"{_ADMIN}CreateDatabase": self._create_database,
            f"{_ADMIN}DropDatabase": self._drop_database,
            f"{_ADMIN}UpdateDatabaseDdl": self._update_ddl,
            f"{_ADMIN}AddSplitPoints": self._add_split_points,
            f"{_SERVICE}Commit": self._commit,
        }

    def close(self) -> None:
        """Forgets every database."""
        for database in self._databases.values():
            for stream in list(database.tasks):
                database.forget(stream)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Finds a method's handler."""
        method = details.method
        if method in _STREAMING:

            async def stream(request: bytes, context: grpc.aio.ServicerContext) -> None:
                await _ending(self._stream(method, request, context), context)

            return grpc.unary_stream_rpc_method_handler(stream)

        async def answer(request: bytes, context: grpc.aio.ServicerContext) -> Any:
            changed = self._changed.get(method)
            return await _ending(changed(request) if changed else self._call(method, request, context), context)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _call(self, method: str, request: bytes, context: grpc.aio.ServicerContext | None = None) -> bytes:
        headers = _headers(context) if context else ()
        found: bytes = await self._channel.unary_unary(method)(request, metadata=headers, timeout=_SECONDS)
        return found

    async def _stream(self, method: str, request: bytes, context: grpc.aio.ServicerContext) -> None:
        if method == _STREAMING[0]:
            node = _ExecuteSqlRequest.FromString(request)
            database = self._databases.get(node.session.rpartition("/sessions/")[0])
            if database is not None:
                if recording := database.by_function.get(function_in(node.sql)):
                    await _answer(recording, node, context)
                    return
                node.sql = database.catalog.shown(node.sql)
                request = node.SerializeToString()
        call = self._channel.unary_stream(method)(request, metadata=_headers(context))
        try:
            async for message in call:
                await context.write(message)
        finally:
            call.cancel()

    async def _create_database(self, request: bytes) -> bytes:
        node = CreateDatabaseRequest.deserialize(request)
        answer = await self._call(f"{_ADMIN}CreateDatabase", request)
        identity = node.create_statement.split()[-1].strip('`"')
        name = f"{node.parent}/databases/{identity}"
        dialect: Dialect = "postgresql" if node.database_dialect == DatabaseDialect.POSTGRESQL else "googlesql"
        session = _CreateSessionRequest(database=name).SerializeToString()
        made = _Session.FromString(await self._call(f"{_SERVICE}CreateSession", session))
        self._databases[name] = FrontDatabase(made.name, Catalog(dialect, self._nature.placements))
        return answer

    async def _drop_database(self, request: bytes) -> bytes:
        name = DropDatabaseRequest.deserialize(request).database
        if database := self._databases.pop(name, None):
            for stream in list(database.tasks):
                database.forget(stream)
        return await self._call(f"{_ADMIN}DropDatabase", request)

    async def _update_ddl(self, request: bytes) -> bytes:
        node = UpdateDatabaseDdlRequest.deserialize(request)
        database = self._databases[node.database]
        has_placements = bool(self._nature.placements)
        statements = [statement_of(sql, has_placements=has_placements) for sql in node.statements]
        node.statements = [statement.sql for statement in statements]
        answer = await self._call(f"{_ADMIN}UpdateDatabaseDdl", UpdateDatabaseDdlRequest.serialize(node))
        for statement in statements:
            if statement.dropped:
                database.forget(statement.dropped)
            if statement.created:
                await self._created(database, statement)
        return answer

    async def _created(self, database: FrontDatabase, statement: Statement) -> None:
        stream, dialect = statement.created, database.catalog.dialect
        if not statement.is_mutable:
            database.catalog.functions[stream] = [read_function(dialect, "IMMUTABLE_KEY_RANGE", stream)]
            return
        placements = self._nature.placements if statement.per_placement else ()
        lineage = Lineage(await self._now(database), placements, self._nature.copies)

        def call(request: bytes) -> AsyncIterator[bytes]:
            found: AsyncIterator[bytes] = self._channel.unary_stream(_STREAMING[0])(request, timeout=_SECONDS)
            return found

        recording = Recording(
            EmulatedStream(call, database.session, dialect, stream),
            lambda: self._now(database),
            lineage,
            has_plain=self._nature.has_plain,
        )
        functions = [function.name for function in read_functions(recording.engine.scenario, lineage.origin)]
        database.catalog.mutable[stream] = statement.per_placement
        database.catalog.functions[stream] = functions
        database.recordings[stream] = recording
        plain = read_function(dialect, "MUTABLE_KEY_RANGE", stream)  # the engine refuses it if there is none
        database.by_function |= {name.lower(): recording for name in (plain, *functions)}
        database.tasks[stream] = self._group.create_task(recording.follow(), name=f"recording {stream}")

    async def _add_split_points(self, request: bytes) -> bytes:
        node = AddSplitPointsRequest.deserialize(request)
        database = self._databases[node.database]
        keys = [f"{point.table} {key.key_parts}" for point in node.split_points for key in point.keys]
        at = await self._now(database)
        for recording in database.recordings.values():
            for number, key in enumerate(keys):
                recording.split(at + number, key, ends=number == len(keys) - 1)
        return b""

    async def _commit(self, request: bytes) -> bytes:
        name = types.CommitRequest.pb().FromString(request).session.rpartition("/sessions/")[0]
        database = self._databases[name]
        async with database.writing:
            answer = await self._call(f"{_SERVICE}Commit", request)
            for recording in database.recordings.values():
                recording.written.set()
        return answer

    async def _now(self, database: FrontDatabase) -> int:
        """The emulator's clock, while no commit is on its way: each one before has an earlier timestamp."""
        request = _ExecuteSqlRequest(session=database.session, sql="SELECT CURRENT_TIMESTAMP").SerializeToString()
        assembler, found = ValueAssembler(), list[bytes]()
        async with database.writing:
            async for message in self._channel.unary_stream(_STREAMING[0])(request, timeout=_SECONDS):
                found += assembler.values([message])
        return parse(Value.FromString(found[0]).string_value)


async def _answer(recording: Recording, node: types.ExecuteSqlRequest, context: grpc.aio.ServicerContext) -> None:
    """Answers a query of a change stream that the front serves."""
    parameters = {name: value.string_value or None for name, value in node.params.fields.items()}
    start = parameters.get("start_timestamp") or parameters.get("p1")
    if start:  # what is recorded may be behind the emulator's clock
        await recording.clock.reach(min(parse(start), await recording.until()))
    async with aclosing(recording.engine.execute(node.sql, parameters)) as messages:
        async for message in messages:
            await context.write(message)


async def _ending(work: Any, context: grpc.aio.ServicerContext) -> Any:
    """Ends a call as the emulator or the engine does."""
    try:
        return await work
    except grpc.aio.AioRpcError as error:
        context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
        await context.abort(error.code(), error.details() or "")
    except ScriptedError as error:
        await context.abort(error.code, error.message)


def _headers(context: grpc.aio.ServicerContext) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (name, value)
        for name, value in context.invocation_metadata() or ()
        if name not in _OWN_HEADERS and not name.startswith(("grpc-", ":"))
    )


@asynccontextmanager
async def _serving(host: str, nature: Nature) -> AsyncIterator[str]:
    async with grpc.aio.insecure_channel(host, options=_LIMITS) as channel, asyncio.TaskGroup() as group:
        front = Front(channel, nature, group)
        server = grpc.aio.server(handlers=[front], options=(*_LIMITS, ("grpc.so_reuseport", 0)))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(grace=None)
            front.close()


@contextmanager
def fronted(host: str, nature: Nature) -> Iterator[str]:
    """The address of a front before an emulator, which runs in a thread while the context is open."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with _serving(host, nature) as address:
            ready.set_result((address, asyncio.get_running_loop(), stop))
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="front", daemon=True)
    thread.start()
    address, loop, stop = ready.result()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
