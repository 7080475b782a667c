"""Reads a process's processor time, memory and children from the operating system (/proc)."""

import re
from collections import defaultdict
from os import sysconf
from pathlib import Path

_TICKS = sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Returns the processor time of a running process and of children it has waited for, in seconds."""
    return sum(int(ticks) for ticks in _stat(pid)[11:15]) / _TICKS


def cpu_below(pid: int) -> float:
    """Returns the processor time of all running descendants of a process, in seconds."""
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
    """Returns the peak memory of a running process, in bytes, without that of its parent before it started."""
    return _memory(pid, "VmHWM")


def resident(pid: int | str) -> int:
    """Returns the memory of a running process, in bytes."""
    return _memory(pid, "VmRSS")


def _memory(pid: int | str, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _stat(pid: int) -> list[str]:
    """Returns the fields of ``/proc/<pid>/stat`` after the name, which may have spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
