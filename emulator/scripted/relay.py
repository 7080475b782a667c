"""A TCP relay in front of a server on the same machine, which can reset single connections.

The server identifies a connection by the relay's port (in gRPC, the peer).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CLOSE_WITH_RESET = struct.pack("ii", 1, 0)
_READ = 256 * 1024


class Relay:
    """Relays connections to a port of 127.0.0.1; it listens on `port`, and `resets` counts the connections it reset."""

    def __init__(self, listener: socket.socket, target: int, group: asyncio.TaskGroup) -> None:
        self.port: int = listener.getsockname()[1]
        self.resets = 0
        self._listener = listener
        self._target = target
        self._group = group
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._to_reset: set[int] = set()

    @classmethod
    @asynccontextmanager
    async def before(cls, target: int) -> AsyncIterator[Relay]:
        """Relay to port `target` while the context is open."""
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            listener.setblocking(False)
            async with asyncio.TaskGroup() as group:
                relay = cls(listener, target, group)
                accepting = group.create_task(relay._accept(), name="relay accepts")
                try:
                    yield relay
                finally:
                    accepting.cancel()
                    for task in relay._tasks.values():
                        task.cancel()

    def reset(self, port: int) -> bool:
        """Resets the connection that reaches the server from `port`; returns False if there is none."""
        task = self._tasks.get(port)
        if task is None:
            return False
        self.resets += port not in self._to_reset
        self._to_reset.add(port)
        task.cancel()
        return True

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listener)
            self._group.create_task(self._relay(near), name="relay connection")

    async def _relay(self, near: socket.socket) -> None:
        """Relay a connection until both sides have closed it, or it breaks."""
        task = asyncio.current_task()
        assert task is not None
        far = socket.socket()
        port = 0
        try:
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self._target))
            port = far.getsockname()[1]
            self._tasks[port] = task
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(near, far), name="relay to the server")
                both.create_task(_pump(far, near), name="relay to the client")
        except* OSError:  # one side has closed, which ends the other
            pass
        finally:
            self._tasks.pop(port, None)
            if port in self._to_reset:
                self._to_reset.discard(port)
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_WITH_RESET)
            near.close()
            far.close()


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _READ):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)
