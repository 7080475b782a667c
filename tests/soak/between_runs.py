"""Restores old copies and drops tables between two runs of the daemon."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from connector.spool.reading import Spool
from emulator.scripted.server import ScriptedServer
from tests.soak.incident import OLD_COPIES, Incident
from tests.soak.plan import Plan

_DELIVERY_SECONDS = 60.0


class BetweenRuns:
    """Called after each run; `happened` is whether the seed's incident has happened.

    Args:
        plan: the seed's plan.
        server: the scripted Spanner.
        folder: the seed's folder, with the spool and the sink's checkpoint.
        watch_sink: starts the background sink if there is none; raises if it has failed.
        stop_sink: stops the background sink.
        report: called with a line for each thing that happens.
    """

    def __init__(
        self,
        plan: Plan,
        server: ScriptedServer,
        folder: Path,
        watch_sink: Callable[[], None],
        stop_sink: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._server = server
        self._spool = folder / "spool"
        self._checkpoint = folder / "checkpoint"
        self._copy = folder / "copy"
        self._watch_sink = watch_sink
        self._stop_sink = stop_sink
        self._report = report
        self._copied_at: tuple[int, int] | None = None
        self.happened = False

    def __call__(self, ended: bool) -> bool:
        """Acts after a run, which may have `ended` at its end. Returns whether another run must follow in any case."""
        incident = self._plan.incident
        if self.happened or not self._sealed():
            return False
        if incident is Incident.DROPPED_TABLE:
            name = Random(f"soak {self._plan.seed} drop").choice(self._plan.scenario.tables).name
            self._server.engine.drop_table(name)
            self.happened = True
            self._report(f"table {name} is dropped")
        elif incident in OLD_COPIES:
            folder = self._spool if incident is Incident.OLD_SPOOL else self._checkpoint
            if self._copied_at is None:
                self._take_copy(folder)
            elif self._has_continued(ended):
                self._restore(folder)
                return True
        return False

    def _take_copy(self, folder: Path) -> None:
        if folder == self._checkpoint:
            self._await_delivery(0)
        if folder.exists():
            self._stop_sink()
            shutil.copytree(folder, self._copy, symlinks=True)
            self._copied_at = self._at()
            self._report(f"{folder.name} is copied: {self._copied_at}")

    def _restore(self, folder: Path) -> None:
        self._stop_sink()
        at = self._at()
        shutil.rmtree(folder)
        shutil.copytree(self._copy, folder, symlinks=True)
        self.happened = True
        self._report(f"{folder.name} is restored: {at} becomes {self._copied_at}")

    def _has_continued(self, ended: bool) -> bool:
        """True if anything was delivered since the copy; waits for the sink once all epochs are sealed."""
        assert self._copied_at is not None
        if ended:
            self._await_delivery(self._copied_at[1])
        return self._delivered() > self._copied_at[1]

    def _await_delivery(self, more_than: int) -> None:
        """Waits for a while until the background sink has delivered more micro-batches."""
        until = time.monotonic() + _DELIVERY_SECONDS
        while self._plan.background_sink and self._delivered() <= more_than and time.monotonic() < until:
            self._watch_sink()
            time.sleep(0.05)

    def _at(self) -> tuple[int, int]:
        """Returns the newest epoch, and the number of delivered micro-batches."""
        return self._sealed(), self._delivered()

    def _sealed(self) -> int:
        """Returns the newest epoch, or 0."""
        return Spool.at(self._spool).latest() if (self._spool / "spool.json").exists() else 0

    def _delivered(self) -> int:
        """Returns the number of micro-batches that the sink has committed."""
        return sum(path.name.isdecimal() for path in self._checkpoint.glob("commits/*"))
