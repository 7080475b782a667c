"""Drops placements while the daemon reads: once no keys are in them, and their records are sealed."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from emulator.scripted.server import ScriptedServer
from tests.integration.commands import watermark
from tests.soak.incident import OLD_COPIES
from tests.soak.plan import Plan

_INTERVAL = 0.3
"""Seconds between two looks at the spool."""


class DroppedPlacements:
    """Drops some of the placements that are emptied; `dropped` counts them.

    Where old copies are restored none is dropped, because their records are read again.
    """

    def __init__(self, plan: Plan, server: ScriptedServer, spool: Path, report: Callable[[str], None]) -> None:
        self._server = server
        self._spool = spool
        self._report = report
        self._looked = 0.0
        self.dropped = 0
        random = Random(f"soak {plan.seed} dropped placements")
        self._left = {
            name: end
            for name, end in plan.scenario.emptied.items()
            if random.random() < 0.6 and plan.incident not in OLD_COPIES
        }

    def look(self) -> None:
        """Drops the placements whose partitions have ended at or before what is sealed."""
        if not self._left or time.monotonic() < self._looked + _INTERVAL:
            return
        self._looked = time.monotonic()
        sealed = watermark(self._spool) if (self._spool / "spool.json").exists() else 0
        for name in [name for name, end in self._left.items() if end <= sealed]:
            self._server.engine.drop_placement(name)
            del self._left[name]
            self.dropped += 1
            self._report(f"placement {name} is dropped")
