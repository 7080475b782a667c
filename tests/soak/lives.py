"""The command ``spanner-cdc`` lived through again and again: killed, failed of a full disk, and started anew."""

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

from tests.faults.link import Link
from tests.soak.family import command, family, is_driver, is_jvm, is_reader, is_worker, kill
from tests.soak.faults.fault import ENVIRONMENT, marks
from tests.soak.faults.patches import FULL, SINK_FULL, STILL
from tests.soak.ordeal import OLD_COPIES, Ordeal, SaidWhyError, is_lost_and_told, is_told_of
from tests.soak.plan import Life, Plan, afterwards

ROOT = Path(__file__).parents[2]
_POLL = 0.01
_SEALED_BEFORE = 3
"""How many epochs there are when something begins to stand still."""

_READY = "spark_sink: ready"
_MOVING = ("life-*.log", "spool/manifests/*", "spool/segments/*", "checkpoint/commits/*", "marks-*/*")
STANDSTILL_SECONDS, SPARK_STANDSTILL_SECONDS = 60.0, 120.0
"""Within which something has to move; Spark, by which the sink lives on too, takes its time to start."""


class SeedError(AssertionError):
    """A seed has failed; the text says of what."""


@dataclass(slots=True)
class Deadline:
    """When a seed must have ended, by the clock that counts seconds."""

    at: float

    @classmethod
    def within(cls, seconds: float) -> "Deadline":
        return cls(time.monotonic() + seconds)

    def check(self, what: Callable[[], str]) -> None:
        if time.monotonic() > self.at:
            raise SeedError(f"it does not end: {what()}")


class Standstill:
    """Fails a run in which nothing moves: no epoch is sealed, nothing is delivered, no life ends."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._state: object = None
        self._since = self._looked = time.monotonic()

    def check(self, what: Callable[[], str]) -> None:
        """Looks once a second."""
        now = time.monotonic()
        if now - self._looked < 1.0:
            return
        self._looked = now
        state = [sum(1 for _ in self._folder.glob(pattern)) for pattern in _MOVING]
        if state != self._state:
            self._state, self._since = state, now
        if now - self._since > self._seconds:
            raise SeedError(f"it stands still: nothing has moved for {self._seconds:.0f} s: {what()}")


def environment(trouble: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "SPANNER_EMULATOR_HOST"},
        ENVIRONMENT: trouble,
        "PYTHONPATH": str(ROOT),
        "PYTHONFAULTHANDLER": "1",
    }


class Lives:
    """Runs `spanner-cdc read` or `run` on a configuration until it has reached its end; counts what happened."""

    def __init__(self, plan: Plan, config: Path, deadline: Deadline, link: Link, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._config = config
        self._deadline = deadline
        self._link = link
        self._say = say
        seconds = SPARK_STANDSTILL_SECONDS if plan.with_spark or plan.live_sink else STANDSTILL_SECONDS
        self._standstill = Standstill(config.parent, seconds)
        self.told: Counter[str] = Counter()
        self.stood_still = False
        """Whether what the plan lets stand still has done so."""
        self.said_why = False
        """Whether a life has ended with a line that tells of what the seed goes through."""
        self.newest_before_last = 0
        """The newest epoch when the last life began, 0 for none."""

    def run(self, newest_epoch: Callable[[], int], check: Callable[[], None], between: Callable[[bool], bool]) -> None:
        """Until one ends with code 0.

        Args:
            newest_epoch: the number of the newest epoch, 0 for none.
            check: called now and then; raises where something else has failed.
            between: called after each life with whether it has reached the end; whether another has to follow all the
                same.
        """
        for number in count():
            lives = self._plan.lives
            life = lives[number] if number < len(lives) else afterwards(self._plan, number)
            self.newest_before_last = newest_epoch()
            ended = self._live(number, life, check)
            if not between(ended) and ended:
                return

    def _live(self, number: int, life: Life, check: Callable[[], None]) -> bool:
        """One life; whether it has reached the end."""
        log = self._config.parent / f"life-{number}.log"
        folder = self._config.parent / f"marks-{number}"
        folder.mkdir()
        trouble = replace(life.trouble, marks=str(folder), columns=self._plan.columns, cut_files=self._plan.cut_files)
        self._say(f"life {number}: {life}")
        with _started(self._plan, self._config, trouble.to_text(), log) as process:
            killed = self._until_its_end(process, life, folder, log, check)
            code = process.returncode
        self._say(f"life {number}: ended with {code}, {killed or 'not killed'}, {sorted(marks(folder))}")
        self.told["restarts: in all"] += number > 0
        self._count(marks(folder), killed, life)
        said = log.read_text(errors="replace")
        if self._says_why(code, said):
            return False
        if " ERROR " in said:
            raise SeedError(f"an error was logged in {log}: {_tail(said, 'ERROR')}")
        if code == 0:
            return True
        if not killed and not self._is_a_full_disk(code, said, marks(folder)):
            raise SeedError(f"spanner-cdc ended with code {code}, see {log}: {_tail(said)}")
        return False

    def _says_why(self, code: int, said: str) -> bool:
        """Whether a life has ended with code 1 and a line that tells of what the seed goes through.

        Raises:
            SaidWhyError: there is no going on after it.
        """
        lines = [line for line in _complaints(said) if is_told_of(self._plan.ordeal, line)]
        if code != 1 or not lines:
            return False
        self.said_why = True
        if self._plan.ordeal in OLD_COPIES or is_lost_and_told(lines[0]):
            raise SaidWhyError(lines[0])
        return True

    def _until_its_end(
        self, process: subprocess.Popen[bytes], life: Life, folder: Path, log: Path, check: Callable[[], None]
    ) -> str:
        """Waits for the end of the process, and kills whom it has to; gives who was killed, if anybody was."""
        began = started = time.monotonic()
        killed = ""
        worker_dies = list(self._plan.worker_dies)
        while process.poll() is None:
            for bound in (self._deadline, self._standstill):
                bound.check(lambda: f"{command(process.pid)}, {log}: {_tail(log.read_text(errors='replace'))}")
            check()
            self._let_stand_still(process.pid, folder)
            if worker_dies and time.monotonic() - started >= worker_dies[0]:
                del worker_dies[0]
                self.told["workers of the daemon: killed"] += kill(list(filter(is_reader, family(process.pid)))[:1])
            if not killed:
                waits = marks(folder).get(life.trouble.point) if self._plan.with_spark else None
                if life.once_ready and _READY in log.read_text(errors="replace"):
                    life, began = replace(life, once_ready=False), time.monotonic()
                due = life.moment is not None and not life.once_ready and time.monotonic() - began >= life.moment
                due = due or (life.once_sealed and self._sealed() > 0)
                if due or (waits is not None and life.victim != "the daemon"):
                    killed = _kill(process.pid, life, waits)
            time.sleep(_POLL)
        if process.returncode == -SIGKILL and not killed:
            killed = "the daemon"
        return killed

    def _sealed(self) -> int:
        """How many epochs are kept."""
        return sum(1 for _ in self._config.parent.glob("spool/manifests/*"))

    def _let_stand_still(self, root: int, folder: Path) -> None:
        """Once epochs are sealed, stops the daemon, or puts Spanner out of reach, for as long as the plan says."""
        plan = self._plan
        if plan.ordeal is Ordeal.CLOCK_STILL:
            self.stood_still = self.stood_still or STILL in marks(folder)
        if self.stood_still or plan.ordeal not in (Ordeal.STOPPED, Ordeal.OUTAGE):
            return
        if self._sealed() < _SEALED_BEFORE:
            return
        self.stood_still = True
        self._say(f"{plan.ordeal}: {plan.still:.1f} s")
        if plan.ordeal is Ordeal.OUTAGE:
            self._link.down()
            time.sleep(plan.still)
            self._link.up()
            return
        stopped = family(root) if plan.with_family else [root]
        _signal(stopped, SIGSTOP)
        time.sleep(plan.still)
        _signal(stopped, SIGCONT)

    def _count(self, happened: dict[str, int], killed: str, life: Life) -> None:
        told = self.told
        told["workers of the daemon: lives with"] += self._plan.source["workers"] != 1
        told["clock steps: in all"] += sum(name.startswith("clock step") for name in happened)
        told["slow disks: in all"] += life.trouble.sync_seconds > 0
        told["full disks: the spool's"] += FULL in happened
        told["full disks: the sink's"] += SINK_FULL in happened
        if not killed:
            return
        point = life.trouble.point if life.trouble.point in happened else "at a random moment"
        told[f"killed: {killed}"] += 1
        told[f"kills: {point}"] += 1

    def _is_a_full_disk(self, code: int, said: str, happened: dict[str, int]) -> bool:
        """Whether it ended as it should where a disk is full: with code 1, and a line that tells so."""
        lines = [line for line in said.splitlines() if line.startswith(("spanner-cdc: ", "spark_sink: "))]
        full = any("No space left on device" in line and "Free space" in line for line in lines)
        if self._plan.with_spark:
            return code == 1 and full and (FULL in happened or SINK_FULL in happened)
        return code == 1 and full and FULL in happened and len(_complaints(said)) == 1


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _kill(root: int, life: Life, waits: int | None) -> str:
    """SIGKILL for the life's victims; gives who they were, for one that is not there yet whoever is."""
    all_of_it = family(root)
    drivers, jvms, workers = (list(filter(kind, all_of_it)) for kind in (is_driver, is_jvm, is_worker))
    match life.victim:
        case "the daemon":
            kill([root])
            return "the daemon"
        case "Spark's workers" if workers and (waits is None or waits in workers):
            kill(workers if waits is None else [waits])
            return "Spark's workers"
        case "the JVM" if jvms:
            kill(jvms if waits is None else [*jvms, waits])  # what stands still would do so for long
            return "the JVM"
        case "everything":
            kill(all_of_it)
            return "everything" if jvms else "the daemon"
    if drivers:
        kill(drivers if waits is None else [*drivers, waits])
        return "Spark's driver"
    return ""


@contextmanager
def _started(plan: Plan, config: Path, trouble: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["run" if plan.with_spark else "read", str(config)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.faults.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment(trouble),
            cwd=config.parent,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(family(process.pid))
        process.wait()


_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\S+Z (DEBUG|INFO|WARNING) ")


def _complaints(said: str) -> list[str]:
    return [line for line in said.splitlines() if not _LOGGED.match(line)]


def _tail(said: str, word: str = "") -> str:
    return " | ".join([line for line in said.splitlines() if word in line][-4:])
