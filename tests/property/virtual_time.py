"""An event loop whose time jumps to the next timer whenever no task is ready: simulated hours take milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingWillHappenError(AssertionError):
    """Every task waits, and none for a timer: in real time the program would hang."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingWillHappenError("every task waits, and none for a timer")
            self.passed += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its ``time()`` begins at zero, and advances only while all tasks sleep. Threads must not be used in it."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed

    def stall(self, seconds: float) -> None:
        """Advances the time while no task runs, as when the process is stopped."""
        self._virtual.passed += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
