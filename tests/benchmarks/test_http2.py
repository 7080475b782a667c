"""The server's side of HTTP/2 respects the client's windows, to the byte."""

from struct import pack, unpack

import pytest

from benchmarks.replay.http2 import PREFACE, Connection, frame

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
BODY = bytes(range(256)) * 400


class Client:
    """Parses the frames that a connection sends."""

    def __init__(self, initial_window: int | None = None) -> None:
        self.connection = Connection(lambda request: iter([BODY[:7], BODY[7:], b""]))
        settings = b"" if initial_window is None else pack("!HL", 4, initial_window)
        self.connection.receive(PREFACE + frame(_SETTINGS, 0, 0, settings))
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.frames: list[tuple[int, int, int, bytes]] = []

    def ask(self, stream: int) -> None:
        request = frame(_HEADERS, 4, stream, b"whatever") + frame(_DATA, 1, stream, b"\0\0\0\0\2ab")
        for byte in request:  # as a network may cut it
            self.connection.receive(bytes((byte,)))

    def open(self, stream: int, by: int) -> None:
        self.connection.receive(frame(_WINDOW_UPDATE, 0, stream, pack("!L", by)))

    def pull(self) -> None:
        """Reads everything that the connection sends now."""
        data = b""
        while buffers := self.connection.buffers(1 << 20):
            data += b"".join(buffers)
        while data:
            high, low, kind, flags, stream = unpack("!BHBBL", data[:9])
            end = 9 + (high << 16 | low)
            self.frames.append((kind, flags, stream, data[9:end]))
            if kind == _DATA:
                assert end - 9 <= 16 * 1024
                self.bodies[stream] = self.bodies.get(stream, b"") + data[9:end]
            if kind == _HEADERS and flags & 1:
                self.ended.add(stream)
            data = data[end:]


def test_a_stream_receives_as_much_as_its_window_allows_and_later_the_rest() -> None:
    client = Client(initial_window=10)
    client.ask(1)
    client.pull()
    assert client.bodies == {1: BODY[:10]}
    client.open(1, 5)
    client.pull()
    assert client.bodies == {1: BODY[:15]}
    assert not client.ended


def test_the_connections_window_is_shared() -> None:
    client = Client(initial_window=1 << 20)
    client.ask(1)
    client.ask(3)
    client.pull()
    assert sum(map(len, client.bodies.values())) == 65_535
    client.open(0, 1 << 20)
    client.pull()
    assert client.bodies == {1: BODY, 3: BODY}
    assert client.ended == {1, 3}


def test_trailers_need_no_window() -> None:
    client = Client(initial_window=len(BODY))
    client.open(0, len(BODY) - 65_535)
    client.ask(1)
    client.pull()
    assert client.bodies == {1: BODY}
    assert client.ended == {1}


def test_a_new_initial_window_applies_to_open_streams() -> None:
    client = Client(initial_window=10)
    client.ask(1)
    client.pull()
    client.connection.receive(frame(_SETTINGS, 0, 0, pack("!HL", 4, 4)))
    client.open(1, 6)  # which makes it 0, after it was -6
    client.pull()
    assert client.bodies == {1: BODY[:10]}
    client.connection.receive(frame(_SETTINGS, 0, 0, pack("!HL", 4, 5)))
    client.pull()
    assert client.bodies == {1: BODY[:11]}


def test_settings_and_pings_are_acknowledged() -> None:
    client = Client()
    client.connection.receive(frame(_PING, 0, 0, b"12345678"))
    client.pull()
    assert client.frames == [(_SETTINGS, 0, 0, b""), (_SETTINGS, 1, 0, b""), (_PING, 1, 0, b"12345678")]


def test_the_servers_window_is_restored_after_a_request() -> None:
    client = Client()
    client.ask(1)
    client.pull()
    assert (_WINDOW_UPDATE, 0, 0, pack("!L", 7)) in client.frames


@pytest.mark.parametrize("has_a_turn", [True, False])
def test_a_stream_that_is_reset_sends_nothing_more(*, has_a_turn: bool) -> None:
    client = Client(initial_window=10)
    client.ask(1)
    if not has_a_turn:
        client.pull()
    client.connection.receive(frame(_RST_STREAM, 0, 1, pack("!L", 8)))
    client.open(1, 10)
    client.pull()
    assert client.bodies.get(1, b"") == (b"" if has_a_turn else BODY[:10])
    assert not client.connection.has_more
