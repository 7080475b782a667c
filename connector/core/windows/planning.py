"""Plans windows: how far the next one reaches, and who reads what. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from connector.core.epoch import minute_end
from connector.core.partitions import CutPartition
from connector.core.timestamps import MINUTE, SECOND
from connector.core.windows.window import Share

IDLE = 64 * 1024
"""Bytes that a partition without records is dealt with: its queries take about as long as so many bytes of records."""

WORTH = 4 * 1024 * 1024
"""Bytes that are worth a share of their own."""

FIRST_LENGTH = 10 * SECOND
LEAST_LENGTH = 5 * SECOND
MOST_BYTES = 1024 * 1024 * 1024
"""Bytes of a window, at most, as far as the last windows foretell it."""

MARGIN = SECOND // 10
"""The least time by which Spanner's clock is past a window's end when the window is read."""


def deal(cut: Sequence[CutPartition], weights: Mapping[str, int], *, most: int) -> list[Share]:
    """Deals a cut out as shares of about equal weight; no share is empty, every partition is in exactly one.

    A partition that is heavier than a share on average is alone. The same arguments give the same shares.

    Args:
        cut: at least one partition.
        weights: bytes of each partition in the last window, by token; none means 0.
        most: how many shares there may be: the executors' cores. There are fewer where there is little to read.
    """
    heavy = sorted(((IDLE + weights.get(at.token, 0), at.token, at) for at in cut), key=lambda one: (-one[0], one[1]))
    worth = -(-sum(weight for weight, _, _ in heavy) // WORTH)
    count = max(1, min(most, len(heavy), worth))
    dealt: list[list[CutPartition]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for weight, _, at in heavy:
        loaded, number = heappop(lightest)
        dealt[number].append(at)
        heappush(lightest, (loaded + weight, number))
    return [Share(number, tuple(part)) for number, part in enumerate(dealt)]


@dataclass(frozen=True, slots=True)
class WindowPace:
    """The length of windows, which follows from the last ones; start with ``WindowPace()``."""

    length: int = FIRST_LENGTH
    """Nanoseconds of commit time of the next window, at most."""
    bytes_per_second: float = 0.0
    """Bytes a second of commit time, as the last windows had."""

    def after(self, *, span: int, bytes: int, behind: int, partitions: int) -> "WindowPace":  # noqa: A002 - the word of every report
        """The pace after a window was sealed: longer while behind, shorter at the head of an idle stream.

        Args:
            span: nanoseconds of commit time of the window.
            bytes: of its records, over all shares.
            behind: nanoseconds between its end and Spanner's clock now.
            partitions: those that a window queries, each again: with many of them short windows are expensive.
        """
        rate = bytes * SECOND / span
        # A rise counts at once: a window of unexpected size costs more than one that is too short.
        rate = max(rate, (rate + self.bytes_per_second) / 2)
        if behind > 2 * self.length:
            length = min(2 * self.length, MINUTE)
        elif behind <= self.length:
            length = max(
                min(self.length, FIRST_LENGTH) // (1 if bytes + partitions * IDLE > WORTH else 2), LEAST_LENGTH
            )
        else:
            length = self.length
        if rate > 0:
            length = min(length, max(int(MOST_BYTES / rate * SECOND), SECOND))
        return WindowPace(length, rate)

    def expected_bytes(self, span: int) -> int:
        """Bytes that are expected of a window of ``span`` nanoseconds; 0 where nothing is known."""
        return int(self.bytes_per_second * span / SECOND)


def next_window(low: int, clock: int, pace: WindowPace, *, end: int | None = None) -> int | None:
    """The ``high`` of the window that follows ``low``; None where Spanner's clock has not passed it yet.

    A window never spans a full minute of commit time.

    Args:
        low: the last window's high.
        clock: Spanner's, Unix nanoseconds.
        pace: from the windows before.
        end: the user's end, inclusive, or None; nothing is left to read where it is ``low``.
    """
    high = min(low + pace.length, minute_end(low + 1))
    if end is not None:
        high = min(high, end)
    return high if low < high < clock - MARGIN else None
