"""A reader with many partitions, or with a long backlog: its cost, and whether it keeps up.

`spanner-cdc read` runs as users run it, against a scripted Spanner in a separate process. Its memory and processor time
are the operating system's figures (VmHWM, utime + stime). The watermark's lag is measured by the server's clock.
"""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.proxies import OPENER
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool
from emulator import Fault, FaultKind, FaultPlan, Framing, Scenario, ScriptedServer
from emulator.scenario.history import PartitionMode
from emulator.scenario.scenario import steady

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Load:
    """The records that the server serves; with `backlog` all of it is committed before the reader starts."""

    partitions: int
    seconds: float
    records_per_second_per_partition: float = 0.0
    mods_per_record: int = 1
    churn_per_minute: float = 0.0
    backlog: bool = False
    slow_pause: float = 0.0
    """Seconds that one partition pauses before each of its messages; 0 if none is slow."""
    mode: PartitionMode = "IMMUTABLE_KEY_RANGE"

    def scenario(self, origin: int) -> Scenario:
        return steady(
            1,
            origin=origin,
            seconds=self.seconds,
            partitions=self.partitions,
            records_per_second_per_partition=self.records_per_second_per_partition,
            mods_per_record=self.mods_per_record,
            churn_per_minute=self.churn_per_minute,
            mode=self.mode,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a reader from its first query until its end or until it was stopped."""

    mods: int
    epochs: int
    most_partitions: int
    churn: dict[str, int]
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    lags: tuple[float, ...]
    """The watermark's lag behind the server's clock in seconds, each half second, after it first caught up."""
    steps: tuple[float, ...]
    """Seconds between two moves of the watermark, backlog included."""

    @property
    def cpu(self) -> float:
        """The share of a core."""
        return self.cpu_seconds / self.seconds

    def lag(self, quantile: float) -> float:
        found = sorted(self.lags) or [float("inf")]
        return found[min(int(len(found) * quantile), len(found) - 1)]


def _serve(load: Load, origin: int, pipe: Connection) -> None:
    scenario = load.scenario(origin)
    plan = FaultPlan()
    if load.slow_pause:
        token = next(iter(scenario.history.partitions))
        plan.rule(Fault(FaultKind.SLOWNESS, pause=int(load.slow_pause * SECOND)), token=token, times=1_000_000)
    begins = scenario.history.horizon + SECOND if load.backlog else None
    with ScriptedServer.started(scenario, faults=plan, framing=Framing.plain(16), begins=begins) as server:
        mods = sum(len(change.mods) for change in scenario.history.changes())
        pipe.send((server.host, server.database, server.now - time.time_ns(), scenario.history.horizon, mods))
        pipe.recv()
        pipe.send(server.engine.most_open)


@contextmanager
def serving(load: Load, origin: int) -> Iterator[tuple[str, str, int, int, int]]:
    """Runs a server in a separate process: its address, database, clock offset, horizon and number of mods."""
    near, far = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(load, origin, far))
    process.start()
    try:
        yield near.recv()
        near.send(None)
        near.recv()
    finally:
        process.terminate()
        process.join()


def source_of(host: str, database: str, origin: int) -> dict[str, object]:
    """The section `source` of a reader that starts at the origin of what is served."""
    _, project, _, instance, _, name = database.split("/")
    names = {"project": project, "instance": instance, "database": name, "change_stream": "Everything"}
    return {**names, "start": format_rfc3339(origin), "emulator_host": host}


@contextmanager
def running(sections: Mapping[str, object], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `spanner-cdc read` with a spool, a log and a configuration in `folder`; it has ended afterwards."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({**sections, "spool": {"path": str(folder / "spool")}, "status": {"port": 0}}))
    with (folder / "read.log").open("wb") as log:
        command = [sys.executable, "-m", "connector", "read", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def read(load: Load, folder: Path, *, heartbeat: str, stop_after: float | None = None) -> Cost:
    """Reads the load into a spool in `folder`: to its end, or until it has all partitions for `stop_after` seconds.

    Raises:
        RuntimeError: the reader failed, or did not read exactly the committed mods.
    """
    origin = time.time_ns()
    folder.mkdir(exist_ok=True)
    with serving(load, origin) as (host, database, ahead, horizon, mods):
        source = {**source_of(host, database, origin), "heartbeat": heartbeat}
        if stop_after is None:
            source["end"] = format_rfc3339(horizon)
        with running({"source": source, "sink": {"path": str(folder / "events")}}, folder) as process:
            cost = _watch(process, folder, lambda: time.time_ns() + ahead, stop_after, load.partitions)
        if stop_after is None and cost.mods != mods:
            raise RuntimeError(f"{mods} mods were committed, {cost.mods} are in the spool")
        return cost


def _watch(
    process: "subprocess.Popen[bytes]",
    folder: Path,
    clock: Callable[[], int],
    stop_after: float | None,
    partitions: int,
) -> Cost:
    spool, started = Spool.at(folder / "spool"), time.monotonic()
    lags: list[float] = []
    steps: list[float] = []
    watermark, moved, peak, cpu, most, caught_up = 0, started, 0, 0.0, 0, False
    stops_at: float | None = None
    churn: dict[str, int] = {}
    while process.poll() is None:
        now = time.monotonic()
        if stops_at is not None and now > stops_at:
            process.terminate()
            stops_at, stop_after = None, None
        found = _usage(process.pid)
        peak, cpu = (max(peak, found[0]), found[1]) if found else (peak, cpu)
        status = status_page(folder / "read.log")
        found_at = status.get("watermark")
        if found_at:
            at = parse(str(found_at))
            if at > watermark:
                steps.append(now - moved)
                watermark, moved = at, now
            lag = (clock() - at) / SECOND
            caught_up = caught_up or lag < 10
            if caught_up:
                lags.append(lag)
            most = max(most, int(float(str(status["partitions"]))))
            if stops_at is None and stop_after is not None and most >= partitions:
                stops_at = now + stop_after
            churn = dict(status["partition_churn"])  # type: ignore[call-overload]
        time.sleep(0.5)
    if process.returncode != 0:
        raise RuntimeError(
            f"spanner-cdc read ended with code {process.returncode}: {(folder / 'read.log').read_text()[-2000:]}"
        )
    kept = list(spool.manifests(spool.floor(), spool.latest()))
    seconds = time.monotonic() - started
    return Cost(_rows(kept), len(kept), most, churn, seconds, cpu, peak, tuple(lags), tuple(steps))


def _rows(kept: list[Manifest]) -> int:
    return sum(manifest.rows for manifest in kept)


def _usage(pid: int) -> tuple[int, float] | None:
    """Returns the peak memory in bytes and the processor time in seconds; None if the process has ended."""
    try:
        status, stat = Path(f"/proc/{pid}/status").read_text(), Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    ticks = stat.rpartition(")")[2].split()
    cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return (int(found[1]) * 1024, cpu) if found else None


def status_page(log: Path) -> dict[str, object]:
    """Returns the status page of the reader with that log, empty while there is none."""
    found = re.search(r"http://([\d.]+:\d+)", log.read_text())
    if found is None:
        return {}
    try:
        with OPENER.open(f"http://{found[1]}/api/status", timeout=5) as answer:
            node = json.load(answer)
            return {**node["figures"], **node["watermark"], "partition_churn": node["partitions"]["churn"]}
    except (OSError, ValueError):
        return {}


def busy(partitions: int, seconds: float, mode: PartitionMode) -> Load:
    """Busy partitions; a fifth of them splits each minute, and as many merge."""
    return Load(
        partitions, seconds, records_per_second_per_partition=0.1, mods_per_record=2, churn_per_minute=0.2, mode=mode
    )


def backlog(mods: int, mode: PartitionMode) -> Load:
    """A backlog on twenty partitions, of which one sends a message each half second."""
    return Load(20, 600, mods / 50 / 20 / 600, 50, backlog=True, slow_pause=0.5, mode=mode)


def cost_text(name: str, cost: Cost) -> str:
    """Returns the line that is printed of a load."""
    churn = ", ".join(f"{count} {kind}" for kind, count in sorted(cost.churn.items())) or "none"
    trails = f"trails p50 {cost.lag(0.5):.1f} s, max {cost.lag(1.0):.1f} s" if cost.lags else "never caught up"
    parts = [
        f"{name}: {cost.mods} mods, {cost.epochs} epochs, {cost.most_partitions} partitions in {cost.seconds:.0f} s",
        f"{cost.cpu:.2f} cores, peak {cost.peak_bytes / MIB:.0f} MiB",
        f"watermark {trails}, longest step {max(cost.steps, default=0):.1f} s",
        f"churn {churn}",
    ]
    return "; ".join(parts)
