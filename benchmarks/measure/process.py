"""What the operating system knows of a process: its processor time, its memory, what it has started."""

import re
from collections import defaultdict
from os import sysconf
from pathlib import Path

_TICKS = sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """The processor time of a living process and of those it has waited for, in seconds."""
    return sum(int(ticks) for ticks in _stat(pid)[11:15]) / _TICKS


def cpu_below(pid: int) -> float:
    """The processor time of all living processes that a process has started, and that they have, in seconds."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children[int(_stat(int(path.parent.name))[1])].append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    found, waiting = 0.0, list(children[pid])
    while waiting:
        child = waiting.pop()
        waiting += children[child]
        try:
            found += cpu_of(child)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def peak_of(pid: int | str) -> int:
    """The most memory that a living process has used, in bytes; that of its parent before it began does not count."""
    return _memory(pid, "VmHWM")


def resident(pid: int | str) -> int:
    """The memory that a living process uses, in bytes."""
    return _memory(pid, "VmRSS")


def _memory(pid: int | str, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/<pid>/stat`` after the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
