"""Plans the faults of a scripted stream: drawn from a seed, and by explicit rules.

The plan decides the fault of each change stream query. A drawn fault depends on the seed, the query's partition token
and the number of earlier queries of that token, so that a run can be repeated. A token has at most `most` drawn faults,
so any reader that retries comes to an end. Faults after which a reader must stop, because the data is no longer
retained, are injected by rules only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from random import Random

DISORDER = "out of order"
"""The name under which `FaultPlan.struck` counts violations of the order; see `FaultPlan.disorder`."""

ANY = object()
"""Instead of a token: a rule for every partition's queries and for the initial one."""


class FaultKind(StrEnum):
    """The kinds of faults."""

    UNAVAILABLE = "unavailable"
    ABORTED = "aborted"
    RESOURCE_EXHAUSTED = "resource exhausted"
    DEADLINE_EXCEEDED = "deadline exceeded"
    INTERNAL = "internal"
    """INTERNAL, with the message of a broken transport."""
    CANCELLED = "cancelled"
    """CANCELLED by the server."""
    SESSION_EXPIRED = "session expired"
    """NOT_FOUND: the query's session does not exist from then on."""
    CONNECTION_RESET = "connection reset"
    """The query's connection is reset, with all of its other queries."""
    CLEAN_END = "clean end"
    """OK although the partition continues: before it announced others, and only if the OK does not prove the end."""
    SILENCE = "silence"
    """The query sends nothing more, and does not end."""
    SLOWNESS = "slowness"
    """A pause before each message."""
    LATENESS = "lateness"
    """A pause before the first message, whatever `after` is; then the query continues normally."""
    BREAK_BETWEEN_CHILDREN = "break between children"
    """UNAVAILABLE between two records that announce partitions: after `after` of them, but at least after the first."""
    OMISSION = "omission"
    """A query whose end timestamp has passed omits its announcements, and ends with OK as if there were none."""
    EXPIRED_START = "expired start"
    """OUT_OF_RANGE: the start is no longer retained."""
    EXPIRED_PARTITION = "expired partition"
    """OUT_OF_RANGE: the partition is no longer retained."""


FATAL = frozenset((FaultKind.EXPIRED_START, FaultKind.EXPIRED_PARTITION))
"""Faults after which a reader cannot continue."""

RECOVERABLE = frozenset(FaultKind) - FATAL - {FaultKind.OMISSION}
"""Faults after which a reader queries again, and misses nothing. (It cannot detect an omission that is repeated.)"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a query, once `after` messages have been sent.

    `pause` is for SLOWNESS and LATENESS: nanoseconds of the server's time before each message from then on, or before
    the first one. `message` replaces the error's usual text.
    """

    kind: FaultKind
    after: int = 0
    pause: int = 0
    message: str = ""


@dataclass(slots=True)
class _Rule:
    fault: Fault
    token: object
    times: int


class FaultPlan:
    """The faults of one server.

    Without a seed there are only those of the rules. A share of `share` of each token's queries have a drawn fault of
    the `kinds`, until that token has had `most`; it is injected after up to `latest` messages, if the query sends as
    many. `struck` counts the injected faults by the kind's name. Rules may be added while the server runs.

    Raises:
        ValueError: `kinds` has one after which a reader cannot continue.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        share: float = 0.5,
        most: int = 3,
        latest: int = 8,
        kinds: Collection[FaultKind] = RECOVERABLE,
    ) -> None:
        if FATAL & set(kinds):
            fatal = ", ".join(sorted(FATAL & set(kinds)))
            raise ValueError(f"kinds has {fatal}, after which a reader cannot continue: use a rule instead")
        self.seed = seed
        self._share = share
        self._most = most
        self._latest = latest
        self._kinds = sorted(kinds)
        self._rules: list[_Rule] = []
        self._queries: Counter[str | None] = Counter()
        self._drawn_faults: Counter[str | None] = Counter()
        self.struck: Counter[str] = Counter()
        self._disorders = 0

    def disorder(self, times: int) -> FaultPlan:
        """Sends a record out of order, `times` times; returns the plan.

        A record or an announcement is sent right after one that proves that nothing earlier follows: after its
        successor, or after a heartbeat. Only queries without a fault are affected: a fault could end the query between
        the two, and the record would not be sent at all.
        """
        self._disorders += times
        return self

    def breaks_order(self) -> bool:
        """True if another record is to be sent out of order; call `disordered` once it is."""
        return self._disorders > 0

    def disordered(self) -> None:
        """Counts a record that was sent out of order."""
        self._disorders -= 1
        self.struck[DISORDER] += 1

    def rule(self, fault: Fault, *, token: object = ANY, times: int = 1) -> FaultPlan:
        """Injects a fault into the next `times` queries of a token (None: the initial query); returns the plan.

        A query has one fault: that of the first rule left for it, or else a drawn one. A fault that is not injected,
        because the query ended before, is left for the next query.
        """
        self._rules.append(_Rule(fault, token, times))
        return self

    @property
    def may_reset(self) -> bool:
        """True if connections may be reset by the rules so far or by drawn faults."""
        drawn = self.seed is not None and FaultKind.CONNECTION_RESET in self._kinds
        return drawn or any(rule.fault.kind is FaultKind.CONNECTION_RESET for rule in self._rules)

    def next(self, token: str | None) -> FaultInQuery:
        """Returns the fault of the token's next query."""
        number = self._queries[token]
        self._queries[token] += 1
        for rule in self._rules:
            if rule.times > 0 and (rule.token is ANY or rule.token == token):
                rule.times -= 1
                return FaultInQuery(self, rule.fault, rule)
        return FaultInQuery(self, self._drawn(token, number), None)

    def _drawn(self, token: str | None, number: int) -> Fault | None:
        if self.seed is None or not self._kinds or self._drawn_faults[token] >= self._most:
            return None
        random = Random(f"{self.seed}/{token}/{number}")  # noqa: S311 - not a secret
        if random.random() >= self._share:
            return None
        self._drawn_faults[token] += 1
        kind, after = random.choice(self._kinds), random.randint(0, self._latest)
        return Fault(kind, after, pause=random.randint(1, 2_000) * 1_000_000)


class FaultInQuery:
    """The fault of one query, if it has one."""

    def __init__(self, plan: FaultPlan, fault: Fault | None, rule: _Rule | None) -> None:
        self._plan = plan
        self._rule = rule
        self._has_struck = False
        self.fault = fault

    def strike(self) -> None:
        """Counts the fault as injected, at the first call only."""
        if self.fault is not None and not self._has_struck:
            self._has_struck = True
            self._plan.struck[self.fault.kind.value] += 1

    def over(self) -> None:
        """Ends the query: a fault of a rule that was not injected is left for the next query."""
        if self._rule is not None and not self._has_struck:
            self._rule.times += 1
