"""Errors of the operating system are one line each: what failed, where, and what helps against that very error."""

import errno
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.check.offline import errors_of_folder
from connector.conduit.socket_folder import socket_folder
from connector.config.loading import load
from connector.errors import ConfigurationError, SpoolError, line_and_exit_code
from connector.spool.storage.gcs_files import Scratch
from connector.telemetry.listening import no_listening
from spark_sink.failures import line_and_code

ADVICE = {
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "fs.file-max",
    errno.ENOSPC: "Free space",
    errno.EACCES: "Give this user",
    errno.EROFS: "read-only: mount it writable",
    errno.ENAMETOOLONG: "Choose a shorter path",
}
Line = Callable[[pytest.MonkeyPatch, OSError], str]


def of_a_command(_: pytest.MonkeyPatch, error: OSError) -> str:
    return line_and_exit_code(error)[0]


def of_a_sink(_: pytest.MonkeyPatch, error: OSError) -> str:
    return line_and_code(error)[0]


def raising(error: OSError) -> Callable[..., object]:
    def failing(*_: object, **__: object) -> object:
        raise error

    return failing


def of_a_configuration(patch: pytest.MonkeyPatch, error: OSError) -> str:
    patch.setattr(Path, "read_text", raising(error))
    with pytest.raises(ConfigurationError) as caught:
        load("/some/file")
    return str(caught.value)


def of_a_file_for_a_bucket(patch: pytest.MonkeyPatch, error: OSError) -> str:
    patch.setattr(tempfile, "TemporaryFile", raising(error))
    with pytest.raises(SpoolError) as caught:
        Scratch(SpoolError).write(b"x")
    return str(caught.value)


def of_a_checked_folder(patch: pytest.MonkeyPatch, error: OSError) -> str:
    patch.setattr(Path, "exists", raising(error))
    (line,) = errors_of_folder("spool.path", "/some/file")
    return line


def of_a_plugins_socket(patch: pytest.MonkeyPatch, error: OSError) -> str:
    patch.setattr(tempfile, "TemporaryDirectory", raising(error))
    with pytest.raises(ConfigurationError) as caught, socket_folder("/some"):
        pass
    return str(caught.value)


@pytest.mark.parametrize("number", ADVICE, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "line",
    [of_a_command, of_a_sink, of_a_configuration, of_a_file_for_a_bucket, of_a_checked_folder, of_a_plugins_socket],
)
def test_an_error_of_the_system_is_one_line_with_what_helps(
    line: Line, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = line(monkeypatch, OSError(number, os.strerror(number), "/some/file"))
    assert os.strerror(number) in said
    assert ADVICE[number] in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("error", "port", "advised"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), 8080, "choose another, or 0"),
        (OSError(errno.EACCES, "Permission denied"), 80, "use a port from 1024 on"),
        (OSError(errno.EMFILE, "Too many open files"), 8080, "ulimit -n"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), 8080, "is not an address of this machine"),
        (socket.gaierror(-2, "Name or service not known"), 8080, "is not an address of this machine"),
    ],
)
def test_why_the_status_page_cannot_be_served_is_said_with_what_helps(error: OSError, port: int, advised: str) -> None:
    said = no_listening("10.0.0.1", port, error)
    assert said.startswith("status.")
    assert advised in said


def test_a_path_that_is_too_long_is_an_error_of_its_option(tmp_path: Path) -> None:
    (line,) = errors_of_folder("spool.path", str(tmp_path / ("x" * 300)))
    assert line.startswith("spool.path: ")
    assert "Choose a shorter path" in line
