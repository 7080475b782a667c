"""Measures the cost of partitions that have only heartbeats: processor time and memory of the daemon.

The scripted server serves them in a separate process. The memory that the daemon needs with ten partitions is
subtracted; its processor time is not.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure.daemon import daemon
from benchmarks.measure.process import cpu_below, cpu_of, resident
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.scale import Load, serving
from connector.core.timestamps import format_rfc3339

_FEW, _MANY = 10, 1000
_SETTLING = 3.0
_STARTUP = 90.0


def idle(size: Size) -> Iterator[Result]:
    """Measures a thousand partitions, with a heartbeat each second and one every ten seconds."""
    _, least = _watched(_FEW, "1s", size.seconds / 4)
    for heartbeat in ("1s", "10s") if size.seconds >= 10 else ("1s",):
        cpu, resident_bytes = _watched(_MANY, heartbeat, size.seconds)
        each = (resident_bytes - least) / (_MANY - _FEW) / 1024
        figures = {
            "partitions": float(_MANY),
            "heartbeat_s": float(heartbeat[:-1]),
            "core": round(cpu, 3),
            "kib_per_partition": round(each, 1),
        }
        yield Result("idle-partitions", "googlesql", figures=figures)


def _watched(partitions: int, heartbeat: str, seconds: float) -> tuple[float, int]:
    """Returns the share of a core, and the memory at the end in bytes."""
    origin = time.time_ns()
    with tempfile.TemporaryDirectory() as folder, serving(Load(partitions, seconds + _STARTUP), origin) as served:
        host, database, *_ = served
        _, project, _, instance, _, name = database.split("/")
        source = {"project": project, "instance": instance, "database": name, "change_stream": "Everything"}
        source |= {"start": format_rfc3339(origin), "heartbeat": heartbeat, "emulator_host": host}
        with daemon(source, Path(folder)) as reader:
            reader.wait_for("partitions", partitions)
            reader.wait_for("queries", partitions + 1)
            time.sleep(_SETTLING)
            before, since = _cpu(reader.pid), time.monotonic()
            time.sleep(seconds)
            used = _cpu(reader.pid) - before
            return used / (time.monotonic() - since), resident(reader.pid)


def _cpu(pid: int) -> float:
    return cpu_of(pid) + cpu_below(pid)
