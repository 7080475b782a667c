"""A gRPC server that replays prepared bytes to any streaming query; it runs in a process of its own."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection

import grpc
from google.cloud.spanner_v1 import types

Session = types.Session.pb()
CreateSessionRequest = types.CreateSessionRequest.pb()
_SERVICE = "google.spanner.v1.Spanner"


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        match handler_call_details.method:
            case "/google.spanner.v1.Spanner/CreateSession":
                return grpc.unary_unary_rpc_method_handler(self._create, CreateSessionRequest.FromString, _serialize)
            case "/google.spanner.v1.Spanner/ExecuteStreamingSql":
                return grpc.unary_stream_rpc_method_handler(lambda request, context: iter(self._messages))
            case _:
                return None

    @staticmethod
    def _create(request: object, context: object) -> object:
        return Session(name=f"{request.database}/sessions/s", multiplexed=True)  # type: ignore[attr-defined]


def _serialize(message: object) -> bytes:
    return message.SerializeToString()  # type: ignore[attr-defined, no-any-return]


def _serve(messages: list[bytes], port: Connection) -> None:
    server = grpc.server(ThreadPoolExecutor(4), [_Handler(messages)])
    port.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


@contextmanager
def replaying(messages: list[bytes]) -> Iterator[str]:
    """A server's ``host:port`` for as long as the context is open."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(messages, sender), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{receiver.recv()}"
    finally:
        process.kill()
        process.join()
