"""This process: how many cores there are for it, and when Python looks for objects that only a cycle keeps alive."""

import gc
import os
from contextlib import suppress
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = QUOTA) -> int:
    """The cores that the process may run on, or as much time of them as its container has, whichever is less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is no such file, or it says "max"
        most, period = quota.read_text().split()
        allowed = min(allowed, max(int(most) // int(period), 1))
    return allowed


def collect_rarely() -> None:
    """Lets the collector pass over what there is already, and over what is new far less often; for a whole process.

    Thousands of partitions are hundreds of thousands of objects that live long and form no cycles: with the usual
    thresholds the collector walked them so often that it took a third of the reader's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
