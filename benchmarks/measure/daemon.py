"""Runs ``spanner-cdc read`` as users do, and reads its status page."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from connector.proxies import OPENER

_PATIENCE = 60.0
_POLL = 0.1


class Daemon:
    """A running daemon; see `daemon`."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def wait_for(self, name: str, least: int) -> None:
        """Waits until a figure of its status page is at least ``least``.

        Raises:
            RuntimeError: it takes too long, or the daemon ended.
        """
        deadline = time.monotonic() + _PATIENCE
        while float(str(self.status().get(name, 0))) < least:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} is below {least}: {self._log.read_text()[-2000:]}")
            time.sleep(_POLL)

    @property
    def url(self) -> str:
        """The address of its status server; empty while there is none."""
        found = re.search(r"http://[\d.]+:\d+", self._log.read_text())
        return found[0] if found else ""

    def status(self) -> dict[str, object]:
        """Returns its status page, empty while there is none."""
        url = self.url
        if not url:
            return {}
        try:
            with OPENER.open(f"{url}/api/status", timeout=5) as answer:
                node = json.load(answer)
            return {**node["figures"], **node["watermark"], "partition_churn": node["partitions"]["churn"]}
        except (OSError, ValueError):
            return {}

    def drain(self) -> None:
        """Delivers what is sealed, and ends it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


@contextmanager
def daemon(
    source: Mapping[str, object], folder: Path, command: str = "read", sink: Mapping[str, object] | None = None
) -> Iterator[Daemon]:
    """Runs a daemon that reads ``source`` into a spool in ``folder`` while the context is open."""
    config, log = folder / "config.yaml", folder / f"{command}.log"
    node: dict[str, object] = {"source": dict(source), "spool": {"path": str(folder / "spool")}, "status": {"port": 0}}
    if sink is not None:
        node |= {"sink": dict(sink), "spark": {"checkpoint": str(folder / "checkpoint")}}
    config.write_text(yaml.safe_dump(node))
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "connector", command, str(config)], stdout=out, stderr=out)
        try:
            yield Daemon(process, log)
        finally:
            process.kill()
            process.wait()
