"""Runs the commands of ``spanner-cdc`` in processes, as users do."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

PROGRAM = (sys.executable, "-P", "-m", "connector")
PATIENCE = 900.0
"""Seconds that a command may take."""

_DRAIN = 60.0
_POLL = 0.1


class CommandError(Exception):
    """A command failed; the text is one line with its last words."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended; ``words`` are the last lines of its standard error, on one line."""

    code: int
    out: bytes
    words: str


class SelfTestCommands:
    """Runs commands in a folder, whose logs are kept there until the self-test ends.

    Args:
        folder: an empty folder.
        program: runs ``spanner-cdc``.
    """

    def __init__(self, folder: Path, program: Sequence[str] = PROGRAM) -> None:
        self._folder = folder
        self._program = tuple(program)
        self._count = 0

    def configured(self, name: str, node: Mapping[str, object]) -> Path:
        """Writes a configuration."""
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(dict(node)), encoding="utf-8")
        return path

    def run(self, *arguments: str | Path) -> Done:
        """Runs a command to its end.

        Raises:
            CommandError: it takes longer than :data:`PATIENCE`.
        """
        out = self._next("out")
        with out.open("wb") as stdout, self.started(*arguments, stdout=stdout) as running:
            try:
                code = running.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise CommandError(f"`spanner-cdc {arguments[0]}` has not ended within {PATIENCE:.0f} s") from None
        return Done(code, out.read_bytes(), running.words())

    @contextmanager
    def started(self, *arguments: str | Path, stdout: object = subprocess.DEVNULL) -> Iterator["Running"]:
        """Runs a command while the context is open; stops it at its end, if it still runs."""
        log = self._next("log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(  # noqa: S603 - no shell, and the program is this one
                [*self._program, *map(str, arguments)],
                stdin=subprocess.PIPE,  # it ends with this process, however that ends
                stdout=stdout,  # type: ignore[call-overload]
                stderr=stderr,
                start_new_session=True,  # a Ctrl-C reaches this process alone, which then ends the command
            )
        running = Running(str(arguments[0]), process, log)
        try:
            yield running
        finally:
            running.end()
            if process.stdin is not None:
                process.stdin.close()

    def _next(self, ending: str) -> Path:
        self._count += 1
        return self._folder / f"{self._count:03}.{ending}"


class Running:
    """A command that runs."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._name = name
        self._log = log

    def until(self, condition: Callable[[], bool], what: str, patience: float) -> None:
        """Waits for a condition.

        Raises:
            CommandError: the command has ended, or seconds of patience have passed.
        """
        deadline = time.monotonic() + patience
        while not condition():
            if self.process.poll() is not None and not condition():
                raise CommandError(f"`spanner-cdc {self._name}` ended before {what}: {self.words()}")
            if time.monotonic() > deadline:
                raise CommandError(f"`spanner-cdc {self._name}`: not within {patience:.0f} s: {what}: {self.words()}")
            time.sleep(_POLL)

    def stop(self) -> Done:
        """Drains the command by SIGTERM, and waits for its end."""
        self.end()
        return Done(self.process.returncode, b"", self.words())

    def end(self) -> None:
        """Ends the command, if it still runs."""
        self.process.send_signal(signal.SIGTERM)  # which does nothing to a process that has ended
        try:
            self.process.wait(_DRAIN)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            self.process.kill()
            self.process.wait()
            if isinstance(error, KeyboardInterrupt):
                raise

    def words(self) -> str:
        """The last lines of its standard error, on one line."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return " | ".join(line.strip() for line in lines[-3:]) or "it printed nothing"
