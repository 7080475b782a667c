"""A gRPC proxy before an emulator: it forwards raw bytes, and injects scripted faults.

A fault says which calls it applies to, after how many messages, what it does, and how often. The proxy reads only the
statement and the partition token of a query.
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
"""Instead of a code: the call never ends and sends nothing."""

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its method's name, and the statement and partition token of a query."""

    method: str
    sql: str = ""
    token: str = ""

    @property
    def reads_changes(self) -> bool:
        """True if it is a change stream query."""
        return "READ_" in self.sql or "read_json_" in self.sql

    @property
    def reads_partition(self) -> bool:
        """True if it is a change stream query of a partition, not the initial one."""
        return self.reads_changes and bool(self.token)


@dataclass(slots=True)
class CallFault:
    """A fault of calls.

    Args:
        code: the call ends with it; with OK it ends as if complete.
        message: the error's message.
        matches: selects the calls.
        after: how many messages pass first.
        times: how often the fault is injected.
        injected: how often it has been.
    """

    code: object
    message: str = ""
    matches: Callable[[Call], bool] = lambda call: call.reads_changes
    after: int = 0
    times: int = 1
    injected: int = field(default=0, init=False)


class Proxy:
    """The proxy, while its context is open; `host` is its address."""

    def __init__(self, target: str) -> None:
        self._upstream = grpc.insecure_channel(target, options=_OPTIONS)
        self._faults: list[CallFault] = []
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._port = 0
        self.calls: list[Call] = []

    @property
    def host(self) -> str:
        """The address at which it listens."""
        return f"127.0.0.1:{self._port}"

    def inject(self, *faults: CallFault) -> None:
        """Adds faults; a call gets the first one that matches it and is left."""
        with self._lock:
            self._faults += faults

    def up(self) -> None:
        """Listens, at the same address as before if there was one."""
        server = grpc.server(ThreadPoolExecutor(max_workers=64), handlers=[_Forwarding(self)], options=_OPTIONS)
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        server.start()
        self._server = server

    def down(self) -> None:
        """Drops every call and every connection, and stops listening."""
        assert self._server is not None
        self._server.stop(grace=None).wait(10)
        self._server = None

    def close(self) -> None:
        """Closes the proxy."""
        if self._server is not None:
            self.down()
        self._upstream.close()

    def unary(self, call: Call, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Forwards a call with one response."""
        fault = self._fault_of(call)
        if fault is not None and not fault.after:
            self._inject(fault, context)
        try:
            answer: bytes = self._upstream.unary_unary(call.method)(request, metadata=_headers(context))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details() or "")
            raise
        if fault is not None and fault.after:
            self._inject(fault, context)  # the call took effect, and its answer is lost
        return answer

    def stream(self, call: Call, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Forwards a call with a stream of responses."""
        fault = self._fault_of(call)
        upstream = self._upstream.unary_stream(call.method)(request, metadata=_headers(context))
        context.add_callback(upstream.cancel)
        passed = 0
        try:
            while fault is None or passed < fault.after:
                message = next(upstream, None)
                if message is None:
                    break
                passed += 1
                yield message
        except grpc.RpcError as error:
            if fault is None:
                context.abort(error.code(), error.details() or "")
        if fault is not None:
            upstream.cancel()
            self._inject(fault, context)

    def _fault_of(self, call: Call) -> CallFault | None:
        with self._lock:
            self.calls.append(call)
            for fault in self._faults:
                if fault.times > 0 and fault.matches(call):
                    fault.times -= 1
                    return fault
        return None

    def _inject(self, fault: CallFault, context: grpc.ServicerContext) -> None:
        with self._lock:
            fault.injected += 1
        if fault.code is SILENCE:
            ended = threading.Event()
            if context.add_callback(ended.set):
                ended.wait()
        elif fault.code is not grpc.StatusCode.OK:
            context.abort(fault.code, fault.message)


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
def proxied(target: str, *faults: CallFault) -> Iterator[Proxy]:
    """Starts a proxy before `target`."""
    proxy = Proxy(target)
    proxy.inject(*faults)
    proxy.up()
    try:
        yield proxy
    finally:
        proxy.close()
