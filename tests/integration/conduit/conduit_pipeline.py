"""Runs the whole of Conduit with one pipeline: from a connector plugin into a file.

The host of go_host.py shows what Conduit makes of a plugin's answers. Only Conduit itself shows what it does with them
over time: when it stores positions, which one it opens a plugin with after it was killed, and how it stops.

Conduit is built from its published module, whose own go.sum pins whatever it depends on. Go's checksum database does
not know the module itself everywhere, so its checksum is pinned here.

Conduit stops gracefully upon SIGINT alone. SIGTERM ends it at once, as SIGKILL does, and leaves the plugin behind.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import cast

import yaml

from tests.integration.conduit.go_host import Message, run_go

VERSION = "v0.14.0"
_MODULE = "github.com/conduitio/conduit"
_CHECKSUM = "h1:qRok8u1SdEBZdpT1DyeaX/9u0Sl9xgVQDTXKDEKFqoA="


def build_conduit(folder: Path) -> Path:
    """Builds Conduit into a folder, unless it is there; the first build on a machine takes a quarter of an hour.

    Raises:
        subprocess.CalledProcessError: the build failed; the error's note has its stderr.
    """
    binary = folder / f"conduit-{VERSION}"
    if not binary.exists():
        answer = run_go("mod", "download", "-json", f"{_MODULE}@{VERSION}", folder=folder, env={"GONOSUMDB": _MODULE})
        module = json.loads(answer)
        assert module["Sum"] == _CHECKSUM, f"{_MODULE} is not what it was: {module['Sum']}"
        version = f"-X {_MODULE}/pkg/conduit.version={VERSION}"
        flags = ["-p", "1", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {version}"]  # one at a time: memory
        partial = binary.with_suffix(".partial")
        run_go("build", *flags, "-o", str(partial), "./cmd/conduit", folder=Path(module["Dir"]))
        partial.rename(binary)
    return binary


@dataclass
class Conduit:
    """Conduit with its state in a folder; it can be ended in any way, and started again."""

    folder: Path
    binary: Path
    out: Path
    env: Mapping[str, str]
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The Conduit that was started last."""
        return self._processes[-1]

    def start(self) -> None:
        """Starts Conduit, which starts the pipeline; does not wait for it."""
        options = {
            "db.type": "sqlite",
            "db.sqlite.path": self.folder / "state.db",
            "connectors.path": self.folder / "connectors",
            "processors.path": self.folder / "processors",
            "pipelines.path": self.folder / "pipelines",
            "api.enabled": "false",
            "log.format": "json",
            "log.level": "debug",
        }
        command = [str(self.binary), "run", *(f"--{name}={value}" for name, value in options.items())]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that plugins can be found, and ended with it
            )
        self._processes.append(process)

    def signal(self, number: Signals, *, everyone: bool = False) -> None:
        """Sends a signal to Conduit, or to its plugins too, as a terminal's Ctrl-C goes to all of them."""
        if everyone:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def wait(self, timeout: float = 300) -> int:
        """Waits for Conduit's end and returns its exit code, -9 for SIGKILL."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Conduit did not end in {timeout} s: {self._end_of_log()}") from None

    def kill(self) -> None:
        """Kills Conduit, without its plugin."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self, timeout: float = 300) -> int:
        """Lets Conduit stop the pipeline and end; returns its exit code."""
        self.signal(signal.SIGINT)
        return self.wait(timeout)

    @property
    def plugins(self) -> list[int]:
        """The process ids of the plugins that live, those whose Conduit was killed included."""
        sessions = {process.pid for process in self._processes}
        return [pid for pid in _running_in(sessions) if pid not in sessions]

    @property
    def records(self) -> list[Message]:
        """The records in the file, each as Conduit writes it to JSON; a line that it is at is left out."""
        if not self.out.exists():
            return []
        *lines, _ = self.out.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def log(self) -> list[Message]:
        """The log of all runs: what was JSON as such, other lines as {"message": ...}."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [_parsed(line) for line in lines]

    def await_records(self, n: int, timeout: float = 300) -> list[Message]:
        """Waits until the file has so many records, and returns all."""
        self._await(lambda: len(self.records) >= n, f"{n} records", timeout)
        return self.records

    def await_log(self, text: str, times: int = 1, timeout: float = 300) -> None:
        """Waits until so many lines of the log, of all runs, have a text in their message."""
        self._await(lambda: sum(text in str(line.get("message")) for line in self.log) >= times, text, timeout)

    def await_no_plugins(self, timeout: float = 300) -> None:
        """Waits until the plugins have ended by themselves."""
        self._await(lambda: not self.plugins, "the plugins' end", timeout, alive=False)

    def close(self) -> None:
        """Kills whatever still runs."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def _log(self) -> Path:
        return self.folder / "conduit.log"

    def _await(self, condition: Callable[[], bool], what: str, timeout: float, *, alive: bool = True) -> None:
        deadline = time.monotonic() + timeout
        while True:
            ended = alive and self.process.poll() is not None
            if condition():
                return
            assert not ended, f"Conduit ended before {what}: {self._end_of_log()}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}: {self._end_of_log()}"
            time.sleep(0.05)

    def _end_of_log(self) -> str:
        return "\n".join(str(line) for line in self.log[-40:])


@contextmanager
def conduit(
    folder: Path,
    binary: Path,
    plugin: Path,
    settings: dict[str, str],
    out: Path,
    env: Mapping[str, str] | None = None,
    *,
    name: str,
) -> Iterator[Conduit]:
    """Starts Conduit with a pipeline from a plugin into a file; kills at the end what still runs.

    Args:
        folder: an empty folder for configuration, state and log.
        binary: Conduit.
        plugin: the plugin's executable, which is started without arguments.
        settings: the source's.
        out: the file for records, a JSON object each line.
        env: added to this process's environment, for Conduit and its plugins.
        name: the plugin's, as its specification has it.
    """
    connectors = folder / "connectors"  # Conduit starts every file there
    connectors.mkdir(parents=True)
    (connectors / "plugin").symlink_to(plugin)
    (folder / "processors").mkdir()
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "pipeline.yaml").write_text(yaml.safe_dump(_pipeline(name, settings, out)))
    running = Conduit(folder, binary, out, env or {})
    try:
        running.start()
        yield running
    finally:
        running.close()


def _pipeline(name: str, settings: dict[str, str], out: Path) -> Message:
    source = {"id": "source", "type": "source", "plugin": f"standalone:{name}", "settings": settings}
    destination = {
        "id": "destination",
        "type": "destination",
        "plugin": "builtin:file",
        "settings": {"path": str(out)},
    }
    pipeline = {"id": "pipeline", "status": "running", "connectors": [source, destination]}
    return {"version": "2.2", "pipelines": [pipeline]}


def _parsed(line: str) -> Message:
    try:
        return cast("Message", json.loads(line))
    except ValueError:
        return {"message": line}


def _running_in(sessions: set[int]) -> Iterator[int]:
    """The processes of sessions, but those that have ended and are only not waited for."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) in sessions and state != "Z":
                yield int(folder.name)
