"""Frames over a connected socket: a body is received into memory of Arrow's, where it stays.

A Unix socket with one copy on each side costs less than asyncio's streams, which copy once more, and than a memory file
that is passed, whose pages are new each time.
"""

import asyncio
import socket
from collections.abc import Iterable

import pyarrow as pa

from connector.spanner.workers.frames import HEADER, BytesLike, Frame, parsed

_READ_AHEAD = 64 * 1024
_SOCKET_BUFFER = 2 * 1024 * 1024


class FramedSocket:
    """One end of a connection; used in one event loop, by one sender and one receiver at a time."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        self._socket = connected
        self._ahead = memoryview(bytearray(_READ_AHEAD))
        self._unread = self._ahead[:0]

    async def send(self, buffers: Iterable[BytesLike]) -> None:
        """Sends the bytes of frames; small buffers are joined.

        Raises:
            OSError: the other end is closed.
        """
        loop = asyncio.get_running_loop()
        small: list[BytesLike] = []
        for buffer in buffers:
            if len(buffer) < _READ_AHEAD:
                small.append(buffer)
                continue
            await loop.sock_sendall(self._socket, b"".join(small))
            await loop.sock_sendall(self._socket, buffer)
            small = []
        await loop.sock_sendall(self._socket, b"".join(small))

    async def receive(self) -> Frame | None:
        """The next frame, or None where the other end is closed, even in the middle of a frame."""
        header = bytearray(HEADER.size)
        try:
            await self._fill(memoryview(header))
            size, body_size = HEADER.unpack(header)
            message = bytearray(size)
            await self._fill(memoryview(message))
            body = pa.allocate_buffer(body_size) if body_size else None
            if body is not None:
                await self._fill(memoryview(body).cast("B"))
        except (EOFError, ConnectionError):
            return None
        return parsed(message, body)

    async def _fill(self, target: memoryview) -> None:
        """Fills ``target`` with the bytes that arrive next.

        Raises:
            EOFError: the other end is closed.
        """
        loop = asyncio.get_running_loop()
        while len(target):
            if not self._unread and len(target) >= _READ_AHEAD:
                count = await loop.sock_recv_into(self._socket, target)
            else:
                if not self._unread:
                    self._unread = self._ahead[: await loop.sock_recv_into(self._socket, self._ahead)]
                count = min(len(target), len(self._unread))
                target[:count] = self._unread[:count]
                self._unread = self._unread[count:]
            if not count:
                raise EOFError
            target = target[count:]

    def close(self) -> None:
        """Closes this end."""
        self._socket.close()
