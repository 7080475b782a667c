"""Runs the command ``spanner-cdc`` again and again: it is killed, fails because of a full disk, and is restarted."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

from tests.soak.faults.lasting import LastingFault, disk_is_full
from tests.soak.faults.patches import CLOCK_STOPPED, FULL, SINK_FULL
from tests.soak.faults.process_faults import ENVIRONMENT, marks
from tests.soak.incident import OLD_COPIES, ExplainedEndError, Incident, explains, reports_loss
from tests.soak.plan import Plan, ProcessRun, run_without_kills
from tests.soak.process_tree import command, is_driver, is_jvm, is_reader, is_worker, kill, process_tree
from tests.without_pandas import with_hidden

ROOT = Path(__file__).parents[2]
_POLL = 0.01
_SEALED_BEFORE = 3
"""The number of epochs after which a pause begins."""

_READY = "spark_sink: ready"
_MOVING = ("run-*.log", "spool/manifests/*", "spool/segments/*", "checkpoint/commits/*", "marks-*/*")
STALL_SECONDS, SPARK_STALL_SECONDS = 180.0, 360.0
"""Time within which there must be progress; Spark, which the background sink uses too, takes long to start."""


class SeedError(AssertionError):
    """A seed has failed; the message says why."""


@dataclass(slots=True)
class Deadline:
    """The time by which a seed must have ended, on the monotonic clock."""

    at: float

    @classmethod
    def within(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    def check(self, what: Callable[[], str]) -> None:
        if time.monotonic() > self.at:
            raise SeedError(f"the seed does not end: {what()}")


class StallDetector:
    """Fails a seed that is stalled: no epoch is sealed, nothing is delivered, no process ends."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._state: object = None
        self._since = self._looked = time.monotonic()

    def check(self, what: Callable[[], str]) -> None:
        """Checks for progress once a second."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        state = [sum(1 for _ in self._folder.glob(pattern)) for pattern in _MOVING]
        if state != self._state:
            self._state, self._since = state, now
        if now - self._since > self._seconds:
            raise SeedError(f"the seed is stalled: no progress for {self._seconds:.0f} s: {what()}")


def environment(faults: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "SPANNER_EMULATOR_HOST"},
        ENVIRONMENT: faults,
        "PYTHONPATH": with_hidden(str(ROOT)),
        "PYTHONFAULTHANDLER": "1",
    }


class ProcessRuns:
    """Runs `spanner-cdc read` or `run` on a configuration until it has reached its end, and counts what happens."""

    def __init__(
        self, plan: Plan, config: Path, deadline: Deadline, lasting: LastingFault, report: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._config = config
        self._deadline = deadline
        self._lasting = lasting
        self._report = report
        seconds = SPARK_STALL_SECONDS if plan.with_spark or plan.background_sink else STALL_SECONDS
        self._stall_detector = StallDetector(config.parent, seconds)
        self.counts: Counter[str] = Counter()
        self.paused = False
        """True if the planned pause has happened."""
        self.explained = False
        """True if a run has ended with a line that names the seed's incident."""
        self.newest_before_last = 0
        """The newest epoch when the last run started, 0 for none."""

    def run(self, newest_epoch: Callable[[], int], check: Callable[[], None], between: Callable[[bool], bool]) -> None:
        """Starts the command until it ends with code 0.

        Args:
            newest_epoch: returns the newest epoch, 0 for none.
            check: called repeatedly; raises if anything else has failed.
            between: called after each run with whether it has reached its end; returns whether another must follow in
                any case.
        """
        for number in count():
            runs = self._plan.runs
            run = runs[number] if number < len(runs) else run_without_kills(self._plan, number)
            self.newest_before_last = newest_epoch()
            ended = self._run_once(number, run, check)
            self._lasting.look(None, self._sealed())
            if not between(ended) and ended:
                return

    def _run_once(self, number: int, run: ProcessRun, check: Callable[[], None]) -> bool:
        """Starts the command once; returns whether it has reached its end."""
        log = self._config.parent / f"run-{number}.log"
        folder = self._config.parent / f"marks-{number}"
        folder.mkdir()
        faults = replace(
            run.faults,
            marks=str(folder),
            columns=self._plan.columns,
            cut_files=self._plan.cut_files,
            full_while=str(disk_is_full(self._config.parent)),
        )
        self._report(f"run {number}: {run}")
        with _started(self._plan, self._config, faults.to_text(), log) as process:
            killed = self._until_its_end(process, run, folder, log, check)
            code = process.returncode
        self._report(f"run {number}: ended with {code}, {killed or 'not killed'}, {sorted(marks(folder))}")
        self.counts["restarts: total"] += number > 0
        self._count(marks(folder), killed, run)
        text = _without_alarms(log.read_text(errors="replace"))
        if self._is_explained(code, text, killed):
            return False
        if code != 0 and any(map(self._lasting.explains, _complaints(text))):
            self.counts["ends in a lasting fault: total"] += 1
            return False
        if " ERROR " in text:
            raise SeedError(f"an error was logged in {log}: {_tail(text, 'ERROR')}")
        if code == 0:
            return True
        if not killed and not self._is_full_disk(code, text, marks(folder)):
            raise SeedError(f"spanner-cdc ended with code {code}, see {log}: {_tail(text)}")
        return False

    def _is_explained(self, code: int, text: str, killed: str) -> bool:
        """True if a run has ended with code 1 and a line that names the seed's incident.

        A run that was killed has logged such a line, perhaps, and could not print it as its last one.

        Raises:
            ExplainedEndError: no run can follow it.
        """
        lines = [line for line in (text.splitlines() if killed else _complaints(text)) if self._names_incident(line)]
        unexpected = [line for line in text.splitlines() if " ERROR " in line and not self._names_incident(line)]
        if (code != 1 and not killed) or not lines or unexpected:
            return False
        self.explained = True
        if self._plan.incident in OLD_COPIES or reports_loss(text):
            raise ExplainedEndError(lines[0])
        return True

    def _names_incident(self, line: str) -> bool:
        return explains(self._plan.incident, line)

    def _until_its_end(
        self, process: subprocess.Popen[bytes], run: ProcessRun, folder: Path, log: Path, check: Callable[[], None]
    ) -> str:
        """Waits for the end of the process and kills the planned victim; returns what was killed, or an empty text."""
        began = started = time.monotonic()
        killed = ""
        worker_dies = list(self._plan.worker_dies)
        while process.poll() is None:
            for bound in (self._deadline, self._stall_detector):
                bound.check(lambda: f"{command(process.pid)}, {log}: {_tail(log.read_text(errors='replace'))}")
            check()
            self._pause(process.pid, folder)
            self._lasting.look(process.pid, self._sealed())
            if worker_dies and time.monotonic() - started >= worker_dies[0]:
                del worker_dies[0]
                readers = list(filter(is_reader, process_tree(process.pid)))
                self.counts["workers of the daemon: killed"] += kill(readers[:1])
            if not killed:
                waits = marks(folder).get(run.faults.point) if self._plan.with_spark else None
                if run.once_ready and _READY in log.read_text(errors="replace"):
                    run, began = replace(run, once_ready=False), time.monotonic()
                due = run.kill_after is not None and not run.once_ready and time.monotonic() - began >= run.kill_after
                due = due or (run.once_sealed and self._sealed() > 0)
                if due or (waits is not None and run.victim != "the daemon"):
                    killed = _kill(process.pid, run, waits)
            time.sleep(_POLL)
        if process.returncode == -SIGKILL and not killed:
            killed = "the daemon"
        return killed

    def _sealed(self) -> int:
        """Returns the number of epochs that are kept."""
        return sum(1 for _ in self._config.parent.glob("spool/manifests/*"))

    def _pause(self, root: int, folder: Path) -> None:
        """Once epochs are sealed, stops the daemon for as long as planned."""
        plan = self._plan
        if plan.incident is Incident.CLOCK_STOPPED:
            self.paused = self.paused or CLOCK_STOPPED in marks(folder)
        if self.paused or plan.incident is not Incident.STOPPED:
            return
        if self._sealed() < _SEALED_BEFORE:
            return
        self.paused = True
        self._report(f"{plan.incident}: {plan.pause_seconds:.1f} s")
        stopped = process_tree(root) if plan.with_children else [root]
        _signal(stopped, SIGSTOP)
        time.sleep(plan.pause_seconds)
        _signal(stopped, SIGCONT)

    def _count(self, happened: dict[str, int], killed: str, run: ProcessRun) -> None:
        counts = self.counts
        counts["workers of the daemon: runs with"] += self._plan.source["workers"] != 1
        counts["clock steps: total"] += sum(name.startswith("clock step") for name in happened)
        counts["slow disks: total"] += run.faults.sync_seconds > 0
        counts["full disks: the spool's"] += FULL in happened
        counts["full disks: the sink's"] += SINK_FULL in happened
        if not killed:
            return
        point = run.faults.point if run.faults.point in happened else "at a random time"
        counts[f"killed: {killed}"] += 1
        counts[f"kills: {point}"] += 1

    def _is_full_disk(self, code: int, text: str, happened: dict[str, int]) -> bool:
        """True if the run ended as it must on a full disk: with code 1, and one line that says so."""
        lines = [line for line in text.splitlines() if line.startswith(("spanner-cdc: ", "spark_sink: "))]
        full = any("No space left on device" in line and "Free space" in line for line in lines)
        if self._plan.with_spark:
            return code == 1 and full and (FULL in happened or SINK_FULL in happened)
        return code == 1 and full and FULL in happened and len(_complaints(text)) == 1


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _kill(root: int, run: ProcessRun, waits: int | None) -> str:
    """Sends SIGKILL to the run's victims, or to Spark's driver if there are none yet; returns what was killed."""
    processes = process_tree(root)
    drivers, jvms, workers = (list(filter(kind, processes)) for kind in (is_driver, is_jvm, is_worker))
    match run.victim:
        case "the daemon":
            kill([root])
            return "the daemon"
        case "Spark's workers" if workers and (waits is None or waits in workers):
            kill(workers if waits is None else [waits])
            return "Spark's workers"
        case "the JVM" if jvms:
            kill(jvms if waits is None else [*jvms, waits])  # a process that waits at its point would wait for long
            return "the JVM"
        case "everything":
            kill(processes)
            return "everything" if jvms else "the daemon"
    if drivers:
        kill(drivers if waits is None else [*drivers, waits])
        return "Spark's driver"
    return ""


@contextmanager
def _started(plan: Plan, config: Path, faults: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["run" if plan.with_spark else "read", str(config)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.faults.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment(faults),
            cwd=config.parent,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process_tree(process.pid))
        process.wait()


_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\S+Z (DEBUG|INFO|WARNING) ")


def _without_alarms(text: str) -> str:
    """A log without alarms: histories lie years away from this machine's clock, and faults that last are named."""
    return "".join(line for line in text.splitlines(keepends=True) if " alarm=" not in line)


def _complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _LOGGED.match(line)]


def _tail(text: str, word: str = "") -> str:
    return " | ".join([line for line in text.splitlines() if word in line][-4:])
