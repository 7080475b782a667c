"""What happens between two lives, while nothing runs: copies are put back, and tables dropped."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from connector.spool.reading import Spool
from emulator.scripted.server import ScriptedServer
from tests.soak.ordeal import OLD_COPIES, Ordeal
from tests.soak.plan import Plan

_DELIVERY_SECONDS = 60.0


class Between:
    """Called after each life; `happened` tells whether what the seed goes through has come to pass.

    Args:
        plan: of the seed.
        server: the scripted Spanner.
        folder: the seed's, with the spool and the sink's checkpoint.
        watch_sink: starts the sink that lives on where there is none, or raises where it has failed.
        stop_sink: ends it, lest it run meanwhile.
        say: told what happens.
    """

    def __init__(
        self,
        plan: Plan,
        server: ScriptedServer,
        folder: Path,
        watch_sink: Callable[[], None],
        stop_sink: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._server = server
        self._spool = folder / "spool"
        self._checkpoint = folder / "checkpoint"
        self._copy = folder / "copy"
        self._watch_sink = watch_sink
        self._stop_sink = stop_sink
        self._say = say
        self._copied_at: tuple[int, int] | None = None
        self.happened = False

    def __call__(self, ended: bool) -> bool:
        """Does what is to be done after a life; whether another life has to follow though it has `ended` at the end."""
        ordeal = self._plan.ordeal
        if self.happened or not self._sealed():
            return False
        if ordeal is Ordeal.DROPPED_TABLE:
            name = Random(f"soak {self._plan.seed} drop").choice(self._plan.scenario.tables).name
            self._server.engine.drop_table(name)
            self.happened = True
            self._say(f"table {name} is dropped")
        elif ordeal in OLD_COPIES:
            folder = self._spool if ordeal is Ordeal.OLD_SPOOL else self._checkpoint
            if self._copied_at is None:
                self._take_copy(folder)
            elif self._has_gone_on(ended):
                self._put_back(folder)
                return True
        return False

    def _take_copy(self, folder: Path) -> None:
        if folder == self._checkpoint:
            self._await_delivery(0)
        if folder.exists():
            self._stop_sink()
            shutil.copytree(folder, self._copy, symlinks=True)
            self._copied_at = self._at()
            self._say(f"{folder.name} is copied: {self._copied_at}")

    def _put_back(self, folder: Path) -> None:
        self._stop_sink()
        at = self._at()
        shutil.rmtree(folder)
        shutil.copytree(self._copy, folder, symlinks=True)
        self.happened = True
        self._say(f"{folder.name} is put back: {at} becomes {self._copied_at}")

    def _has_gone_on(self, ended: bool) -> bool:
        """Whether something was delivered since the copy; once all epochs are sealed the sink is waited for."""
        assert self._copied_at is not None
        if ended:
            self._await_delivery(self._copied_at[1])
        return self._delivered() > self._copied_at[1]

    def _await_delivery(self, more_than: int) -> None:
        """Waits, for a while, until the sink that lives on has delivered more micro-batches."""
        until = time.monotonic() + _DELIVERY_SECONDS
        while self._plan.live_sink and self._delivered() <= more_than and time.monotonic() < until:
            self._watch_sink()
            time.sleep(0.05)

    def _at(self) -> tuple[int, int]:
        """The newest epoch, and how many micro-batches were delivered."""
        return self._sealed(), self._delivered()

    def _sealed(self) -> int:
        """The newest epoch."""
        return Spool.at(self._spool).latest() if (self._spool / "spool.json").exists() else 0

    def _delivered(self) -> int:
        """How many micro-batches the sink has committed."""
        return sum(path.name.isdecimal() for path in self._checkpoint.glob("commits/*"))
