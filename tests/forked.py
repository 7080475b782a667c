"""Processes of `spanner-cdc` that are forked from one which has already imported what it imports.

Each is a process of its own, with its own arguments, folder, environment, files and signals. Only the imports, most of
a short command's processor time, are made once for all tests. A command whose Python would start with other
variables is not forked.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import FrameType

_LONGEST = 200_000
_MODULES = (
    "connector.cli.proof",
    "connector.cli.service",
    "connector.cli.spool",
    "connector.cli.states",
    "connector.cli.stream",
)


class Forked:
    """A running `spanner-cdc`, with the part of Popen that tests use."""

    stdout = None

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> None:
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        request = json.dumps([list(arguments), str(Path.cwd()), dict(environment)]).encode()
        socket.send_fds(_requests(), [request], [theirs.fileno(), stdout, stderr])
        theirs.close()
        self.pid = int(self._said())

    def poll(self) -> int | None:
        """The return code, if it has ended."""
        with suppress(TimeoutError):
            self._ended(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end."""
        try:
            return self._ended(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired("spanner-cdc", timeout or 0.0) from None

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._status.settimeout(timeout)
            with suppress(BlockingIOError):
                self.returncode = int(self._said())
                self._status.close()
        if self.returncode is None:
            raise TimeoutError
        return self.returncode

    def _said(self) -> bytes:
        found = self._status.recv(64)
        assert found, "the process that forks has ended"
        return found


def can_fork(environment: Mapping[str, str]) -> bool:
    """True if Python would start with these variables as this process did."""
    return _of_python(environment) == _of_python(os.environ)


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


@cache
def _requests() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    process = subprocess.Popen(
        command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL
    )
    process.returncode = 0  # it ends with this process, which waits for nothing then
    theirs.close()
    return ours


@dataclass(frozen=True, slots=True)
class _Request:
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    stdout: int
    stderr: int

    def run(self) -> None:
        """Is the command from now on."""
        for fd, standard in ((self.stdout, 1), (self.stderr, 2)):
            os.dup2(fd, standard)
            os.close(fd)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        os.chdir(self.folder)
        sys.path[0] = self.folder
        sys.argv[1:] = self.arguments
        runpy.run_module("connector", run_name="__main__", alter_sys=True)


class _Forks:
    """Forks on request, and says how what it forked has ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()

    def serve(self) -> _Request | None:
        """Forks until there is nobody who asks; in a forked process it returns what that is to do."""
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno())
        signal.signal(signal.SIGCHLD, _nothing)
        with DefaultSelector() as selector:
            selector.register(self._requests, EVENT_READ)
            selector.register(self._woken, EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._woken in ready:
                    self._woken.recv(4096)
                    self._reap()
                if self._requests in ready:
                    message, fds, _, _ = socket.recv_fds(self._requests, _LONGEST, 3)
                    if not message:
                        return None
                    if not self._fork(socket.socket(fileno=fds[0])):
                        return _Request(*json.loads(message), *fds[1:])
                    for fd in fds[1:]:
                        os.close(fd)

    def _fork(self, status: socket.socket) -> bool:
        """Returns whether this is still the process that forks."""
        pid = os.fork()
        if pid:
            self._running[pid] = status
            status.send(b"%d" % pid)
            return True
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self._requests, self._woken, self._wakes, status, *self._running.values()):
            end.close()
        return False

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self._running.pop(pid) as told, suppress(OSError):
                    told.send(b"%d" % os.waitstatus_to_exitcode(status))


def _nothing(number: int, frame: FrameType | None) -> None:
    """Does nothing: a signal need only wake the selector."""


if __name__ == "__main__":
    for module in _MODULES:
        import_module(module)
    if request := _Forks(socket.socket(fileno=int(sys.argv[1]))).serve():
        request.run()
