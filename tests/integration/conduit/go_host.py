"""Plays Conduit's part towards a connector plugin, with Conduit's own client package.

A gRPC client written in Python would show that a plugin agrees with our reading of the protocol. Conduit's handshake,
its conversion of records and its shutdown are Go code, so a small Go program, host/main.go, runs that very code, and
`Host` tells it what to call. `Host.send` takes these commands; each but "run" is answered at once:

    {"do": "specify"}                          {"specification": {"name": ..., "source_params": {...}, ...}}
    {"do": "configure", "config": {...}}       {"done": "configure"}
    {"do": "created", "config": {...}}         {"done": "created"}
    {"do": "updated", "before": {...}, "config": {...}}
    {"do": "deleted", "config": {...}}
    {"do": "open", "position": "base64"}       {"done": "open"}
    {"do": "run"}                              {"done": "run"}, once the plugin ends the stream; records until then
    {"do": "run", "acks": False}               the same, but acknowledges nothing by itself
    {"do": "ack", "count": 3}                  {"done": "ack"}: acknowledges the oldest three, in one message
    {"do": "stop"}                             {"stopped": "base64 of the last position"}
    {"do": "teardown"}                         {"done": "teardown"}, after cancelling the stream, which says no more
    {"do": "kill"}                             {"exited": True, "status": "exit status 0"}, and the host ends

The answer to what failed is {"error": "text", "of": "the command"}. The first command starts the plugin, and a
handshake that fails is its error. A plugin that does not exit within two seconds of "kill" has the status
"signal: killed".
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import IO, Self

SOURCES = Path(__file__).parent / "host"
_USUAL_PLACE = "/usr/local/go/bin/go"  # where Go's own archive is unpacked to
_LAST_LINES = 40
Message = dict[str, object]


def go() -> str | None:
    """Returns the path of the go command, or None where there is none."""
    return shutil.which("go") or shutil.which(_USUAL_PLACE)


def run_go(*arguments: str, folder: Path, env: dict[str, str] | None = None) -> str:
    """Runs the go command in a folder and returns what it says on stdout.

    Raises:
        subprocess.CalledProcessError: it failed; the error's note has its stderr.
    """
    command = go()
    assert command is not None, "there is no go command"
    done = subprocess.run(
        [command, *arguments], cwd=folder, env=os.environ | (env or {}), capture_output=True, text=True, check=False
    )
    try:
        done.check_returncode()
    except subprocess.CalledProcessError as error:
        error.add_note(done.stderr)
        raise
    return done.stdout


def build_host(folder: Path) -> Path:
    """Builds the host into a folder; the first build on a machine takes minutes, the next ones a second.

    Raises:
        subprocess.CalledProcessError: the build failed; the error's note has its stderr.
    """
    binary = folder / "host"
    run_go("build", "-trimpath", "-buildvcs=false", "-o", str(binary), ".", folder=SOURCES)
    return binary


class Host:
    """A running host with one plugin; a context manager that leaves neither process behind."""

    def __init__(self, binary: Path, plugin: Path, *, env: dict[str, str] | None = None) -> None:
        """Starts the host; `env` is added to this process's environment, for it and the plugin."""
        self._process = subprocess.Popen(
            [binary, plugin],
            env=os.environ | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that close() can reach the plugin too
        )
        self._changed = Condition()
        self._answers: deque[Message] = deque()
        self._records: deque[Message] = deque()
        self._last: Message = {}
        self._run_over = False
        self._over = False
        self._log: list[str] = []
        self._readers = (
            Thread(target=self._read_answers, args=[self._process.stdout], daemon=True),
            Thread(target=self._read_log, args=[self._process.stderr], daemon=True),
        )
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the host's log:\n{self._end_of_log()}")
        self.close()

    @property
    def log(self) -> str:
        """The log of the plugin and go-plugin so far, as "[INFO] plugin.name: text: key=value"."""
        return "".join(self._log)

    def send(self, command: Message) -> None:
        """Sends a command, and does not wait for its answer."""
        assert self._process.stdin is not None
        if command["do"] == "run":
            self._run_over = False
        with suppress(BrokenPipeError):  # who waits for the answer learns that the host has ended
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def answer(self, timeout: float = 300) -> Message:
        """Takes the next answer, whichever command it belongs to."""
        with self._changed:
            self._await(lambda: bool(self._answers), "an answer", timeout)
            return self._answers.popleft()

    def ask(self, command: Message, timeout: float = 300) -> Message:
        """Sends a command and takes the next answer."""
        self.send(command)
        return self.answer(timeout)

    def records(self, n: int, timeout: float = 300) -> list[Message]:
        """Takes the next records, each as Conduit writes it to JSON."""
        with self._changed:
            self._await(lambda: len(self._records) >= n or self._run_over, f"{n} records", timeout)
            assert len(self._records) >= n, self._complaint(f"the run ended before {n} records")
            return [self._records.popleft() for _ in range(n)]

    def log_has(self, text: str, timeout: float = 300) -> None:
        """Waits until the log has a text."""
        with self._changed:
            self._await(lambda: text in self.log, f"{text!r} in the log", timeout)

    def close(self, timeout: float = 300) -> Message:
        """Lets the plugin shut down and the host end; returns the host's last answer.

        Whatever still lives after the timeout is killed, and that is an AssertionError.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        late = False
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for reader in self._readers:
                reader.join()
        assert not late, f"the host or the plugin did not end in {timeout} s; its log:\n{self._end_of_log()}"
        return self._last

    def _await(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        """Waits, with the lock held, until a condition holds; gives up at once when nothing more can come."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert not self._over, self._complaint(f"the host ended before {what}")
            left = deadline - time.monotonic()
            assert left > 0, self._complaint(f"not within {timeout} s: {what}")
            self._changed.wait(left)

    def _complaint(self, text: str) -> str:
        waiting = f"{len(self._records)} records and {list(self._answers)} wait to be taken"
        return f"{text}; {waiting}; the log ends:\n{self._end_of_log()}"

    def _end_of_log(self) -> str:
        return "".join(self._log[-_LAST_LINES:])

    def _read_answers(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._take(json.loads(line))
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        with self._changed:
            match message:
                case {"record": dict(record)}:
                    self._records.append(record)
                case _:
                    self._run_over |= "run" in (message.get("of"), message.get("done"))
                    self._answers.append(message)
                    self._last = message
            self._changed.notify_all()

    def _read_log(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                with self._changed:
                    self._log.append(line)
                    self._changed.notify_all()
