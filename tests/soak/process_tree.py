"""Finds the descendants of a process, and says what each of them is."""

import os
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL


def process_tree(root: int) -> list[int]:
    """Returns the ids of a process and its descendants that are alive."""
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
    """Returns the ids of the processes of a session, orphans included."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            process = int(entry.name)
            if os.getsid(process) == leader:
                found.append(process)
    return found


def command(process: int) -> str:
    """Returns a process's command line; empty if the process is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_jvm(process: int) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command(process)


def is_driver(process: int) -> bool:
    return "tests.soak.faults.sink" in command(process)


def is_worker(process: int) -> bool:
    """True if it is one of the Python processes that Spark's JVM starts."""
    return " -m pyspark." in command(process)


def is_reader(process: int) -> bool:
    """True if it is one of the daemon's worker processes."""
    return "tests.soak.faults.reader" in command(process)


def victims_of(service: int) -> dict[str, list[int]]:
    """The processes of a service by what they are, where there are any: all, the sink's driver, JVM, workers."""
    tree = process_tree(service)
    drivers = [process for process in tree if " spark_sink " in command(process) and not is_worker(process)]
    found = {
        "service": tree,
        "driver": [below for driver in drivers for below in process_tree(driver)],
        "JVM": [process for process in tree if is_jvm(process)],
        "worker": [process for process in tree if is_worker(process)],
    }
    return {name: processes for name, processes in found.items() if processes}


def kill(processes: list[int]) -> int:
    """Sends SIGKILL to each process; returns how many were alive."""
    killed = 0
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, SIGKILL)
            killed += 1
    return killed
