"""Replays a change stream's bytes from a separate process, as fast as a client reads them.

One thread waits for sockets; `benchmarks.replay.http2` implements the protocol. A request with a statement is a query,
which its partition token identifies; any other request creates a session.
"""

import multiprocessing
import multiprocessing.connection
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.replay.http2 import Buffer, Connection
from benchmarks.replay.messages import Span
from benchmarks.replay.request import Request
from benchmarks.replay.sample import prefixed
from emulator.scripted.wire import field, number_field

_SENT_AT_ONCE = 256 * 1024
_RECEIVED_AT_ONCE = 64 * 1024


class Replayed(Protocol):
    """The recording that is replayed."""

    def prepare(self, span: Span, /) -> None:
        """Renders what is needed for a span, or some of it."""

    def respond(self, request: Request, /) -> Iterator[Buffer]:
        """Yields the response to a query: messages with gRPC's prefix, cut anywhere."""
        ...


@dataclass(frozen=True, slots=True)
class ReplayServer:
    """A running server: its address and its process."""

    host: str
    pid: int
    replay: Replayed


class _Client:
    """A client's socket, with the bytes that were not sent yet."""

    def __init__(self, connected: socket.socket, replay: Replayed) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self._connection = Connection(lambda request: answer(replay, request))
        self._unsent: list[Buffer] = []

    def receive(self) -> bool:
        """Receives what has arrived; returns whether the client is still connected."""
        try:
            data = self.socket.recv(_RECEIVED_AT_ONCE)
        except BlockingIOError:
            return True
        self._connection.receive(data)
        return bool(data)

    def send(self) -> bool:
        """Sends some of the pending bytes; returns whether there are more."""
        self._unsent = self._unsent or self._connection.buffers(_SENT_AT_ONCE)
        if self._unsent:
            try:
                self._unsent = _rest(self._unsent, self.socket.sendmsg(self._unsent))
            except BlockingIOError:
                return True
        return bool(self._unsent) or self._connection.has_more


def _rest(buffers: list[Buffer], sent: int) -> list[Buffer]:
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []


def answer(replay: Replayed, request: bytes) -> Iterator[Buffer]:
    """Returns the response to a request."""
    parsed = Request.of(request)
    if not parsed.is_query:
        session = parsed.resource if "/sessions/" in parsed.resource else f"{parsed.resource}/sessions/replayed"
        return iter([prefixed(field(1, session.encode()) + number_field(6, 1))])
    return replay.respond(parsed)


def serve(listener: socket.socket, replay: Replayed, lifeline: multiprocessing.connection.Connection) -> None:
    """Serves until the other end of the lifeline is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(lifeline, selectors.EVENT_READ)
        while True:
            for key, ready in selector.select():
                if key.fileobj is lifeline:
                    return
                if key.fileobj is listener:
                    client = _Client(listener.accept()[0], replay)
                    selector.register(client.socket, selectors.EVENT_READ, client)
                elif not _turn(key.data, ready, selector):
                    selector.unregister(key.data.socket)
                    key.data.socket.close()


def _turn(client: _Client, ready: int, selector: selectors.BaseSelector) -> bool:
    try:
        if ready & selectors.EVENT_READ and not client.receive():
            return False
        more = client.send()
    except ConnectionError:
        return False
    selector.modify(client.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if more else 0), client)
    return True


def _run(replay: Replayed, span: Span, lifeline: multiprocessing.connection.Connection) -> None:
    replay.prepare(span)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        lifeline.send(listener.getsockname()[1])
        serve(listener, replay, lifeline)


@contextmanager
def replaying(replay: Replayed, span: Span) -> Iterator[ReplayServer]:
    """Runs a server while the context is open; it has rendered ``span`` before it accepts connections."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_run, args=(replay, span, far))
    process.start()
    far.close()
    try:
        assert process.pid is not None
        yield ReplayServer(f"127.0.0.1:{near.recv()}", process.pid, replay)
    finally:
        near.close()  # which ends it
        process.join(5)
        process.kill()
