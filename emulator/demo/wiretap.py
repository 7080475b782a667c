"""A relay in front of the emulator that records every byte: the queries a reader sent, what the emulator returned.

The recording is decoded only if a transaction is missing. gRPC messages are extracted from HTTP/2 DATA frames; no other
part of HTTP/2 is needed, because neither side compresses messages here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError

from connector.core.timestamps import parse
from emulator.demo.plain_stream import PlainRecords, PlainStreamError, plain_records

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_READ = 256 * 1024
_DATA, _PADDED = 0x0, 0x8
_START, _END, _TOKEN = ("start_timestamp", "p1"), ("end_timestamp", "p2"), ("partition_token", "p3")


class WiretapError(Exception):
    """The recording cannot be decoded; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """A recorded change stream query, and what the emulator returned; timestamps are nanoseconds since 1970."""

    token: str
    start: int
    end: int | None
    records: PlainRecords

    @property
    def reached(self) -> int:
        """The latest timestamp of its records; 0 without records."""
        of_mods = (mod.commit_timestamp for mod in self.records.mods)
        return max([*of_mods, *self.records.heartbeats, *(start for _, start in self.records.children)], default=0)


@dataclass(slots=True)
class _TappedConnection:
    requests: bytearray = field(default_factory=bytearray)
    responses: bytearray = field(default_factory=bytearray)


class Wiretap:
    """Relays connections to a server and records them; `host` is the address it listens on."""

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self.host = f"127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self._target = target
        self._connections: list[_TappedConnection] = []
        self._sockets: list[socket.socket] = []

    @classmethod
    @contextmanager
    def before(cls, host: str) -> Iterator[Wiretap]:
        """Runs a wiretap in front of the server at `host` ("127.0.0.1:9010") while the context is open."""
        name, _, port = host.rpartition(":")
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            tap = cls(listener, (name, int(port)))
            threading.Thread(target=tap._accept, name="wiretap", daemon=True).start()
            try:
                yield tap
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                for one in tap._sockets:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)

    def queries(self) -> list[LiveQuery]:
        """Every partition query that was recorded so far, in no order.

        Raises:
            WiretapError: the recording cannot be decoded.
        """
        return [query for connection in list(self._connections) for query in _queries(connection)]

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(near,), name="wiretap connection", daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._target) as far:
            connection = _TappedConnection()
            self._connections.append(connection)
            self._sockets += (near, far)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_pump, args=(far, near, connection.responses), daemon=True)
            back.start()
            _pump(near, far, connection.requests)
            back.join()


def _pump(source: socket.socket, target: socket.socket, recording: bytearray) -> None:
    with suppress(OSError):  # one side has closed, which ends the other
        while data := source.recv(_READ):
            recording += data
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _queries(connection: _TappedConnection) -> Iterator[LiveQuery]:
    responses = _streams(bytes(connection.responses))
    for stream, requests in _streams(bytes(connection.requests).removeprefix(_PREFACE)).items():
        for message in _messages(requests):
            query = _query(message, responses.get(stream, b""))
            if query is not None:
                yield query


def _query(message: bytes, response: bytes) -> LiveQuery | None:
    try:
        request = types.ExecuteSqlRequest.pb().FromString(message)
    except DecodeError:
        return None  # another method's request
    if "READ_" not in request.sql and "read_json_" not in request.sql:
        return None
    start, end, token = (_parameter(request.params.fields, names) for names in (_START, _END, _TOKEN))
    if token is None or start is None:
        return None
    try:
        records = plain_records(_messages(response), token)
    except (PlainStreamError, DecodeError) as error:
        raise WiretapError(f"wiretap: a response of the emulator cannot be decoded: {error}") from error
    return LiveQuery(token, parse(start), None if end is None else parse(end), records)


def _parameter(fields: object, names: tuple[str, str]) -> str | None:
    for name in names:
        if name in fields:  # type: ignore[operator]
            value = fields[name]  # type: ignore[index]
            return str(value.string_value) if value.WhichOneof("kind") == "string_value" else None
    return None


def _streams(raw: bytes) -> dict[int, bytes]:
    """The data of each stream of one direction; an incomplete frame is omitted."""
    streams: dict[int, bytearray] = {}
    at = 0
    while at + 9 <= len(raw):
        length = int.from_bytes(raw[at : at + 3])
        kind, flags = raw[at + 3], raw[at + 4]
        stream = int.from_bytes(raw[at + 5 : at + 9]) & 0x7FFFFFFF
        payload = raw[at + 9 : at + 9 + length]
        at += 9 + length
        if kind != _DATA or len(payload) < length:
            continue
        if flags & _PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        streams.setdefault(stream, bytearray()).extend(payload)
    return {stream: bytes(data) for stream, data in streams.items()}


def _messages(data: bytes) -> Iterator[bytes]:
    """The gRPC messages in a stream's data; an incomplete one is omitted."""
    at = 0
    while at + 5 <= len(data):
        length = int.from_bytes(data[at + 1 : at + 5])
        if data[at]:
            raise WiretapError("a message is compressed")
        if at + 5 + length <= len(data):
            yield data[at + 5 : at + 5 + length]
        at += 5 + length
