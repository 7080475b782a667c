"""The server's side of an HTTP/2 connection, as far as gRPC needs it. Bytes in, buffers out: no sockets, no clock.

It exists because a benchmark's server must not be the bottleneck. grpc-python's server sends some 20,000 messages a
second; this one sends slices of pre-encoded bodies, with a frame header of nine bytes before each, so that only copying
is left.

What it omits, and why that is safe:

- Header blocks are not read, so it needs no HPACK: the request's message shows which method is called. The blocks that
  it sends use the static table and plain literals, so nothing depends on a dynamic table.
- There is no priority, no push, and no limit on what clients send: they send requests of some hundred bytes.

What it implements because clients depend on it: settings and pings are acknowledged, and nothing is sent beyond the
client's windows, of the connection and of each stream.
"""

from collections import deque
from collections.abc import Callable, Iterator
from struct import Struct

Buffer = bytes | memoryview
Respond = Callable[[bytes], Iterator[Buffer]]
"""Takes a request's message and returns its response: messages with gRPC's prefix, cut anywhere."""

FRAME = 16 * 1024
"""The most bytes of a DATA frame, which every client accepts."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK, _END_STREAM, _END_HEADERS, _PADDED = 1, 1, 4, 8
_INITIAL_WINDOW_SIZE = 4
_DEFAULT_WINDOW = 65_535

_HEADER = Struct("!BHBBL")
_SETTING = Struct("!HL")
_NUMBER = Struct("!L")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns a whole frame."""
    return _head(len(payload), kind, flags, stream) + payload


def _head(length: int, kind: int, flags: int, stream: int) -> bytes:
    return _HEADER.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def _literal(name: bytes, value: bytes) -> bytes:
    """Returns a literal header that is not indexed."""
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


_OK = b"\x88" + _literal(b"content-type", b"application/grpc")
"""The header block of every response; 0x88 is ``:status 200`` in the static table."""

_TRAILERS = _literal(b"grpc-status", b"0")


class _Stream:
    """A call: first its request as it is received, then its response as it is sent."""

    __slots__ = ("answer", "held", "request", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.request = bytearray()
        self.answer: Iterator[Buffer] | None = None
        self.held = memoryview(b"")

    def has_ended(self) -> bool:
        """True if the response is complete; if not, some of it is in ``held`` after the call."""
        assert self.answer is not None
        while not self.held:
            more = next(self.answer, None)
            if more is None:
                return True
            self.held = memoryview(more)
        return False


class Connection:
    """A client's connection.

    Args:
        respond: returns the response to a request. Its iterators are consumed only as the client's windows open.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._received = bytearray()
        self._preface = len(PREFACE)
        self._window = _DEFAULT_WINDOW
        self._initial_window = _DEFAULT_WINDOW
        self._streams: dict[int, _Stream] = {}
        self._turns: deque[int] = deque()
        """Streams that have something to send and may have an open window; the next one first."""
        self._out: list[Buffer] = [frame(_SETTINGS, 0, 0)]

    def receive(self, data: bytes) -> None:
        """Processes bytes that the client has sent."""
        if self._preface:
            skipped = min(self._preface, len(data))
            self._preface -= skipped
            data = data[skipped:]
        self._received += data
        at, held = 0, self._received
        while len(held) - at >= 9:
            high, low, kind, flags, stream = _HEADER.unpack_from(held, at)
            end = at + 9 + (high << 16 | low)
            if len(held) < end:
                break
            self._process(kind, flags, stream & 0x7FFF_FFFF, bytes(held[at + 9 : end]))
            at = end
        del held[:at]

    def buffers(self, most: int) -> list[Buffer]:
        """Returns what is to be sent now, about ``most`` bytes; nothing while the client's windows are closed."""
        out, self._out = self._out, []
        for _ in range(max(most // FRAME, 1)):
            if not self._turns:
                break
            stream = self._turns.popleft()
            if self._frame(stream, out):
                self._turns.append(stream)
        return out

    @property
    def has_more(self) -> bool:
        """True if `buffers` may return something."""
        return bool(self._out) or bool(self._turns)

    def _frame(self, number: int, out: list[Buffer]) -> bool:
        """Adds a stream's next frame to ``out``; returns whether it may have another."""
        stream = self._streams[number]
        if stream.has_ended():  # trailers need no window
            out.append(frame(_HEADERS, _END_HEADERS | _END_STREAM, number, _TRAILERS))
            del self._streams[number]
            return False
        most = min(FRAME, self._window, stream.window)
        if most <= 0:
            return False
        content, stream.held = stream.held[:most], stream.held[most:]
        self._window -= len(content)
        stream.window -= len(content)
        out.append(_head(len(content), _DATA, 0, number))
        out.append(content)
        return True

    def _process(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._streams[number] = _Stream(self._initial_window)
        elif kind == _DATA:
            self._request(flags, number, payload)
        elif kind == _WINDOW_UPDATE:
            self._opened(number, _NUMBER.unpack(payload)[0])
        elif kind == _SETTINGS and not flags & _ACK:
            self._settings(payload)
        elif kind == _PING and not flags & _ACK:
            self._out.append(frame(_PING, _ACK, 0, payload))
        elif kind == _RST_STREAM and self._streams.pop(number, None) is not None and number in self._turns:
            self._turns.remove(number)

    def _request(self, flags: int, number: int, payload: bytes) -> None:
        if payload:
            self._out.append(frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(len(payload))))
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.request += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        if flags & _END_STREAM:
            stream.answer = self._respond(bytes(stream.request[5:]))  # after gRPC's prefix
            self._out.append(frame(_HEADERS, _END_HEADERS, number, _OK))
            self._turns.append(number)

    def _opened(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        elif number in self._streams:
            self._streams[number].window += more
        self._resume_waiting()

    def _settings(self, payload: bytes) -> None:
        self._out.append(frame(_SETTINGS, _ACK, 0))
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self._initial_window
                self._initial_window = value
        self._resume_waiting()

    def _resume_waiting(self) -> None:
        """Lets streams that waited for a window send again."""
        if self._window <= 0:
            return
        waiting = self._streams.keys() - set(self._turns)
        ready = (number for number in waiting if self._streams[number].answer and self._streams[number].window > 0)
        self._turns.extend(sorted(ready))
