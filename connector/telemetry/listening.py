"""The status page's address: why nothing can listen there, and the connections that it holds."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from connector.errors import advice

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler
    from aiohttp.web_server import Server

_RESERVED = 1024
"""Ports below it need rights of their own."""

_OTHER_PORT = "choose another, or 0 for any that is free"


def no_listening(host: str, port: int, error: OSError) -> str:
    """The line for an address of the configuration on which the system lets no process listen."""
    reason = error.strerror or error
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"status.host: {host} is not an address of this machine ({reason}): use 127.0.0.1 or 0.0.0.0"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"status.port: {host}:{port} cannot be used ({reason}). {advice(error)}"
    if error.errno == errno.EACCES and port < _RESERVED:
        return f"status.port: {host}:{port} cannot be used ({reason}): use a port from {_RESERVED} on"
    return f"status.port: {host}:{port} cannot be used ({reason}): {_OTHER_PORT}"


class Connections:
    """The connections of the status server, which anyone may open: a bounded number, each with a request before long.

    Args:
        server: makes the protocol of each connection.
        most: connections at once; a further one ends the one that has been idle for longest.
        patience: seconds until the first request of a connection is whole.
        clock: in seconds.
    """

    def __init__(
        self, server: "Server", *, most: int, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._most = most
        self._patience = patience
        self._clock = clock
        self._opened: dict[RequestHandler, float | None] = {}

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if len(self._opened) >= self._most:
            self.close_silent()
        while len(self._opened) >= self._most:
            self._end(next(iter(self._opened)))
        handler = self._server()
        self._opened[handler] = self._clock()
        return handler

    def heard(self, handler: "RequestHandler") -> None:
        """Notes that a connection has sent a whole request."""
        self._opened.pop(handler, None)
        self._opened[handler] = None

    def close_silent(self) -> None:
        """Ends connections that have not sent a request for too long, and forgets those that have ended."""
        now, held = self._clock(), set(self._server.connections)
        for handler, since in [*self._opened.items()]:
            if since is None and handler not in held:
                del self._opened[handler]
            elif since is not None and now - since >= self._patience:
                self._end(handler)

    def _end(self, handler: "RequestHandler") -> None:
        del self._opened[handler]
        asyncio.get_running_loop().call_soon(_abort, handler)  # one of a burst has no transport before


def _abort(handler: "RequestHandler") -> None:
    if isinstance(handler.transport, asyncio.WriteTransport):
        handler.transport.abort()
