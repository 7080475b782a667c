"""This process: its emulator of Spanner, the cores it may use, and how often Python collects garbage."""

import gc
import os
from contextlib import suppress
from pathlib import Path

EMULATOR_HOST = "SPANNER_EMULATOR_HOST"
"""The environment variable with the address of an emulator of Spanner, HOST:PORT."""

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = QUOTA) -> int:
    """The number of cores that the process may use, by its affinity and its container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # the file is missing, or holds "max"
        most, period = quota.read_text().split()
        allowed = min(allowed, max(int(most) // int(period), 1))
    return allowed


def collect_rarely() -> None:
    """Exempts all present objects from garbage collection, and collects new ones far less often.

    Thousands of partitions are hundreds of thousands of long-lived objects without cycles. With the default thresholds
    the collector visits them so often that it takes a third of the reader's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
