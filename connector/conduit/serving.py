"""``spanner-cdc serve``: a plugin's process, from the handshake to Conduit's word that it may end.

Ctrl-C in Conduit's terminal reaches this process too, and is ignored: Conduit stops its pipelines first, and then the
plugin. If Conduit is killed, this process ends by itself.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from google.protobuf.message import Message

from connector.conduit import handshake
from connector.conduit.messages import Acknowledgement, Configuration, Empty, Opening
from connector.conduit.settings import specification
from connector.conduit.socket_folder import SOCKET, no_socket, socket_folder
from connector.conduit.source_plugin import Context, SourcePlugin
from connector.errors import ConfigurationError
from connector.threads import in_background

_PARENT_INTERVAL = 1.0
"""Seconds between two looks at whether Conduit is alive."""

_GRACE = 0.5
"""Seconds that a call has to end after Conduit has said that the plugin may end; after two it kills the process."""

_MESSAGE_SIZE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_SERVING = b"\x08\x01"
"""``HealthCheckResponse`` with the status SERVING, which go-plugin asks for."""

Handler = Callable[[Message, Context], Awaitable[Message]]


async def serve() -> None:
    """Serves Conduit until it says that the plugin may end, or has ended itself.

    Raises:
        ConfigurationError: no socket can be created.
    """
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    with socket_folder(handshake.socket_parent(os.environ)) as folder:
        socket = folder / SOCKET
        async with _served(socket, ending), _while_parent_runs(ending):
            sys.stdout.write(handshake.line(socket))
            sys.stdout.flush()
            await ending.wait()
    loop.call_later(_GRACE, os._exit, 0)  # a thread in a call cannot be cancelled, and must not keep it


@asynccontextmanager
async def _served(socket: Path, ending: asyncio.Event) -> AsyncIterator[None]:
    server = grpc.aio.server(options=_MESSAGE_SIZE)
    source = SourcePlugin(handshake.utilities(os.environ))
    services = {
        "connector.v2.SpecifierPlugin": {"Specify": _unary(_specify)},
        "connector.v2.SourcePlugin": {
            "Configure": _unary(source.configure, Configuration),
            "Open": _unary(source.open, Opening),
            "Run": grpc.stream_stream_rpc_method_handler(
                source.run, request_deserializer=Acknowledgement.FromString, response_serializer=bytes
            ),
            "Stop": _unary(source.stop),
            "Teardown": _unary(source.teardown),
            **{f"LifecycleOn{event}": _unary(_nothing_to_do) for event in ("Created", "Updated", "Deleted")},
        },
        "plugin.GRPCController": {"Shutdown": _unary(_ends(ending))},
        "plugin.GRPCStdio": {"StreamStdio": grpc.unary_stream_rpc_method_handler(_silent(ending))},
        "grpc.health.v1.Health": {"Check": grpc.unary_unary_rpc_method_handler(_healthy)},
    }
    for name, methods in services.items():
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, methods)])
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise ConfigurationError([no_socket(str(socket.parent.parent), str(error))]) from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GRACE)


@asynccontextmanager
async def _while_parent_runs(ending: asyncio.Event) -> AsyncIterator[None]:
    """Sets ``ending`` when the process that has started this one has ended."""
    parent = os.getppid()

    async def watch() -> None:
        while os.getppid() == parent:  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(_PARENT_INTERVAL)
        ending.set()

    async with in_background(watch(), name="parent"):
        yield


def _unary(handler: Handler, request: type[Message] = Empty) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        handler, request_deserializer=request.FromString, response_serializer=_serialized
    )


def _serialized(message: Message) -> bytes:
    found: bytes = message.SerializeToString()
    return found


async def _specify(request: Message, context: Context) -> Message:
    del request, context
    return specification()


async def _nothing_to_do(request: Message, context: Context) -> Message:
    """Nothing is kept for a connector, so there is nothing to create, update or delete."""
    del request, context
    return Empty()


async def _healthy(request: bytes, context: Context) -> bytes:
    del request, context
    return _SERVING


def _silent(ending: asyncio.Event) -> Callable[[bytes, Context], Awaitable[None]]:
    """A stream of output that has none: go-plugin warns where there is no such stream."""

    async def stream(request: bytes, context: Context) -> None:
        del request, context
        await ending.wait()

    return stream


def _ends(ending: asyncio.Event) -> Handler:
    async def shutdown(request: Message, context: Context) -> Message:
        del request, context
        ending.set()
        return Empty()

    return shutdown
