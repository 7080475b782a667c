"""Programs that tests start, watch and kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 600.0


def eventually(true: Callable[[], object], what: str, *, starts: int = 1) -> None:
    """Waits until a condition holds, with patience for so many starts of Spark."""
    deadline = time.monotonic() + starts * PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


class Program:
    """A program in a session of its own, so that all of it can be killed; its stderr goes to a file."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.PIPE, stderr=stderr, start_new_session=True
            )

    @property
    def id(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL for it and every process that it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_jvm(self) -> None:
        """SIGKILL for its JVM alone."""
        subprocess.run(["pkill", "--signal", "KILL", "--pgroup", str(self._process.pid), "--exact", "java"], check=True)

    def terminate(self) -> None:
        self._process.terminate()

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def code(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(PATIENCE)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()


@contextmanager
def program(log: Path, *arguments: str) -> Iterator[Program]:
    started = Program(list(arguments), log)
    try:
        yield started
    finally:
        started.close()
