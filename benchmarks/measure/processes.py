"""The processes of a Spark application: its driver, the JVMs of its executors, and their Python workers."""

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from benchmarks.measure.process import cpu_below, cpu_of

_EXECUTOR = "CoarseGrainedExecutorBackend"
_GONE = (FileNotFoundError, ProcessLookupError)


def executors(pid: int) -> list[int]:
    """Returns the executors' JVMs below a process; none with a local master, whose driver is the executor."""
    return [one for one in below(pid) if _EXECUTOR in _command(one)]


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
