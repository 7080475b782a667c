"""Plans windows: how far the next one reaches, and who reads what. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connector.core.partitions import CutPartition
from connector.core.windows.window import Share


def deal(cut: Sequence[CutPartition], weights: Mapping[str, int], *, most: int) -> list[Share]:
    """Deals a cut out as shares of about equal weight; no share is empty, every partition is in exactly one.

    A partition that is heavier than a share on average is alone. The same arguments give the same shares.

    Args:
        cut: at least one partition.
        weights: bytes of each partition in the last window, by token; none means 0.
        most: how many shares there may be: the executors' cores. There are fewer where there is little to read.
    """
    ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How long windows are, from how the last ones went; start with ``Pace()``."""

    length: int = 0
    """Nanoseconds of commit time of the next window, at most."""
    bytes_per_second: float = 0.0
    """Bytes a second of commit time, as the last windows had."""

    def after(self, *, span: int, bytes: int, behind: int) -> "Pace":
        """The pace after a window was sealed.

        Args:
            span: nanoseconds of commit time of the window.
            bytes: of its records, over all shares.
            behind: nanoseconds between its end and Spanner's clock now.
        """
        ...

    def expected_bytes(self, span: int) -> int:
        """Bytes that are expected of a window of ``span`` nanoseconds; 0 where nothing is known."""
        ...


def next_window(low: int, clock: int, pace: Pace, *, end: int | None = None) -> int | None:
    """The ``high`` of the window that follows ``low``; None where it is not yet time for one.

    A window never spans a full minute of commit time, and ends before Spanner's clock.

    Args:
        low: the last window's high.
        clock: Spanner's, nanoseconds since the epoch.
        pace: from the windows before.
        end: the user's end, inclusive, or None.
    """
    ...
