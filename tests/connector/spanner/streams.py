"""A gRPC server in the running loop, whose answer to every call a test defines."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

METHOD = "/google.spanner.v1.Spanner/ExecuteStreamingSql"

Answer = Callable[[grpc.aio.ServicerContext], Awaitable[None]]


def pump_threads() -> list[threading.Thread]:
    """The threads of this process's pumps."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("pump")]


@dataclass(slots=True)
class Served:
    """The server's side."""

    host: str
    open: int = 0
    """Calls that are being answered."""
    peers: set[str] = field(default_factory=set)
    """The connections that calls came by."""
    headers: list[dict[str, str]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, open_: int) -> None:
        """Waits until so many calls are being answered."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.open == open_)


@asynccontextmanager
async def serving(answer: Answer, *, safely_at: Path | None = None) -> AsyncIterator[Served]:
    """Answers every call with ``answer``, which writes bytes to the call's context; may be on a secure socket."""

    async def handle(_: bytes, context: grpc.aio.ServicerContext) -> None:
        served.peers.add(context.peer())
        served.headers.append({key: value for key, value in context.invocation_metadata() if isinstance(value, str)})
        await counted(1)
        try:
            await answer(context)
        finally:
            await counted(-1)

    async def counted(more: int) -> None:
        async with served.changed:
            served.open += more
            served.changed.notify_all()

    handler = grpc.unary_stream_rpc_method_handler(handle)
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers((_Every(handler),))
    if safely_at is None:
        served = Served(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    else:
        served = Served(f"unix:{safely_at}")
        server.add_secure_port(served.host, grpc.local_server_credentials(grpc.LocalConnectionType.UDS))
    await server.start()
    try:
        yield served
    finally:
        await server.stop(grace=None)


class _Every(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library ships no types
    def __init__(self, handler: grpc.RpcMethodHandler) -> None:
        self._handler = handler

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return self._handler


async def write_all(context: grpc.aio.ServicerContext, *messages: bytes) -> None:
    for message in messages:
        await context.write(message)


async def never(_: grpc.aio.ServicerContext) -> None:
    """Says nothing."""
    await asyncio.Event().wait()
