"""`spanner-cdc run` as the demo starts it: configuration, process, status page, waiting for progress."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from connector.proxies import OPENER
from connector.spool.reading import Spool
from emulator.demo.source import Address
from emulator.official.binary import free_ports

_STALL_SECONDS = 180.0
"""The demo has no time limit, because a machine may be slow: it fails if nothing at all changes for this long."""


class DemoError(Exception):
    """The demo could not be run to its end; the message is one line that says why."""


class Service:
    """A running `spanner-cdc run`, which writes below one folder; see `running_service`."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, status_port: int) -> None:
        self.log = output / "spanner-cdc.log"
        self.events = output / "events"
        self._process = process
        self._spool = Spool.at(output / "spool")
        self.page = f"http://127.0.0.1:{status_port}/"

    def partition_churn(self) -> dict[str, int]:
        """The splits, merges and moves of partitions that the reader has crossed; empty while it does not answer."""
        try:
            with OPENER.open(f"{self.page}api/status", timeout=2) as answer:
                churn = json.load(answer)["partitions"]["churn"]
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}
        return {str(kind): int(count) for kind, count in churn.items()}

    def errors(self) -> list[str]:
        """The lines of its log that are errors."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if " ERROR " in line]

    def wait_until_ready(self) -> None:
        """Waits until Spark has started, so that its start does not count as latency.

        Raises:
            DemoError: the service ended, or is stalled.
        """
        self._wait("the start", lambda: b"spark_sink: ready" in self.log.read_bytes(), self._log_size)

    def wait_until_sealed(self, timestamp: int) -> None:
        """Waits until every commit up to `timestamp`, in nanoseconds since 1970, is in a sealed epoch.

        Raises:
            DemoError: the service ended, or is stalled.
        """
        self._wait("the delivery", lambda: self._watermark() >= timestamp, self._watermark)

    def drain(self) -> None:
        """Ends the service by SIGTERM and waits until it has delivered what is sealed.

        Raises:
            DemoError: it is stalled, or ended with an error.
        """
        self._process.send_signal(signal.SIGTERM)
        stall = _Stall(lambda: (sum(1 for _ in self.events.rglob("*")), self._log_size()))
        while self._process.poll() is None:
            if stall.is_overdue():
                raise DemoError(f"spanner-cdc run does not drain; see {self.log}")
            time.sleep(0.1)
        if self._process.returncode != 0:
            raise DemoError(f"spanner-cdc run ended with code {self._process.returncode}; see {self.log}")

    def _wait(self, what: str, done: Callable[[], bool], progress: Callable[[], object]) -> None:
        stall = _Stall(progress)
        while not done():
            if self._process.poll() is not None:
                last = self.log.read_text(errors="replace").strip().splitlines()[-1:]
                raise DemoError(f"spanner-cdc run ended with code {self._process.returncode}: {' '.join(last)}")
            if stall.is_overdue():
                raise DemoError(f"{what} is stalled: no progress for {_STALL_SECONDS:.0f} s; see {self.log}")
            time.sleep(0.1)

    def _watermark(self) -> int:
        epoch = self._spool.latest()
        return self._spool.manifest(epoch).watermark_high if epoch > 0 else 0

    def _log_size(self) -> int:
        return self.log.stat().st_size


class _Stall:
    """Watches whether a measure of progress still changes."""

    def __init__(self, progress: Callable[[], object]) -> None:
        self._progress = progress
        self._last = progress()
        self._since = time.monotonic()

    def is_overdue(self) -> bool:
        """True if the measure has been the same for too long."""
        if (now := self._progress()) != self._last:
            self._last, self._since = now, time.monotonic()
        return time.monotonic() - self._since > _STALL_SECONDS


@contextlib.contextmanager
def running_service(output: Path, address: Address) -> Iterator[Service]:
    """Runs `spanner-cdc run` on a change stream while the context is open, with everything it writes below `output`."""
    (port,) = free_ports(1)
    config = _write_config(output, address, port)
    command = [sys.executable, "-m", "connector", "run", str(config), "--emulator-host", address.host]
    with (output / "spanner-cdc.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - the project's own command
        try:
            yield Service(process, output, port)
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
            process.wait()


def _write_config(output: Path, address: Address, port: int) -> Path:
    config = output / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "source": {
                    "project": address.project,
                    "instance": address.instance,
                    "database": address.database,
                    "change_stream": address.change_stream,
                    "start": address.start,
                },
                "spool": {"path": str(output / "spool")},
                "sink": {"type": "files", "path": str(output / "events"), "rotate_interval": "0s"},
                "spark": {"master": "local[2]", "checkpoint": str(output / "checkpoint"), "trigger": "250ms"},
                "status": {"port": port},
                "drain_timeout": "10m",
            }
        )
    )
    return config
