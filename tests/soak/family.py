"""The processes that a process has started, and those that they have, and what each of them is."""

import os
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL


def family(root: int) -> list[int]:
    """The ids of a process, of those that it started, and so on; those that are gone or dead are left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return [process for process in found if Path(f"/proc/{process}").exists()]


def session(leader: int) -> list[int]:
    """The processes of a session, those among them whose parents are gone."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            process = int(entry.name)
            if os.getsid(process) == leader:
                found.append(process)
    return found


def command(process: int) -> str:
    """A process's command line, empty for one that is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_jvm(process: int) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command(process)


def is_driver(process: int) -> bool:
    return "tests.soak.faults.sink" in command(process)


def is_worker(process: int) -> bool:
    """Whether it is one of the Python processes that Spark's JVM starts."""
    return " -m pyspark." in command(process)


def is_reader(process: int) -> bool:
    """Whether it is one of the workers that the daemon starts to read with."""
    return "tests.soak.faults.reader" in command(process)


def kill(processes: list[int]) -> int:
    """SIGKILL for each; tells how many were there."""
    killed = 0
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, SIGKILL)
            killed += 1
    return killed
