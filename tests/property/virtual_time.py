"""An event loop whose time jumps to the next timer whenever nothing else is to be done: hours pass in moments."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingWillHappenError(AssertionError):
    """Every task waits, and for no timer: in real time it would hang."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingWillHappenError("every task waits, and for no timer")
            self.passed += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its ``time()`` begins at zero and passes only in sleeps; threads must not be used in it."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed

    def stand_still(self, seconds: float) -> None:
        """Time passes, and nothing is done in it, as when a process is stopped."""
        self._virtual.passed += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
