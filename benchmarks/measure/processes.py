"""The processes of a Spark application: its driver, the JVMs of its executors, and their Python workers."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measure.process import cpu_below, cpu_of, peak_of

_EXECUTOR = "CoarseGrainedExecutorBackend"
_WORKER = "pyspark.daemon"
_INTERVAL = 1.0
_GONE = (FileNotFoundError, ProcessLookupError)


def executors(pid: int) -> list[int]:
    """Returns the executors' JVMs below a process; none with a local master, whose driver is the executor."""
    return [one for one in below(pid) if _EXECUTOR in _command(one)]


def workers(pid: int) -> list[int]:
    """Returns the Python workers of Spark below a process."""
    return [one for one in below(pid) if _WORKER in _command(one)]


def below(pid: int) -> list[int]:
    """Returns all running descendants of a process."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(*_GONE):
            children[int(path.read_text().rpartition(")")[2].split()[1])].append(int(path.parent.name))
    found = list(children[pid])
    for one in found:
        found += children[one]
    return found


def cpu_of_tree(pid: int) -> float:
    """Returns the processor time of a process and of all below it, in seconds."""
    with suppress(*_GONE):
        return cpu_of(pid) + cpu_below(pid)
    return 0.0


def _command(pid: int) -> str:
    with suppress(*_GONE):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


class Peaks:
    """The largest peaks of memory that were seen, in bytes; see `watched`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.worker = 0
        self.executor = 0

    def look(self) -> None:
        """Looks once."""
        self.worker = max([self.worker, *map(_peak, workers(self._pid))])
        self.executor = max([self.executor, *map(_peak, executors(self._pid))])


def _peak(pid: int) -> int:
    with suppress(*_GONE, AssertionError):  # a process that ends has no memory
        return peak_of(pid)
    return 0


@contextmanager
def watched(pid: int) -> Iterator[Peaks]:
    """The peaks of the processes below one, while the context is open: a worker may end before the work does."""
    peaks, ended = Peaks(pid), threading.Event()

    def watch() -> None:
        while not ended.wait(_INTERVAL):
            peaks.look()

    thread = threading.Thread(target=watch, name="peaks", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()
        peaks.look()
