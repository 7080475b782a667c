"""Runs `spanner-cdc` as users do, in a separate process, and waits for its results with a timeout."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM, Signals
from tempfile import TemporaryFile
from typing import Self

import yaml

from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import SampleDatabase
from tests.forked import Forked, can_fork

COMMAND = (sys.executable, "-m", "connector")
Section = dict[str, object]

PATIENCE = 600.0
"""Seconds for which a test waits before it fails: far more than anything takes, also on a busy machine."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def events(self) -> list[dict[str, object]]:
        """The lines on stdout, each a JSON object."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The only line on stderr that is not of the log; it says what failed."""
        lines = [line for line in self.err.splitlines() if not _LOG.match(line)]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("spanner-cdc: ")
        return lines[0]


_LOG = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) ")


def environment(host: str | None) -> dict[str, str]:
    """Returns this process's environment, with that emulator or none."""
    env = {name: value for name, value in os.environ.items() if name != "SPANNER_EMULATOR_HOST"}
    return env | ({"SPANNER_EMULATOR_HOST": host} if host else {})


def run(*arguments: str | Path, host: str | None = None, timeout: float = PATIENCE, folder: Path | None = None) -> Done:
    """Runs a command to its end; in a folder, as the installed program does, which imports nothing from there."""
    env = environment(host)
    if folder is None and can_fork(env):
        return _forked(list(map(str, arguments)), env, timeout)
    command = COMMAND if folder is None else (sys.executable, "-P", *COMMAND[1:])
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, env=env, timeout=timeout, check=False, cwd=folder
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def _forked(arguments: list[str], env: dict[str, str], timeout: float) -> Done:
    with TemporaryFile() as out, TemporaryFile() as err:
        process = Forked(arguments, env, out.fileno(), err.fileno())
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read().decode())


def options(sample: SampleDatabase) -> list[str]:
    """Returns the options that name a sample database."""
    return [
        *("--project", sample.project, "--instance", sample.instance),
        *("--database", sample.database_id, "--emulator-host", sample.host),
    ]


def tail(sample: SampleDatabase, *more: str, stream: str | None = None, timeout: float = PATIENCE) -> Done:
    """Runs `tail` on a sample database to its end."""
    return run("tail", *options(sample), "--change-stream", stream or sample.change_stream, *more, timeout=timeout)


def configuration(
    folder: Path,
    sample: SampleDatabase,
    *,
    source: Mapping[str, object] | None = None,
    spool: Mapping[str, object] | None = None,
    **more: object,
) -> Path:
    """Writes a configuration that reads a sample database into `folder/spool`."""
    node = {
        "source": {
            "project": sample.project,
            "instance": sample.instance,
            "database": sample.database_id,
            "change_stream": sample.change_stream,
            "emulator_host": sample.host,
            **(source or {}),
        },
        "spool": {"path": str(folder / "spool"), "seal_interval": "100ms", **(spool or {})},
        "sink": {"path": str(folder / "events")},
        "status": {"port": 0},
        **more,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(node))
    return path


class Background:
    """A running command; its stderr is a file that can be read meanwhile."""

    def __init__(self, *arguments: str | Path, log: Path, host: str | None = None, stdout: int | None = None) -> None:
        self.log = log
        self.process: Forked | subprocess.Popen[bytes]
        texts, env = list(map(str, arguments)), environment(host)
        with log.open("wb") as err, Path(os.devnull).open("wb") as nothing:
            if stdout is None and can_fork(env):
                self.process = Forked(texts, env, nothing.fileno(), err.fileno())
                return
            self.process = subprocess.Popen(
                [*COMMAND, *texts],
                stdout=nothing if stdout is None else stdout,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=env,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def said(self) -> str:
        """The command's output on stderr."""
        return self.log.read_text()

    def await_log(self, text: str, *, timeout: float = PATIENCE) -> None:
        """Waits until the log has `text`."""
        self.until(lambda: text in self.said, f"{text!r} in the log", timeout=timeout)

    def until(self, condition: Callable[[], bool], what: str, *, timeout: float = PATIENCE) -> None:
        """Waits for a condition while the command runs."""
        until(lambda: condition() or self.process.poll() is not None, what, timeout=timeout, more=lambda: self.said)
        assert condition(), f"the command ended with {self.process.poll()} before {what}: {self.said}"

    def signal(self, number: Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def wait(self, *, timeout: float = PATIENCE) -> Done:
        """Waits for the command's end."""
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the command did not end in {timeout} s: {self.said}") from None
        return Done(code, b"", self.said)

    def stop(self, number: Signals = SIGTERM, *, timeout: float = PATIENCE) -> Done:
        """Sends a signal and waits for the end."""
        self.signal(number)
        return self.wait(timeout=timeout)

    @property
    def peak_memory(self) -> int:
        """The most bytes of memory it has held so far (VmHWM)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def reading(
    config: Path, *, until_reading: bool = True, name: str = "read", verbose: bool = False
) -> Iterator[Background]:
    """Starts `spanner-cdc read`; kills it at the end if it still runs."""
    log = config.parent / f"{name}.{time.monotonic_ns()}.log"
    with Background("read", config, *(["--verbose"] if verbose else []), log=log) as daemon:
        if until_reading:
            daemon.await_log(" INFO reading ")
        yield daemon


def until(
    condition: Callable[[], bool], what: str, *, timeout: float = PATIENCE, more: Callable[[], str] = lambda: ""
) -> None:
    """Waits for a condition; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}. {more()}"
        time.sleep(0.02)


def manifests(spool: str | Path) -> list[Manifest]:
    """Returns the manifests that a spool keeps."""
    found = Spool.at(spool)
    return list(found.manifests(found.floor(), found.latest()))


def watermark(spool: str | Path) -> int:
    """Returns the watermark of a spool's newest epoch, or 0."""
    found = Spool.at(spool)
    latest = found.latest()
    return found.manifest(latest).watermark_high if latest else 0
