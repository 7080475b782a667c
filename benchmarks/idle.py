"""Measures what a daemon costs beside its data: partitions that have only heartbeats, and clients of its status server.

The scripted server serves them in a separate process. The memory that the daemon needs with ten partitions is
subtracted; its processor time is not.
"""

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from benchmarks.measure.daemon import Daemon, daemon
from benchmarks.measure.process import cpu_below, cpu_of, resident
from benchmarks.measure.result import Result
from benchmarks.measure.size import Size
from benchmarks.scaling.reader import Load, serving
from connector.core.timestamps import format_rfc3339

_FEW, _MANY = 10, 1000
_CLIENTS = 50
_SETTLING = 3.0
_STARTUP = 90.0


def quick_heartbeats(size: Size) -> Iterator[Result]:
    """Measures the share of a core that heartbeats of 100 ms take, beside heartbeats of a second, by partitions."""
    for partitions in (1, 100, _MANY):
        shares = {heartbeat: _watched(partitions, heartbeat, size.seconds)[0] for heartbeat in ("100ms", "1s")}
        figures = {
            "partitions": float(partitions),
            **{f"core_{heartbeat}": round(share, 3) for heartbeat, share in shares.items()},
            "times": round(shares["100ms"] / max(shares["1s"], 0.001), 1),
        }
        yield Result("heartbeats", "googlesql", figures=figures)


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


def status_clients(size: Size) -> Iterator[Result]:
    """Measures the cost of fifty clients that request the status once a second, against a daemon without them."""
    rounds, seconds = (5, 8.0) if size.seconds >= 10 else (1, 3.0)
    with _reader(_FEW, "1s", 4 * rounds * seconds) as reader:
        found = [(_share(reader, seconds), _polled(reader, seconds)) for _ in range(rounds)]
    added = [polled - alone for alone, (polled, _) in found]
    figures = {
        "clients": float(_CLIENTS),
        "answers_per_s": round(sum(answers for _, (_, answers) in found) / (rounds * seconds), 1),
        "core_without": round(statistics.median(alone for alone, _ in found), 4),
        "core_with": round(statistics.median(polled for _, (polled, _) in found), 4),
        "added_core": round(statistics.median(added), 4),
        "added_core_most": round(max(added), 4),
    }
    yield Result("status-clients", "googlesql", figures=figures)


def _polled(reader: Daemon, seconds: float) -> tuple[float, int]:
    """Returns the share of a core with the clients, and how many answers they got."""
    stop, answers = threading.Event(), [0]

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        await asyncio.sleep(number / _CLIENTS)
        while not stop.is_set():
            asked = time.monotonic()
            async with session.get(f"{reader.url}/api/status") as answer:
                await answer.read()
                answers[0] += answer.status == 200
            await asyncio.sleep(max(0.0, asked + 1.0 - time.monotonic()))

    async def clients() -> None:
        connector = aiohttp.TCPConnector(limit=_CLIENTS)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
            for number in range(_CLIENTS):
                tasks.create_task(client(number, session))

    thread = threading.Thread(target=lambda: asyncio.run(clients()), name="clients")
    thread.start()
    try:
        time.sleep(1.0)  # all are connected
        answers[0] = 0
        return _share(reader, seconds), answers[0]
    finally:
        stop.set()
        thread.join()


def _share(reader: Daemon, seconds: float) -> float:
    """Returns the share of a core that a daemon uses for so long."""
    before, since = _cpu(reader.pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu(reader.pid) - before) / (time.monotonic() - since)


def _watched(partitions: int, heartbeat: str, seconds: float) -> tuple[float, int]:
    """Returns the share of a core, and the memory at the end in bytes."""
    with _reader(partitions, heartbeat, seconds) as reader:
        return _share(reader, seconds), resident(reader.pid)


@contextmanager
def _reader(partitions: int, heartbeat: str, seconds: float) -> Iterator[Daemon]:
    """Runs a daemon that has all of these partitions for at least so many seconds."""
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
            yield reader


def _cpu(pid: int) -> float:
    return cpu_of(pid) + cpu_below(pid)
