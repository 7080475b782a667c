"""``python -m benchmarks.scale --executors``: thousands of partitions, read by the executors of a Spark application.

`spanner-cdc read` runs as users run it, with two executors, against a scripted Spanner in a separate process that
serves the present: windows are planned as they come due. The server's processor time counts nowhere.
"""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.measure.process import cpu_of
from benchmarks.measure.processes import cpu_of_tree, executors
from benchmarks.scaling.reader import Load, running, serving, source_of, status_page
from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.spool.reading import Spool

MASTER = "local-cluster[2,1,1024]"
_POLL = 0.5


@dataclass(frozen=True, slots=True)
class WindowCost:
    """A window, as the status page reported it."""

    span: float
    """Seconds of commit time."""
    took: float
    """Seconds until it was sealed."""
    slowest_share: float
    partitions: int
    shares: int
    queries: int
    lag: float
    """Seconds between its end and the server's clock, once it was sealed."""

    @property
    def is_at_head(self) -> bool:
        """True if the next window has to wait, or almost."""
        return self.lag < self.span + _MARGIN


@dataclass(frozen=True, slots=True)
class ScaleCost:
    """The cost of reading a load with executors, from the first window that was at the head until the end.

    Attributes:
        windows: those windows.
        mods: in the spool.
        seconds: of wall clock.
        driver_python: processor time of the driver's Python process: planning, closing and sealing.
        driver_jvm: of the driver's JVM and what it started, the executors apart.
        executors: of each executor, its Python workers included.
    """

    windows: tuple[WindowCost, ...]
    mods: int
    seconds: float
    driver_python: float
    driver_jvm: float
    executors: tuple[float, ...]

    @property
    def keeps_up(self) -> bool:
        """True if windows take less time than they span, and the last ones are no further behind than the first."""
        half = len(self.windows) // 2
        early, late = self.windows[:half], self.windows[half:]
        return sum(one.took for one in self.windows) < sum(one.span for one in self.windows) and median(
            one.lag for one in late
        ) <= median(one.lag for one in early) + max(one.span for one in late)

    @property
    def cpu(self) -> float:
        """All processor time, in seconds."""
        return self.driver_python + self.driver_jvm + sum(self.executors)


@dataclass(frozen=True, slots=True)
class _Used:
    at: float
    driver: float
    python: float
    executors: dict[int, float]

    def after(self, later: "_Used") -> "_Used":
        """The time used until `later`; a process that is ending has lost its children's time, and keeps what it had."""
        if later.driver < self.driver:
            return self
        known = self.executors
        both = {pid: max(known.get(pid, 0.0), later.executors.get(pid, 0.0)) for pid in {*known, *later.executors}}
        return _Used(later.at, later.driver, max(self.python, later.python), both)


def read(load: Load, folder: Path) -> ScaleCost:
    """Reads a load into a spool in ``folder``, to its end.

    Raises:
        RuntimeError: the reader failed, or did not read exactly the committed mods.
    """
    origin = time.time_ns()
    folder.mkdir(exist_ok=True)
    with serving(load, origin) as (host, database, ahead, horizon, mods):
        source = {**source_of(host, database, origin), "end": format_rfc3339(horizon), "reader": "executors"}
        spark = {"master": MASTER, "config": {"spark.driver.memory": "1g"}}
        with running({"source": source, "spark": spark}, folder) as process:
            windows, first, last = _watch(process, folder / "read.log", ahead)
    spool = Spool.at(folder / "spool")
    found = sum(manifest.rows for manifest in spool.manifests(spool.floor(), spool.latest()))
    if process.returncode != 0 or found != mods:
        text = (folder / "read.log").read_text()[-2000:]
        raise RuntimeError(f"{mods} mods were committed, {found} are in the spool; code {process.returncode}: {text}")
    used = [now - first.executors.get(pid, 0.0) for pid, now in last.executors.items()]
    python = last.python - first.python
    return ScaleCost(
        tuple(windows), found, last.at - first.at, python, last.driver - first.driver - python - sum(used), tuple(used)
    )


def _watch(process: "subprocess.Popen[bytes]", log: Path, ahead: int) -> tuple[list[WindowCost], _Used, _Used]:
    """The windows from the first at the head on, and what was used before them and in the end.

    If none is at the head, all windows but the first, which has the initial query.
    """
    windows: list[WindowCost] = []
    first = last = _used(process.pid)
    watermark, queries, at_head = 0, 0, False
    while process.poll() is None:
        status = status_page(log)
        sealed = parse(str(status["watermark"])) if status.get("watermark") else 0
        if sealed > watermark and status["window_seconds"]:  # 0 until a window is sealed
            found = {name: float(str(status[name])) for name in _FIGURES}
            window = _window(found, int(found["queries"]) - queries, (time.time_ns() + ahead - sealed) / SECOND)
            if watermark and (at_head or not window.is_at_head):
                windows.append(window)
            else:
                windows, first = [], _used(process.pid)
            at_head = at_head or window.is_at_head
            watermark, queries = sealed, int(found["queries"])
        last = last.after(_used(process.pid))
        time.sleep(_POLL)
    return windows, first, last


def _window(found: dict[str, float], queries: int, lag: float) -> WindowCost:
    return WindowCost(
        found["window_span_seconds"],
        found["window_seconds"],
        found["slowest_share_seconds"],
        int(found["partitions"]),
        int(found["shares"]),
        queries,
        lag,
    )


_MARGIN = 5.0
_FIGURES = ("window_span_seconds", "window_seconds", "slowest_share_seconds", "partitions", "shares", "queries")


def _used(pid: int) -> _Used:
    """The CPU time that the application has used; the driver's part includes the executors, which its JVM starts."""
    try:
        python = cpu_of(pid)
    except FileNotFoundError:
        python = 0.0
    return _Used(time.monotonic(), cpu_of_tree(pid), python, {one: cpu_of_tree(one) for one in executors(pid)})


def report(cost: ScaleCost) -> str:
    """The lines that are printed."""
    windows, count = cost.windows, len(cost.windows)
    if not windows:
        return f"{cost.mods} mods in a window or two: read for longer with --seconds"
    queries, span = sum(one.queries for one in windows), sum(one.span for one in windows)
    took, lags = [one.took for one in windows], [one.lag for one in windows]
    most, shares = max(one.partitions for one in windows), max(one.shares for one in windows)
    where = "at the head" if windows[-1].is_at_head else "behind"
    slowest = median(one.slowest_share for one in windows)
    each = sum(cost.executors) / max(queries, 1) * 1000
    used = " and ".join(f"{one / count:.2f}" for one in cost.executors)
    planning = f"{cost.driver_python / count:.2f} s ({cost.driver_python / cost.cpu:.1%})"
    lines = (
        f"{cost.mods} mods, {most} partitions, {count} windows in {shares} shares, {where}: {_verdict(cost)}",
        f"  a window spans {span / count:.1f} s, and takes {median(took):.1f} s, at most {max(took):.1f} s",
        f"  its slowest share takes {slowest:.1f} s; it is sealed {median(lags):.1f} s after its end",
        f"  {queries / count:.0f} queries a window, {queries / sum(took):.0f} a second, {each:.2f} ms each",
        f"  processor time a window: executors {used} s, the driver's JVM {cost.driver_jvm / count:.2f} s,",
        f"  planning and sealing {planning}",
    )
    return "\n".join(lines)


def _verdict(cost: ScaleCost) -> str:
    """The verdict that it keeps up or not; on a busy machine, what the executors used says more than the clock."""
    if cost.keeps_up:
        return "keeps up"
    busiest = max(cost.executors, default=0.0) / len(cost.windows)
    return f"DOES NOT KEEP UP by the clock; a window takes the busiest executor {busiest:.1f} s of processor time"
