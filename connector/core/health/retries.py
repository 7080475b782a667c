"""Operations that are being retried, since when, and why. Pure: the clock comes in as an argument.

Every place that retries reports each failure here, and each success. An error that is retried at once heals unseen; one
that lasts is an alarm (:mod:`connector.core.health.alarms`). So a retry without limit never looks like health.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from connector.core.timestamps import SECOND

LASTING = 30 * SECOND
"""The time after which a failure is an alarm: within a minute, with the interval of the checks."""

_REPEATED = 10 * SECOND
"""Failures that are repeated for so long are no blip, whenever the next success would show."""

PROOF = 5 * SECOND
"""The time that a successful retry may take to show, unless the place says otherwise."""

LONGEST_DETAIL = 500
"""Characters of an error's own text that are kept."""

SPANNER, WORKERS, STORAGE, SINK, BACKFILL, DAEMON = "spanner", "workers", "storage", "sink", "backfill", "daemon"
"""The places that retry. Each has the alarm of its name and ``_failing``."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a retry; no text has a row's value or a secret.

    Attributes:
        text: what fails and where, as the beginning of a sentence.
        code: the error's class, such as a gRPC code.
        detail: the error's own text, in one line.
        hint: what to do.
    """

    text: str
    code: str = ""
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        why = ": ".join(part for part in (self.code, " ".join(self.detail.split())[:LONGEST_DETAIL]) if part)
        return f"{self.text} ({why})" if why else self.text


@dataclass(frozen=True, slots=True)
class Retry:
    """Something that fails, and is retried.

    Attributes:
        what: the place that retries.
        cause: of the newest failure.
        since: nanoseconds since 1970 at which it last worked, as nearly as is known.
        last: when it failed last.
        attempts: how often it has failed since.
        subject: what it is about, where a place has several.
        parts: how many of its parts fail, such as partitions; 0 if it has none.
    """

    what: str
    cause: Cause
    since: int
    last: int
    attempts: int = 1
    subject: str = ""
    parts: int = 0


@dataclass(slots=True)
class _Failing:
    retry: Retry
    first: int
    proof: int

    def at(self, now: int) -> "_Failing":
        """The same by a clock that was set back: the last failure is then of now, and has lasted as long as before."""
        ahead = self.retry.last - now
        if ahead <= 0:
            return self
        retry = replace(self.retry, since=self.retry.since - ahead, last=now)
        return _Failing(retry, self.first - ahead, self.proof)

    def is_lasting(self, now: int, least: int) -> bool:
        """True if it fails for long, and the last retry would have shown by now if it had succeeded."""
        last = self.retry.last
        return now - self.retry.since >= least and (last - self.first >= _REPEATED or now - last >= self.proof)


@dataclass(slots=True)
class RetryLog:
    """The operations that a process retries. Each is retried by one thread at a time; any thread may read them."""

    _failing: dict[tuple[str, str, str], _Failing] = field(default_factory=dict)

    def failed(
        self, what: str, cause: Cause, now: int, *, subject: str = "", part: str = "", lasted: int = 0, proof: int = 0
    ) -> None:
        """Something has failed, and is retried.

        Args:
            what: the place.
            cause: why.
            now: nanoseconds since 1970.
            subject: what it is about, where the place has several.
            part: the part that fails, such as a partition.
            lasted: for how long it had failed when that was noticed, in nanoseconds: a timeout.
            proof: how long a retry that succeeds may take to show it, at least; in nanoseconds.
        """
        key = (what, subject, part)
        found = self._failing.get(key)
        known = found.at(now) if found else _Failing(Retry(what, cause, now - lasted, now, 0, subject), now, PROOF)
        retry = replace(known.retry, cause=cause, last=now, attempts=known.retry.attempts + 1)
        self._failing[key] = _Failing(retry, known.first, max(PROOF, proof))

    def healed(self, what: str, *, subject: str = "", part: str = "") -> None:
        """It works again, or is no longer retried."""
        if self._failing:  # this is called for each success
            self._failing.pop((what, subject, part), None)

    def clear(self) -> None:
        """Nothing is retried any more."""
        self._failing.clear()

    def lasting(self, now: int, least: int | None = None) -> list[Retry]:
        """The retries that have failed for long: one a place and subject, with the newest cause and the earliest time.

        Args:
            now: nanoseconds since 1970.
            least: how long that is, in nanoseconds; None for :data:`LASTING`.
        """
        long = LASTING if least is None else least
        known = [(key[2], one.at(now)) for key, one in self._failing.copy().items()]
        failing = [(part, one.retry) for part, one in known if one.is_lasting(now, long)]
        return merged(replace(retry, parts=1 if part else 0) for part, retry in failing)


def merged(retries: Iterable[Retry]) -> list[Retry]:
    """One of each place and subject, with the newest cause, the earliest time, and all their parts."""
    found: dict[tuple[str, str], Retry] = {}
    for retry in retries:
        at = (retry.what, retry.subject)
        before = found.get(at)
        if before is not None:
            newest = retry if retry.last >= before.last else before
            retry = replace(
                newest,
                since=min(retry.since, before.since),
                attempts=max(retry.attempts, before.attempts),
                parts=retry.parts + before.parts,
            )
        found[at] = retry
    return list(found.values())
