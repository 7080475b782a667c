"""A breakage, and how it is exercised: a service that is well, the breakage, and what is reported of it."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.breakages.service import LIMIT, Seen, Service


@dataclass(frozen=True, slots=True)
class Scene:
    """A service that is well, and what breaks it."""

    service: Service
    breaks: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Breakage:
    """A breakage.

    Attributes:
        name: of the page's row.
        done: what is done, in one sentence, for the page.
        says: what the status, and the page or the log, must say of the cause.
        scene: opens the scene in a folder.
        named: the alarms of which one must be raised while the service runs; empty if it must end.
        code: the exit code with which the service must end; None if it must run on.
        short: whether the usual test run has it, too.
    """

    name: str
    done: str
    says: str
    scene: Callable[[Path], AbstractContextManager[Scene]] = field(repr=False)
    named: frozenset[str] = frozenset()
    code: int | None = None
    short: bool = False

    def exercise(self, folder: Path) -> "Exercised":
        """Opens the scene, breaks it, and waits until it is named, for a minute at most."""
        with self.scene(folder) as scene:
            began = time.monotonic()
            scene.breaks()
            while not self._is_named(scene.service) and time.monotonic() - began < LIMIT:
                time.sleep(0.2)
            seconds = time.monotonic() - began
            return Exercised(self, folder, seconds, scene.service.seen())

    def _is_named(self, service: Service) -> bool:
        if self.code is not None or service.code is not None:
            return service.code is not None
        raised = self.named.intersection(name for _, name in service.alarms() or ())
        return any(f"alarm={name}" in service.said for name in raised)


@dataclass(frozen=True, slots=True)
class Exercised:
    """A breakage that was exercised: what was seen after so many seconds."""

    breakage: Breakage
    folder: Path
    seconds: float
    seen: Seen

    def faults(self) -> list[str]:
        """The faults of what was seen: everything that calls a broken service healthy, or names nothing."""
        seen, breakage = self.seen, self.breakage
        alarms = {name for _, name in seen.alarms or ()}
        found = []
        if seen.code != breakage.code:
            found.append(f"the service {'runs' if seen.code is None else f'has ended with {seen.code}'}")
        if self.seconds >= LIMIT:
            found.append(f"it is not named within {LIMIT:.0f} s")
        if seen.code is None and breakage.named.isdisjoint(alarms):
            found.append(f"no alarm of {sorted(breakage.named)} is raised, but {sorted(alarms)}")
        if seen.code is None and "spanner_cdc_alarms" not in " ".join(seen.metrics):
            found.append("the metrics have no alarm")
        if seen.code is None and not any(name in seen.status for name in breakage.named):
            found.append("status does not name the alarm")
        if "healthy" in seen.headline + seen.status:
            found.append("it is said to be healthy")
        if seen.code is not None and seen.status_code == 0:
            found.append("status exits with 0")
        if breakage.says not in seen.status:
            found.append(f"status does not say {breakage.says!r}")
        if breakage.says not in (seen.headline if seen.alarms else seen.log):
            found.append(f"the {'page' if seen.alarms else 'log'} does not say {breakage.says!r}")
        return found
