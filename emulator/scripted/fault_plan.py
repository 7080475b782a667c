"""What goes wrong in a scripted stream: drawn from a seed, and by explicit rules.

Every change stream query asks the plan once. A drawn fault depends on the seed, the query's partition token and on
which query of that token it is, so that a run can be had again. A token suffers `most` drawn faults and no more:
any reader that asks again after a fault comes to an end. Faults after which a reader must stop, for what it wants is
no longer there, come by rules only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from random import Random

DISORDER = "out of order"
"""The name under which `FaultPlan.struck` counts broken promises of order; see `FaultPlan.disorder`."""

ANY = object()
"""In the place of a token: a rule for every partition's query and for the initial one."""


class FaultKind(StrEnum):
    """What can go wrong."""

    UNAVAILABLE = "unavailable"
    ABORTED = "aborted"
    RESOURCE_EXHAUSTED = "resource exhausted"
    DEADLINE_EXCEEDED = "deadline exceeded"
    INTERNAL = "internal"
    """INTERNAL, of a broken transport by its message."""
    CANCELLED = "cancelled"
    """CANCELLED by the server."""
    SESSION_EXPIRED = "session expired"
    """NOT_FOUND: the session of the query is unknown from then on."""
    CONNECTION_RESET = "connection reset"
    """The query's connection is reset, with all that goes over it."""
    CLEAN_END = "clean end"
    """OK though the partition goes on: before it announced others, and not where an OK would prove the bound."""
    SILENCE = "silence"
    """Nothing comes any more, and the query does not end."""
    SLOWNESS = "slowness"
    """Pauses before each message."""
    LATENESS = "lateness"
    """A pause before the first message, whatever `after` says; then the query goes on as ever."""
    BREAK_BETWEEN_CHILDREN = "break between children"
    """UNAVAILABLE between two records that announce partitions: after `after` of them, one at least, but the last."""
    OMISSION = "omission"
    """The announcements of a query whose end has passed do not come, and it ends with OK, as if there were none."""
    EXPIRED_START = "expired start"
    """OUT_OF_RANGE: the start is no longer retained."""
    EXPIRED_PARTITION = "expired partition"
    """OUT_OF_RANGE: nothing of the partition is retained."""


FATAL = frozenset((FaultKind.EXPIRED_START, FaultKind.EXPIRED_PARTITION))
"""After these a reader cannot go on."""

RECOVERABLE = frozenset(FaultKind) - FATAL - {FaultKind.OMISSION}
"""After these a reader asks again, and misses nothing. (An omission that comes again each time is not to be seen.)"""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong in a query, once `after` messages have been sent.

    `pause` is of SLOWNESS and LATENESS: nanoseconds of the server's time before each message from then on, or before
    the first one. `message` is the error's text in the place of the usual one.
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

    Without a seed there are those of the rules only. `share` of the queries of each token suffer a drawn fault of the
    `kinds`, until that token has had `most`; it strikes after up to `latest` messages, if the query comes so far.
    `struck` counts, by the kind's name, what came to pass. Rules may be added while the server runs.

    Raises:
        ValueError: `kinds` holds one that a reader cannot go on after.
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
            raise ValueError(f"{', '.join(sorted(FATAL & set(kinds)))} ends a reader: only a rule can bring that")
        self.seed = seed
        self._share = share
        self._most = most
        self._latest = latest
        self._kinds = sorted(kinds)
        self._rules: list[_Rule] = []
        self._asked: Counter[str | None] = Counter()
        self._suffered: Counter[str | None] = Counter()
        self.struck: Counter[str] = Counter()
        self._disorders = 0

    def disorder(self, times: int) -> FaultPlan:
        """Break the promise of order so many times; gives itself.

        A record or an announcement comes right after one that proves it has come: the next one, or a heartbeat. It
        comes to pass in queries that suffer no fault, lest one break between the two: the record would not come at all.
        """
        self._disorders += times
        return self

    def breaks_order(self) -> bool:
        """Whether the order is to be broken once more; `disordered` tells of it."""
        return self._disorders > 0

    def disordered(self) -> None:
        """Count that the order was broken."""
        self._disorders -= 1
        self.struck[DISORDER] += 1

    def rule(self, fault: Fault, *, token: object = ANY, times: int = 1) -> FaultPlan:
        """Add what is to happen in the next `times` queries of a token (None: the initial query); gives itself.

        A query meets one fault: that of the first rule left for it, else a drawn one. What does not strike, because
        the query ended before, is left for the next.
        """
        self._rules.append(_Rule(fault, token, times))
        return self

    @property
    def may_reset(self) -> bool:
        """Whether connections may be reset, by what is known now."""
        drawn = self.seed is not None and FaultKind.CONNECTION_RESET in self._kinds
        return drawn or any(rule.fault.kind is FaultKind.CONNECTION_RESET for rule in self._rules)

    def next(self, token: str | None) -> FaultInQuery:
        """Give what the token's next query suffers."""
        asked = self._asked[token]
        self._asked[token] += 1
        for rule in self._rules:
            if rule.times > 0 and (rule.token is ANY or rule.token == token):
                rule.times -= 1
                return FaultInQuery(self, rule.fault, rule)
        return FaultInQuery(self, self._drawn(token, asked), None)

    def _drawn(self, token: str | None, asked: int) -> Fault | None:
        if self.seed is None or not self._kinds or self._suffered[token] >= self._most:
            return None
        random = Random(f"{self.seed}/{token}/{asked}")  # noqa: S311 - a script, no secret
        if random.random() >= self._share:
            return None
        self._suffered[token] += 1
        kind, after = random.choice(self._kinds), random.randint(0, self._latest)
        return Fault(kind, after, pause=random.randint(1, 2_000) * 1_000_000)


class FaultInQuery:
    """The fault that one query is to suffer, if any."""

    def __init__(self, plan: FaultPlan, fault: Fault | None, rule: _Rule | None) -> None:
        self._plan = plan
        self._rule = rule
        self._has_struck = False
        self.fault = fault

    def strike(self) -> None:
        """Count it; it strikes once."""
        if self.fault is not None and not self._has_struck:
            self._has_struck = True
            self._plan.struck[self.fault.kind.value] += 1

    def over(self) -> None:
        """Tell that the query has ended: what did not strike is left for the rule's next query."""
        if self._rule is not None and not self._has_struck:
            self._rule.times += 1
