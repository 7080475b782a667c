"""Runs a workload in the background of a test, and names its last commit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from connector.core.timestamps import format_rfc3339
from emulator import Workload


@contextmanager
def load(workload: Workload, *, rate: float) -> Iterator[None]:
    """Commits in a thread while the context is open."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: workload.run(stop=stop, rate=rate), name="load")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def last_commit(workload: Workload) -> str:
    """Returns the timestamp of a workload's last commit."""
    return format_rfc3339(workload.committed[-1].commit_timestamp_ns)
