"""A server that takes longer for the first message of a query than a reader waits for it at first."""

import time

from emulator.scripted.fault_plan import Fault, FaultInQuery, FaultKind, FaultPlan

DRAWN = frozenset(
    (
        FaultKind.UNAVAILABLE,
        FaultKind.ABORTED,
        FaultKind.RESOURCE_EXHAUSTED,
        FaultKind.DEADLINE_EXCEEDED,
        FaultKind.INTERNAL,
        FaultKind.CANCELLED,
        FaultKind.SESSION_EXPIRED,
        FaultKind.CONNECTION_RESET,
        FaultKind.CLEAN_END,
        FaultKind.SILENCE,
        FaultKind.SLOWNESS,
        FaultKind.BREAK_BETWEEN_CHILDREN,
    )
)
"""Faults that are drawn: a fixed list, so that seeds keep theirs whatever faults there will be."""


class LateServer(FaultPlan):
    """The drawn faults of a seed; the first tokens that are asked for wait, until one query of each has waited enough.

    A reader whose patience does not grow would send these queries again and again.

    Args:
        seed: of the faults.
        pause: nanoseconds of the server's time before the first message.
        seconds: the same by the clock on the wall.
        tokens: how many are late, the initial query among them.
    """

    def __init__(self, seed: int, *, pause: int, seconds: float, tokens: int) -> None:
        super().__init__(seed, share=0.25, most=2, kinds=DRAWN)
        self._late = Fault(FaultKind.LATENESS, pause=pause)
        self._seconds = seconds
        self._tokens = tokens
        self._waiting: set[str | None] = set()
        self.waited_for = 0
        """How many of them have been waited for."""

    def next(self, token: str | None) -> FaultInQuery:
        if self._tokens > 0 and token not in self._waiting:
            self._tokens -= 1
            self._waiting.add(token)
        if token in self._waiting:
            return _LateQuery(self, self._late, token, self._seconds)
        return super().next(token)

    def was_waited_for(self, token: str | None) -> None:
        """The token's query has waited long enough; it is late no more."""
        if token in self._waiting:
            self._waiting.discard(token)
            self.waited_for += 1


class _LateQuery(FaultInQuery):
    def __init__(self, plan: LateServer, fault: Fault, token: str | None, seconds: float) -> None:
        super().__init__(plan, fault, None)
        self._server = plan
        self._token = token
        self._until = time.monotonic() + seconds

    def over(self) -> None:
        if time.monotonic() >= self._until:
            self._server.was_waited_for(self._token)
