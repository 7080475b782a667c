"""A server whose first message of a query takes longer than a reader's first timeout."""

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
"""The faults that are drawn: a fixed list, so that seeds keep their faults when new kinds are added."""


class LateServer(FaultPlan):
    """The drawn faults of a seed; queries of the first tokens are late until one query of each has waited long enough.

    A reader whose timeout does not grow would send these queries again and again.

    Args:
        seed: of the faults.
        pause: nanoseconds of the server's time before the first message.
        seconds: the same in real seconds.
        tokens: how many tokens are late, the initial query included.
    """

    def __init__(self, seed: int, *, pause: int, seconds: float, tokens: int) -> None:
        super().__init__(seed, share=0.25, most=2, kinds=DRAWN)
        self._late = Fault(FaultKind.LATENESS, pause=pause)
        self._seconds = seconds
        self._tokens = tokens
        self._waiting: set[str | None] = set()
        self.waited_for = 0
        """The number of these tokens that have had a query that waited long enough."""

    def next(self, token: str | None) -> FaultInQuery:
        if self._tokens > 0 and token not in self._waiting:
            self._tokens -= 1
            self._waiting.add(token)
        if token in self._waiting:
            return _LateQuery(self, self._late, token, self._seconds)
        return super().next(token)

    def was_waited_for(self, token: str | None) -> None:
        """Records that the token's query has waited long enough; its queries are no longer late."""
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
