"""The service as people run it, in processes of its own, and what it says about itself."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from connector.core.timestamps import format_rfc3339
from connector.spool.consumers import consumers
from connector.spool.reading import Spool
from emulator.scenario.scenario import Scenario
from tests.integration.commands import COMMAND, environment
from tests.integration.commands import run as run_command
from tests.java import java_options
from tests.soak.process_tree import kill, process_tree
from tests.without_pandas import with_hidden

ROOT = Path(__file__).parents[2]
LIMIT = 60.0
"""Seconds within which a breakage must be named."""

_START = 400.0
_POLL = 0.2
_PAGE = re.compile(r"status page url=\S*?127\.0\.0\.1:(\d+)/")
_MEASURED = re.compile(r"^(spanner_cdc_\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a service as it was seen at one time.

    Attributes:
        page: the document that the page shows; None without a page.
        alarms: the page's alarms, severity and name; None without a page.
        headline: the page's; empty without one.
        ready: the status and text of ``/readyz``; None without a page.
        metrics: by name and labels; empty without a page.
        status: what ``spanner-cdc status`` prints.
        status_code: its exit code.
        code: the exit code of the service; None while it runs.
        log: everything that it has written to stderr.
    """

    page: Mapping[str, Any] | None
    alarms: list[tuple[str, str]] | None
    headline: str
    ready: tuple[int, str] | None
    metrics: Mapping[str, float]
    status: str
    status_code: int
    code: int | None
    log: str


class Service:
    """A running `spanner-cdc` and its configuration."""

    def __init__(self, config: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.config = config
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        """Its output on stderr so far."""
        return self._log.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def until(self, condition: Callable[[], bool], what: str, *, timeout: float = _START) -> None:
        """Waits for a condition while the service runs."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.code is None, f"the service ended with {self.code} before {what}: {self.said[-3000:]}"
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}. {self.said[-3000:]}"
            time.sleep(_POLL)

    def is_ready(self) -> bool:
        """True if ``/readyz`` says so."""
        answer = self.get("/readyz")
        return answer is not None and answer[0] == 200

    def has_delivered(self) -> bool:
        """True if a sink has delivered an epoch of a spool on a local disk."""
        spool = Spool.at(yaml.safe_load(self.config.read_text())["spool"]["path"])
        return any(consumer.epoch > 0 for consumer in consumers(spool))

    def alarms(self) -> list[tuple[str, str]] | None:
        """The alarms of the page, severity and name; None without a page."""
        answer = self.get("/api/status")
        if answer is None or answer[0] != 200:
            return None
        return [(alarm["severity"], alarm["name"]) for alarm in json.loads(answer[1])["health"]["alarms"]]

    def get(self, path: str) -> tuple[int, str] | None:
        """The answer of its status server, if there is one."""
        found = _PAGE.search(self.said)
        if found is None:
            return None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None
        finally:
            connection.close()

    def seen(self) -> Seen:
        """The present state by page, command, probe, metrics, process and log."""
        page, ready, metrics = self.get("/api/status"), self.get("/readyz"), self.get("/metrics")
        done = run_command("status", self.config)
        document: dict[str, Any] | None = json.loads(page[1]) if page else None
        health: dict[str, Any] = document["health"] if document else {"alarms": [], "summary": ""}
        return Seen(
            page=document,
            alarms=[(alarm["severity"], alarm["name"]) for alarm in health["alarms"]] if page else None,
            headline=health["summary"],
            ready=(ready[0], ready[1].strip()) if ready else None,
            metrics={name: float(value) for name, value in _MEASURED.findall(metrics[1])} if metrics else {},
            status=(done.out.decode() + done.err).strip(),
            status_code=done.code,
            code=self.code,
            log=self.said,
        )


@contextmanager
def started(command: str, config: Path) -> Iterator[Service]:
    """Starts ``spanner-cdc`` on a configuration; kills it with all its processes at the end.

    Args:
        command: its name, and options.
        config: the configuration.
    """
    log = config.parent / f"{command.replace(' ', '')}.log"
    with log.open("wb") as err:
        process = subprocess.Popen(
            [*COMMAND, *command.split(), str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env={
                **environment(None),
                "PYTHONPATH": with_hidden(str(ROOT)),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "JDK_JAVA_OPTIONS": java_options(),
            },
            cwd=config.parent,
        )
    try:
        yield Service(config, process, log)
    finally:
        known = process_tree(process.pid)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
        kill(known)
        process.wait()


Sections = Mapping[str, Mapping[str, object]]


def configuration(folder: Path, scenario: Scenario, host: str, *, start: int, sections: Sections) -> Path:
    """Writes a configuration that reads a scripted Spanner into a spool in the folder."""
    node: dict[str, dict[str, object]] = {
        "source": {
            "project": scenario.project,
            "instance": scenario.instance,
            "database": scenario.database,
            "change_stream": scenario.change_stream,
            "emulator_host": host,
            "start": format_rfc3339(start),
            "workers": 1,
        },
        "spool": {"path": str(folder / "spool"), "seal_interval": "200ms"},
        "sink": {"path": str(folder / "events"), "rotate_interval": "0s"},
        "spark": {
            "master": "local[1]",
            "checkpoint": str(folder / "checkpoint"),
            "trigger": "200ms",
            "config": {"spark.driver.memory": "512m"},
        },
        "status": {"port": 0},
    }
    for name, section in sections.items():
        node[name] = {**({} if "type" in section else node.get(name, {})), **section}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**node, "drain_timeout": "5s"}))
    return path
