"""Breakages of the source: Spanner and the way to it, its clock and its retention."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import grpc

from connector.core.timestamps import SECOND
from connector.spool import consumers
from connector.spool.reading import Spool
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import Fault, FaultKind, FaultPlan
from emulator.scripted.server import ScriptedServer
from tests.breakages.breakage import Breakage, Scene
from tests.breakages.service import Sections, Service, configuration, started
from tests.faults.link import Link, linked

PAST, FUTURE = 20, 280
"""Seconds before and after now for which changes are committed."""

DENIED = "Caller is missing IAM permission spanner.databases.select on resource projects/p/instances/i/databases/d."
UNAUTHENTICATED = "Request had invalid authentication credentials. Expected OAuth 2 access token."
QUOTA = "Quota exceeded for quota metric 'Reads' and limit 'Reads per minute'."
SESSION = "Session not found: projects/p/instances/i/databases/d/sessions/s"

_HOUR = 3600 * SECOND
_DAY = 24 * _HOUR
_LONG = 900
"""Seconds that a scene of a lag has lasted before anybody looks: its alarm takes five minutes."""

_STOPPED_CONSUMER = "stopped"


Breaks = Callable[[ScriptedServer, Link], object]
"""Breaks a scripted Spanner, or the link to it."""


def has_sealed(service: Service) -> bool:
    """True if a local spool has an epoch."""
    return any((service.config.parent / "spool" / "manifests").glob("*"))


@contextmanager
def reading(
    folder: Path,
    *,
    breaks: Breaks = lambda *_: None,
    ready: Callable[[Service], bool] = Service.is_ready,
    command: str = "read",
    ahead: int = 0,
    past: int = PAST,
    retention: int = _DAY,
    churn: int = 4,
    faults: Callable[[Scenario], FaultPlan] = lambda _: FaultPlan(),
    sections: Sections = MappingProxyType({}),
) -> Iterator[Scene]:
    """A service that reads a scripted Spanner through a link; both can be broken.

    Args:
        folder: for its files.
        breaks: what breaks it.
        ready: whether it is well, before it is broken.
        command: ``read`` or ``run``.
        ahead: how far Spanner's clock is ahead of this machine's, in nanoseconds.
        past: since how many seconds there have been changes, which are read from a little later on.
        retention: of the change stream, in nanoseconds.
        churn: how often partitions change in the scenario.
        faults: the faults of the scripted Spanner.
        sections: of the configuration.
    """
    now = time.time_ns() + ahead
    scenario = Scenario.generate(
        7,
        origin=now - past * SECOND,
        seconds=past + FUTURE,
        dialect="googlesql",
        mode="IMMUTABLE_KEY_RANGE",
        transactions=600,
        churn=churn,
    )
    with (
        ScriptedServer.started(replace(scenario, retention=retention), begins=now, faults=faults(scenario)) as server,
        linked(server.host) as link,
    ):
        config = configuration(folder, scenario, link.host, start=now - (past - 5) * SECOND, sections=sections)
        with started(command, config) as service:
            service.until(lambda: ready(service), "it is well")
            yield Scene(service, lambda: breaks(server, link))


def delivering(
    folder: Path,
    breaks: Callable[[], object] = lambda: None,
    *,
    sink: Mapping[str, object] = MappingProxyType({}),
    source: Mapping[str, object] = MappingProxyType({}),
) -> AbstractContextManager[Scene]:
    """A service that reads, and delivers with Spark; it is well once it has.

    Args:
        folder: for its files.
        breaks: what breaks it.
        sink: the section of its configuration; empty for files on a disk.
        source: options of that section.
    """
    return reading(
        folder,
        command="run",
        breaks=lambda *_: breaks(),
        ready=Service.has_delivered,
        sections={**({"sink": sink} if sink else {}), "source": source},
    )


def refusing(code: grpc.StatusCode, message: str, *, only_queries: bool = False) -> Breaks:
    """Every call ends with an error, and queries that run are sent again."""

    def breaks(server: ScriptedServer, link: Link) -> None:
        server.refuse(code, message, only_queries=only_queries)
        link.cut()

    return breaks


@contextmanager
def _near_retention(folder: Path) -> Iterator[Scene]:
    """A reader that is six days behind, of seven that Spanner keeps, and waits for a consumer that is down."""
    path = folder / "spool"
    consumers.register(Spool.at(path), _STOPPED_CONSUMER, now=time.time_ns())
    sections = {"spool": {"path": str(path), "max_bytes": "20KB"}}
    with reading(folder, ready=has_sealed, past=6 * _DAY // SECOND, retention=7 * _DAY, sections=sections) as scene:
        yield scene


def _slow_partition(scenario: Scenario) -> FaultPlan:
    """The partition with the most records sends one every few seconds: less than are committed."""
    partitions = scenario.history.partitions
    hot = max(partitions, key=lambda token: len(partitions[token].events))
    return FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=3 * SECOND), token=hot, times=10**6)


@contextmanager
def _consumer_away(folder: Path) -> Iterator[Scene]:
    """A consumer that was there when the stream began, a quarter of an hour ago, and has recorded nothing since."""
    path = folder / "spool"
    consumers.register(Spool.at(path), "warehouse", now=time.time_ns() - _LONG * SECOND)
    with reading(folder, past=_LONG) as scene:
        yield scene


@contextmanager
def _second_daemon(folder: Path) -> Iterator[Scene]:
    with reading(folder) as scene, ExitStack() as second:

        def starts() -> None:
            other = folder / "second"
            other.mkdir()
            config = Path(shutil.copy(scene.service.config, other))
            second.enter_context(started("read", config))

        yield Scene(scene.service, starts)


def _retried(
    name: str, calls: str, code: grpc.StatusCode, message: str, *, only_queries: bool = False, short: bool = False
) -> Breakage:
    """Calls end with an error that is retried."""
    of = " of its session, also of a new one" if only_queries else ""
    return Breakage(
        name,
        f"{calls} ends with {code.name}{of}.",
        code.name,
        partial(reading, breaks=refusing(code, message, only_queries=only_queries)),
        named=frozenset({"spanner_failing"}),
        short=short,
    )


BREAKAGES = (
    Breakage(
        "Spanner is cut off",
        "Every connection is reset, and none is accepted any more.",
        "UNAVAILABLE",
        partial(reading, breaks=lambda _, link: link.down()),
        named=frozenset({"spanner_failing"}),
        short=True,
    ),
    Breakage(
        "Spanner is silent",
        "The connections stay open, and nothing is received any more.",
        "no message for",
        partial(reading, breaks=lambda _, link: link.fall_silent()),
        named=frozenset({"spanner_failing"}),
    ),
    Breakage(
        "The role is revoked",
        "Every call ends with PERMISSION_DENIED.",
        "PERMISSION_DENIED",
        partial(reading, breaks=refusing(grpc.StatusCode.PERMISSION_DENIED, DENIED)),
        code=1,
        short=True,
    ),
    _retried("The credentials expire", "Every call", grpc.StatusCode.UNAUTHENTICATED, UNAUTHENTICATED),
    _retried("The quota is used up", "Every call", grpc.StatusCode.RESOURCE_EXHAUSTED, QUOTA, short=True),
    _retried("Sessions are lost", "Every query", grpc.StatusCode.NOT_FOUND, SESSION, only_queries=True),
    Breakage(
        "This machine's clock is an hour slow",
        "Spanner's clock is an hour ahead of this machine's.",
        "clock",
        partial(reading, ready=has_sealed, ahead=_HOUR),
        named=frozenset({"clock_off"}),
        short=True,
    ),
    Breakage(
        "This machine's clock is an hour fast",
        "Spanner's clock is an hour behind this machine's.",
        "clock",
        partial(reading, ready=has_sealed, ahead=-_HOUR),
        named=frozenset({"clock_off"}),
    ),
    Breakage(
        "Spanner's retention is near its end",
        "A consumer has been down for six days, the spool is full, and Spanner keeps seven days.",
        "retention is used up",
        _near_retention,
        named=frozenset({"retention_running_out"}),
        short=True,
    ),
    Breakage(
        "A hot partition",
        "One partition of three sends a record every three seconds, for a quarter of an hour of changes.",
        "holds the watermark",
        partial(reading, ready=has_sealed, past=_LONG, churn=0, faults=_slow_partition),
        named=frozenset({"partition_behind"}),
    ),
    Breakage(
        "A consumer is away",
        "A consumer was killed a quarter of an hour ago, and changes are committed on.",
        "has recorded nothing since",
        _consumer_away,
        named=frozenset({"consumer_behind"}),
        short=True,
    ),
    Breakage(
        "A second daemon is started",
        "Another `spanner-cdc read` is started with the same spool, as a manager does by mistake.",
        "a second daemon",
        _second_daemon,
        named=frozenset({"second_daemon"}),
        short=True,
    ),
)
