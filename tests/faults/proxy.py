"""A gRPC proxy before an emulator that forwards raw bytes, and answers errors where it is told to.

Every rule is scripted: which calls it meets, after how many messages it strikes, what it does, how often. Messages
are not understood, but for the statement and the partition token that a query carries.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from google.cloud.spanner_v1 import types

_STREAMS = ("ExecuteStreamingSql", "StreamingRead")
_OWN_HEADERS = ("user-agent", "grpc-", ":")
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

SILENCE = object()
"""In the place of a code: the call goes on for ever and says nothing."""

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()


@dataclass(frozen=True, slots=True)
class Call:
    """A call that passes: its method's name, and the statement and partition token of a query."""

    method: str
    sql: str = ""
    token: str = ""

    @property
    def reads_changes(self) -> bool:
        """Whether it is a change stream query."""
        return "READ_" in self.sql or "read_json_" in self.sql

    @property
    def reads_partition(self) -> bool:
        """Whether it is a change stream query of a partition, not the initial one."""
        return self.reads_changes and bool(self.token)


@dataclass(slots=True)
class Trouble:
    """What happens to calls.

    `meets` chooses the calls; once `after` messages have passed, the call ends with `code` and `message`; that happens
    `times` times, then no more. With OK it ends as if there were no more to come.
    """

    code: object
    message: str = ""
    meets: Callable[[Call], bool] = lambda call: call.reads_changes
    after: int = 0
    times: int = 1
    struck: int = field(default=0, init=False)


class Proxy:
    """The proxy, while its context is open; `host` is its address."""

    def __init__(self, target: str) -> None:
        self._upstream = grpc.insecure_channel(target, options=_OPTIONS)
        self._troubles: list[Trouble] = []
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._port = 0
        self.calls: list[Call] = []

    @property
    def host(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def trouble(self, *troubles: Trouble) -> None:
        """Adds what is to happen; each call meets one trouble at most, the first that is left for it."""
        with self._lock:
            self._troubles += troubles

    def up(self) -> None:
        """Listens, at the same address as before if there was one."""
        server = grpc.server(ThreadPoolExecutor(max_workers=64), handlers=[_Forwarding(self)], options=_OPTIONS)
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        server.start()
        self._server = server

    def down(self) -> None:
        """Drops every call and every connection, and listens no more."""
        assert self._server is not None
        self._server.stop(grace=None).wait(10)
        self._server = None

    def close(self) -> None:
        """Ends it."""
        if self._server is not None:
            self.down()
        self._upstream.close()

    def unary(self, call: Call, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Passes a call on that has one answer."""
        trouble = self._meets(call)
        if trouble is not None:
            self._strike(trouble, context)
        try:
            answer: bytes = self._upstream.unary_unary(call.method)(request, metadata=_headers(context))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details() or "")
            raise
        return answer

    def stream(self, call: Call, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Passes a call on that has many."""
        trouble = self._meets(call)
        upstream = self._upstream.unary_stream(call.method)(request, metadata=_headers(context))
        context.add_callback(upstream.cancel)
        passed = 0
        try:
            while trouble is None or passed < trouble.after:
                message = next(upstream, None)
                if message is None:
                    break
                passed += 1
                yield message
        except grpc.RpcError as error:
            if trouble is None:
                context.abort(error.code(), error.details() or "")
        if trouble is not None:
            upstream.cancel()
            self._strike(trouble, context)

    def _meets(self, call: Call) -> Trouble | None:
        with self._lock:
            self.calls.append(call)
            for trouble in self._troubles:
                if trouble.times > 0 and trouble.meets(call):
                    trouble.times -= 1
                    return trouble
        return None

    def _strike(self, trouble: Trouble, context: grpc.ServicerContext) -> None:
        with self._lock:
            trouble.struck += 1
        if trouble.code is SILENCE:
            ended = threading.Event()
            if context.add_callback(ended.set):
                ended.wait()
        elif trouble.code is not grpc.StatusCode.OK:
            context.abort(trouble.code, trouble.message)


class _Forwarding(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library ships no types
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method
        if not method.endswith(_STREAMS):
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._proxy.unary(Call(method), request, context)
            )
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: self._proxy.stream(_query(method, request), request, context)
        )


def _query(method: str, request: bytes) -> Call:
    node = _ExecuteSqlRequest.FromString(request)
    tokens = [node.params.fields[name].string_value for name in ("partition_token", "p3") if name in node.params.fields]
    return Call(method, node.sql, "".join(tokens))


def _headers(context: grpc.ServicerContext) -> tuple[tuple[str, str], ...]:
    received: Iterable[tuple[str, str]] = context.invocation_metadata()
    return tuple((name, value) for name, value in received if not name.startswith(_OWN_HEADERS))


@contextmanager
def proxied(target: str, *troubles: Trouble) -> Iterator[Proxy]:
    """A proxy before `target`, listening."""
    proxy = Proxy(target)
    proxy.trouble(*troubles)
    proxy.up()
    try:
        yield proxy
    finally:
        proxy.close()
