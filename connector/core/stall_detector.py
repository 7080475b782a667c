"""Detects a watermark that is stalled for a reason outside the reader. Pure: time comes as an argument."""

from connector.core.timestamps import SECOND

LONGEST_PAUSE = 3600.0
"""Seconds between two attempts to end one stall, at most."""

ANSWERS_FROM = 1 / 3
"""The part of its patience after which Spanner's clock is requested: an outage of Spanner is not a stall."""


class StallDetector:
    """Called at short intervals with the present watermark.

    A watermark is stalled if it does not move for ``patience`` while it does not wait for this reader, and while
    Spanner's clock advances. Something is then to be done about it. If that has not helped, it is to be done again,
    with a pause that doubles each time, up to an hour.

    Args:
        patience: seconds.
        step: seconds between two calls, at most. A longer gap is this process's own (it was stopped, or the machine was
            suspended), and counts as one step.
    """

    def __init__(self, patience: float, *, step: float) -> None:
        self.patience = patience
        self._step = step
        self._watermark: int | None = None
        self._clock = 0
        self._at = 0.0
        self._due = self._check_at = patience
        self.stalled_for = 0.0
        """Seconds that the watermark has not moved, without those in which it waited for this reader."""
        self.times = 0
        """The number of reports of the present stall."""

    def look(self, at: float, *, watermark: int, clock: int, waits_for_reader: bool) -> bool:
        """True if Spanner's clock is to be requested, for :meth:`is_stalled`.

        Args:
            at: the time of a monotonic clock, in seconds.
            watermark: Unix nanoseconds.
            clock: a timestamp that Spanner's clock is known to have passed, Unix nanoseconds.
            waits_for_reader: whether the watermark waits for this reader: for room in the sink, or for a partition that
                the reader pauses.
        """
        passed, self._at = min(at - self._at, self._step), at
        if waits_for_reader or watermark != self._watermark:
            self._watermark, self._clock = watermark, clock
            self.reset()
            return False
        self.stalled_for += passed
        return self.stalled_for >= self._check_at

    def reset(self) -> None:
        """The watermark has moved, or Spanner's clock cannot be requested, which is an outage: counting restarts."""
        self.stalled_for, self._due, self.times = 0.0, self.patience, 0
        self._check_at = self.patience * ANSWERS_FROM

    def is_stalled(self, clock: int) -> bool:
        """True if the watermark is stalled while Spanner's clock advances, and it is time to do something.

        Args:
            clock: what Spanner's clock has passed, requested just now; Unix nanoseconds.
        """
        assert self._watermark is not None
        self._check_at = self._due
        lag = clock - self._watermark
        if self.stalled_for < self._due or clock <= self._clock or lag < self.patience * SECOND:
            return False
        self.times += 1
        self._due = self._check_at = self.stalled_for + self.pause
        return True

    @property
    def pause(self) -> float:
        """Seconds from the last report of the stall to the next."""
        return max(self.patience, min(self.patience * 2.0**self.times, LONGEST_PAUSE))
