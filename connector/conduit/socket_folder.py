"""The folder of the socket on which a plugin listens: of its own, and removed after it."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connector.errors import ConfigurationError, advice

SOCKET = "plugin.sock"
_PREFIX, _DRAWN = "spanner-cdc-", 8
_LONGEST = 107 if sys.platform == "linux" else 103
"""Bytes of a socket's path; 103 is macOS's."""

_SHORT = "/tmp"  # noqa: S108 - the folder below it is drawn, and nobody else may read it


@contextmanager
def socket_folder(parent: str | None) -> Iterator[Path]:
    """Creates the folder; removes it at the end.

    Args:
        parent: where it must be; None for anywhere that is short enough: the folder of temporary files, or ``/tmp``.

    Raises:
        ConfigurationError: no socket can be there.
    """
    chosen = parent or _anywhere()
    if not _is_short(chosen):
        raise ConfigurationError(
            [f"PLUGIN_UNIX_SOCKET_DIR: {chosen}: its path is too long for a socket: use a shorter one"]
        )
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=chosen)
    except OSError as error:
        why = error.strerror or str(error)
        hint = advice(error, option="PLUGIN_UNIX_SOCKET_DIR", access="write")
        raise ConfigurationError([no_socket(chosen, f"{why}. {hint}" if hint else why)]) from error
    with folder as name:
        yield Path(name)


def no_socket(folder: str, why: str) -> str:
    """The error of a folder that cannot hold a socket, in one line."""
    return f"{folder}: no socket can be created in it: {why}"


def _anywhere() -> str:
    try:
        usual = tempfile.gettempdir()
    except OSError as error:
        raise ConfigurationError(["there is no folder of temporary files that can be written: set TMPDIR"]) from error
    return usual if _is_short(usual) else _SHORT


def _is_short(parent: str) -> bool:
    return len(os.fsencode(parent)) + len(f"/{_PREFIX}/{SOCKET}") + _DRAWN <= _LONGEST
