"""Says why nothing can listen on the status page's address, and what to do."""

import errno
import socket

from connector.errors import advice

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
