"""How many cores there are for this process."""

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
