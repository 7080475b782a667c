"""Histograms of latencies, filled from whole columns. Pure: no clock, no I/O."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
"""Upper bounds of the buckets, in seconds; one more bucket has what is above."""


class LatencyHistogram:
    """Counts latencies in the buckets of :data:`BOUNDS`.

    Attributes:
        counts: how many are in each bucket, not cumulated.
        total: the sum of all latencies, in seconds.
    """

    def __init__(self) -> None:
        self.counts: npt.NDArray[np.int64] = np.zeros(len(BOUNDS) + 1, np.int64)
        self.total = 0.0

    def observe(self, seconds: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> None:
        """Counts latencies, each so many times; a negative one, of a clock that is behind, counts as 0."""
        seconds = np.maximum(seconds, 0.0)
        buckets = np.searchsorted(BOUNDS, seconds, side="left")
        found = np.bincount(buckets, weights=weights, minlength=len(BOUNDS) + 1).astype(np.int64)
        # A new array: the status server reads from another thread.
        self.counts = self.counts + found
        self.total += float((seconds * weights).sum())

    def cumulated(self) -> Sequence[tuple[str, float]]:
        """Each bound as Prometheus writes it, with how many latencies are at or below it."""
        names = [*(str(bound) for bound in BOUNDS), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, np.cumsum(self.counts), strict=True)]
