"""A TCP link to a server; it can be cut, or fall silent while its connections stay open."""

import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Link:
    """Forwards connections to `target` ("host:port") while its context is open; `host` is its address."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._speaking = threading.Event()
        self._speaking.set()
        self._up = threading.Event()
        self._up.set()
        self._ended = threading.Event()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Resets every connection, and returns how many there were; new ones are accepted."""
        with self._lock:
            cut = list(self._open)
        for end in cut:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                end.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def down(self) -> None:
        """Resets every connection, and new ones too, until :meth:`up`."""
        self._up.clear()
        self.cut()

    def up(self) -> None:
        """Accepts new connections again."""
        self._up.set()

    def fall_silent(self) -> None:
        """Stops forwarding in both directions; no connection ends."""
        self._speaking.clear()

    def speak(self) -> None:
        """Forwards again, waiting data first."""
        self._speaking.set()

    def close(self) -> None:
        """Closes the link and its connections."""
        self._ended.set()
        self._speaking.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._up.is_set():
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                near.close()
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
                self.connections += 1
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with suppress(OSError):
            ended = False
            while not ended:
                readable, _, _ = select.select([near, far], [], [], 1.0)
                for end in readable:
                    data = end.recv(65536)
                    self._speaking.wait()
                    ended = ended or not data
                    other[end].sendall(data)
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()


@contextmanager
def linked(target: str) -> Iterator[Link]:
    """Opens a link to `target`."""
    link = Link(target)
    try:
        yield link
    finally:
        link.close()
