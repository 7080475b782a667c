"""The states of a stream, by Datastream's names. Pure.

https://cloud.google.com/datastream/docs/reference/rest/v1/projects.locations.streams#state

A daemon records its state in the spool, and that it is alive, again and again. What is seen of a record also depends on
whether it still does: a process that was killed has recorded nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from connector.core.health.retries import DAEMON, Cause, Retry
from connector.core.timestamps import SECOND

SILENCE = 60 * SECOND
"""After this long without a sign of life a daemon is taken for dead."""


FRESH = 20 * SECOND
"""A sign of life is followed by the next one within this time."""


class StreamState(StrEnum):
    """The states in the life of a stream."""

    NOT_STARTED = "Not started"
    """No daemon runs: none was started yet, or the last one has ended as it was asked to."""
    STARTING = "Starting"
    """A daemon connects, and reads what the spool holds."""
    RUNNING = "Running"
    DRAINING = "Draining"
    """The complete epochs are sealed and delivered; then the daemon ends, or is paused."""
    PAUSED = "Paused"
    """Nothing is read until ``spanner-cdc resume``. Spanner's retention continues."""
    FAILED = "Failed"
    """A daemon has ended with an error; a restart may succeed."""
    FAILED_PERMANENTLY = "Failed permanently"
    """A daemon has ended with an error that a restart meets again."""


END_REACHED = "the configured end is reached"
"""The reason of a stream that has ended because it is complete."""

ALIVE = (StreamState.STARTING, StreamState.RUNNING, StreamState.DRAINING, StreamState.PAUSED)
"""The states in which a daemon runs."""

_FINAL_EXIT_CODES = (2, 3, 4)
"""A restart meets the same error: an invalid configuration, data that Spanner no longer retains, and others."""


@dataclass(frozen=True, slots=True)
class RetentionPeriod:
    """The time for which Spanner keeps a stream's records.

    Attributes:
        period: nanoseconds; 0 while unknown.
        is_default: whether the stream does not set it, so that it is the documented default.
    """

    period: int = 0
    is_default: bool = False

    def __str__(self) -> str:
        return "Spanner's default retention" if self.is_default else "Spanner's retention"


@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """The partition whose watermark is the lowest, with that, and how many partitions are a minute or more past it."""

    partition: str
    watermark: int
    ahead: int


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A state, and why; timestamps in nanoseconds since 1970.

    Attributes:
        state: the state.
        since: when it began.
        reason: why, in one line; empty if there is nothing to say.
        hint: what to do; empty if nothing.
        seen: the daemon's last sign of life.
        retention: how long Spanner keeps the stream's records.
        complete: up to which all that was committed was in the spool at that sign of life; 0 while unknown.
        retries: what had failed for long at that sign of life; of a daemon that has failed, or that has read nothing
            since the last one did, that.
        clock_ahead: nanoseconds by which the daemon's clock is ahead of Spanner's; 0 if it is right.
        max_bytes: the size of the spool at which the daemon waits for its consumers; 0 if unknown.
        holder: of the watermark at that sign of life, if the reader was behind then; None otherwise.
    """

    state: StreamState
    since: int
    reason: str = ""
    hint: str = ""
    seen: int = 0
    retention: RetentionPeriod = RetentionPeriod()
    retries: tuple[Retry, ...] = ()
    complete: int = 0
    clock_ahead: int = 0
    max_bytes: int = 0
    holder: WatermarkHolder | None = None

    @property
    def is_complete(self) -> bool:
        """True if the stream has ended at its configured end: nothing is to be read any more."""
        return self.state is StreamState.NOT_STARTED and self.reason == END_REACHED

    @property
    def is_well(self) -> bool:
        """True if the daemon works, or has done all that it was to do."""
        return self.is_complete or self.state in (StreamState.STARTING, StreamState.RUNNING, StreamState.DRAINING)

    def to(self, state: StreamState, now: int, *, reason: str = "", hint: str = "") -> "StateRecord":
        """The record of a state that begins now; of the same state and reason it began before."""
        same = (state, reason) == (self.state, self.reason)
        retries = () if state is StreamState.NOT_STARTED else self.retries
        since = self.since if same else now
        return replace(self, state=state, since=since, reason=reason, hint=hint, seen=now, retries=retries)

    def alive(
        self, now: int, retries: Iterable[Retry] = (), complete: int = 0, holder: WatermarkHolder | None = None
    ) -> "StateRecord":
        """The record with a sign of life, what has failed for long then, what is complete, and what holds the rest."""
        return replace(self, seen=now, retries=tuple(retries), complete=complete, holder=holder)

    def complete_at(self, now: int) -> int:
        """The timestamp up to which reading is complete now: with the lag of the last sign of life if that is fresh."""
        is_fresh = self.state in ALIVE and 0 <= now - self.seen <= FRESH
        return self.complete + (now - self.seen if is_fresh and self.complete else 0)

    def _silence(self, now: int) -> int:
        """The nanoseconds since the last sign of life. It is of a clock that may be wrong, or may be right since."""
        return min(abs(now - self.seen), abs(now - self.seen + self.clock_ahead))

    def as_seen(self, now: int, *, pause_requested: bool) -> "StateRecord":
        """The state as a reader of the record should report it.

        A daemon that is silent has ended without recording it. A pause outlives every daemon.
        """
        is_silent = self.state in ALIVE and self._silence(now) > SILENCE
        if is_silent and not (pause_requested and self.state is StreamState.PAUSED):
            return StateRecord(
                StreamState.FAILED,
                min(self.seen, now),
                f"the daemon was {self.state}, and has ended without a word, or is suspended",
                "Start it again: it continues from the last epoch.",
                self.seen,
                self.retention,
            )
        runs = self.state in ALIVE and not is_silent
        if pause_requested and not runs and self.state not in (StreamState.FAILED, StreamState.FAILED_PERMANENTLY):
            reason = "no daemon runs; one that is started reads nothing until `spanner-cdc resume CONFIG`"
            return replace(self, state=StreamState.PAUSED, reason=reason, hint="")
        return self


NEVER = StateRecord(StreamState.NOT_STARTED, 0, "no daemon has written this spool yet")


def failed(before: StateRecord, now: int, line: str, hint: str, exit_code: int) -> StateRecord:
    """The record of a daemon that ends with an error."""
    is_final = exit_code in _FINAL_EXIT_CODES
    record = before.to(StreamState.FAILED_PERMANENTLY if is_final else StreamState.FAILED, now, reason=line, hint=hint)
    known = [retry for retry in before.retries if retry.what == DAEMON]
    since, attempts = (known[0].since, known[0].attempts) if known else (now, 0)
    cause = Cause("the daemon has ended with an error, and has read nothing since it was started again", "", line, hint)
    return replace(record, retries=(Retry(DAEMON, cause, since, now, attempts + 1),))
