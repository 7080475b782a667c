"""Decides when the watermark stands still for no reason of the reader's own. Pure: time comes as an argument."""

from connector.core.timestamps import SECOND

LONGEST_PAUSE = 3600.0
"""Seconds between two attempts to heal one standstill, at most."""

ANSWERS_FROM = 1 / 3
"""The part of its patience after which Spanner must answer: what follows an outage is a pause of the queries'."""


class Standstill:
    """Looked at now and then with the watermark as it is.

    A watermark that does not move for ``patience`` while nobody waits for this reader, and while Spanner's clock goes
    on, stands still: something is to be done about it. Where that has not helped, it is to be done again: after twice
    the pause each time, an hour at most.

    Args:
        patience: seconds.
        step: seconds between two looks, at most. A longer gap is this process's own standstill (it was stopped, or the
            machine was suspended), and counts as one step.
    """

    def __init__(self, patience: float, *, step: float) -> None:
        self.patience = patience
        self._step = step
        self._watermark: int | None = None
        self._clock = 0
        self._at = 0.0
        self._due = self._ask_at = patience
        self.stood = 0.0
        """Seconds that the watermark has stood still; those in which somebody waited for this reader do not count."""
        self.times = 0
        """How often this standstill has been noticed."""

    def look(self, at: float, *, watermark: int, clock: int, ours: bool) -> bool:
        """Whether Spanner is to be asked for its clock, for :meth:`noticed`.

        Args:
            at: the time of a clock that never goes back, in seconds.
            watermark: nanoseconds since the epoch.
            clock: what Spanner's clock is known to have passed, nanoseconds since the epoch.
            ours: whether the watermark waits for this reader: for room in the sink, or for a partition that it pauses.
        """
        passed, self._at = min(at - self._at, self._step), at
        if ours or watermark != self._watermark:
            self._watermark, self._clock = watermark, clock
            self.unanswered()
            return False
        self.stood += passed
        return self.stood >= self._ask_at

    def unanswered(self) -> None:
        """Spanner cannot be asked for its clock: its own standstill, after which all begin anew."""
        self.stood, self._due, self.times = 0.0, self.patience, 0
        self._ask_at = self.patience * ANSWERS_FROM

    def noticed(self, clock: int) -> bool:
        """Whether the watermark stands still while Spanner's clock goes on, so that it is time to do something.

        Args:
            clock: what Spanner's clock has passed, as it was just asked; nanoseconds since the epoch.
        """
        assert self._watermark is not None
        self._ask_at = self._due
        if self.stood < self._due or clock <= self._clock or clock - self._watermark < self.patience * SECOND:
            return False
        self.times += 1
        self._due = self._ask_at = self.stood + self.pause
        return True

    @property
    def pause(self) -> float:
        """Seconds from the time it was last noticed to the next."""
        return max(self.patience, min(self.patience * 2.0**self.times, LONGEST_PAUSE))
