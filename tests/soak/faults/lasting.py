"""A fault that lasts: it begins once epochs are sealed, ``status`` must name it, it ends, and its alarm must end."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random

import grpc

from connector.daemon.states.report import status_of
from connector.errors import SpoolError
from connector.spool.reading import Spool
from emulator.scripted.server import ScriptedServer
from tests.faults.link import Link
from tests.soak.incident import OF_SPARK, Incident
from tests.soak.process_tree import is_jvm, kill, process_tree

LIMIT, SPARK_LIMIT = 45.0, 150.0
"""Seconds within which it must be named, and its alarm must end; Spark may have to start several times meanwhile."""

_POLL = 0.25
_SEALED_BEFORE = 1
"""The number of epochs after which it begins."""

_SESSIONS = (
    "Session not found: projects/p/instances/i/databases/d/sessions/s",
    "Session does not exist: projects/p/instances/i/databases/d/sessions/s",
    "Resource not found: projects/p/instances/i/databases/d/sessions/s",
)


class NotNamedError(AssertionError):
    """A fault was not named in time, or its alarm did not end."""


class _Phase(StrEnum):
    WAITING = "waiting"
    ON = "on"
    MENDED = "mended"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class _Fault:
    """The begin and end of a fault, and words of which status must use one."""

    words: tuple[str, ...]
    begin: Callable[[], object]
    end: Callable[[], object]
    again: Callable[[int], object] = lambda _: None
    """Called with the service's process again and again while it lasts."""


class LastingFault:
    """The lasting fault of a seed, whose incident is one; else it does nothing.

    Args:
        incident: the seed's.
        seed: chooses among wordings.
        least: seconds that it lasts at least.
        server: the scripted Spanner.
        link: the way to it.
        folder: the seed's.
        report: called with a line for each thing that happens.
    """

    def __init__(
        self,
        incident: Incident | None,
        seed: int,
        least: float,
        *,
        server: ScriptedServer,
        link: Link,
        folder: Path,
        report: Callable[[str], None],
    ) -> None:
        self._incident = incident
        self._fault = _fault(incident, seed, server, link, folder)
        self._least = least
        self._spool = folder / "spool"
        self._report = report
        self._phase = _Phase.WAITING
        self._since = self._looked = time.monotonic()
        self._named = False

    @property
    def happened(self) -> bool:
        """True if it has begun, and was named."""
        return self._named

    @property
    def lasts(self) -> bool:
        """True if it lasts."""
        return self._phase is _Phase.ON

    def look(self, process: int | None, sealed: int) -> None:
        """Begins it, checks that it is named, ends it, checks that its alarm ends.

        Args:
            process: the service's; None between two of them.
            sealed: the number of epochs that are kept.

        Raises:
            NotNamedError: it is not named in time, or its alarm does not end.
        """
        if self._fault is None or self._phase is _Phase.OVER:
            return
        now = time.monotonic()
        if self._phase is _Phase.WAITING:
            if sealed >= _SEALED_BEFORE and process is not None:
                self._enter(_Phase.ON, self._fault.begin)
            return
        if process is not None and self._phase is _Phase.ON:
            self._fault.again(process)
        if now - self._looked < _POLL and process is not None:
            return
        self._looked = now
        if self._phase is _Phase.ON:
            self._named = self._named or self._is_named()
            if self._named and now - self._since >= self._least:
                self._enter(_Phase.MENDED, self._fault.end)
        elif not self._is_named():
            self._enter(_Phase.OVER, lambda: None)
            return
        limit = SPARK_LIMIT if self._incident in OF_SPARK else LIMIT + self._least
        if now - self._since > limit:
            what = "it has not been named" if self._phase is _Phase.ON else "its alarm has not ended"
            raise NotNamedError(f"{self._incident}: {what} within {limit:.0f} s: {self._status()}")

    def explains(self, line: str) -> bool:
        """True if a line names it, so that a process was right to end with it."""
        return (
            self._phase is not _Phase.WAITING
            and self._fault is not None
            and any(word in line for word in self._fault.words)
        )

    def close(self) -> None:
        """Ends it, if it lasts."""
        if self._fault is not None and self._phase is _Phase.ON:
            self._fault.end()

    def _enter(self, phase: _Phase, act: Callable[[], object]) -> None:
        act()
        now = time.monotonic()
        self._report(f"{self._incident}: {phase} after {now - self._since:.1f} s")
        self._phase, self._since = phase, now

    def _is_named(self) -> bool:
        assert self._fault is not None
        return any(word in line for line in self._status() for word in self._fault.words)

    def _status(self) -> list[str]:
        """The alarms that status names; a spool that is just being written may not be readable."""
        with suppress(SpoolError):
            health = status_of(Spool.at(self._spool), 0)["health"]
            assert isinstance(health, dict)
            return [f"{one['name']}: {one['message']}" for one in health["alarms"] if one["severity"] == "ERROR"]
        return []


def disk_is_full(folder: Path) -> Path:
    """The file that is there while the spool's disk is full."""
    return folder / "disk-is-full"


def _fault(incident: Incident | None, seed: int, server: ScriptedServer, link: Link, folder: Path) -> _Fault | None:
    match incident:
        case Incident.OUTAGE:
            return _Fault(("UNAVAILABLE",), link.down, link.up)
        case Incident.DENIED:
            return _refusal(server, link, grpc.StatusCode.PERMISSION_DENIED, "Caller is missing IAM permission")
        case Incident.QUOTA:
            return _refusal(server, link, grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric")
        case Incident.UNAUTHENTICATED:
            return _refusal(server, link, grpc.StatusCode.UNAUTHENTICATED, "Request had invalid credentials")
        case Incident.LOST_SESSIONS:
            message = Random(f"soak {seed} session").choice(_SESSIONS)
            return _refusal(server, link, grpc.StatusCode.NOT_FOUND, message, only_queries=True)
        case Incident.FULL_DISK:
            flag = disk_is_full(folder)
            return _Fault(("No space left on device",), flag.touch, flag.unlink)
        case Incident.SINK_REFUSED:
            return _Fault(("Not a directory",), partial(_swap, folder, "a-file"), partial(_swap, folder, "real-events"))
        case Incident.KILLED_JVMS:
            return _Fault(("JVM", "JAVA_GATEWAY_EXITED"), lambda: None, lambda: None, _kill_jvms)
    return None


def _refusal(
    server: ScriptedServer, link: Link, code: grpc.StatusCode, message: str, *, only_queries: bool = False
) -> _Fault:
    def begin() -> None:
        server.refuse(code, message, only_queries=only_queries)
        link.cut()

    return _Fault((code.name,), begin, server.accept)


def _swap(folder: Path, name: str) -> None:
    """Lets the sink's folder, which is a link, be another thing at once."""
    (folder / "a-file").touch()
    (folder / "events.new").symlink_to(folder / name)
    (folder / "events.new").replace(folder / "events")


def _kill_jvms(process: int) -> None:
    kill(list(filter(is_jvm, process_tree(process))))
