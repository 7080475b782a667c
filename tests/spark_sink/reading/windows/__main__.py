"""The campaign: executors read a history with splits, merges and moves, and processes are killed on the way.

``python -m tests.spark_sink.reading.windows --transactions 20000 --kills 10 --dialect googlesql --mode
MUTABLE_KEY_RANGE`` serves a scripted history, and runs ``spanner-cdc read`` with ``source.reader: executors``. It kills
the driver, its JVM, an executor or a Python worker at random moments, and starts the command again where it has ended.
In the end the spool must hold every committed mod once, in order, and no transaction split. A failure names its seed
and keeps its folder.

With ``--switches 4`` the history is served as it happens, and one process and executors take turns before that; while a
driver is stopped by SIGSTOP a second one must be refused. With ``--official`` the history is a workload on the official
emulator, whose partitions split, merge and move every one or two seconds.
"""

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP, SIGTERM
from typing import get_args

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.reading import Spool
from emulator import CommittedMod, SampleDatabase, Scenario, ScriptedServer, Workload, find_or_start
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.subjects import sample_of
from tests.integration.commands import Background, configuration
from tests.integration.delivered import assert_delivered
from tests.soak.process_tree import command, is_jvm, is_worker, kill, process_tree

_PATIENCE = 3600.0
_LONGEST_WAIT = 300.0
_JUST_NOW = 10.0
"""Seconds since the beginning of a history that is served as it happens."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A database whose history is read; ``start`` and ``end`` are Unix nanoseconds."""

    sample: SampleDatabase
    start: int
    end: int
    committed: Callable[[], list[CommittedMod]]
    capture: str
    is_official: bool


def main() -> int:
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="executors-"))
    served = _official if given.official else _scripted
    _say(f"seed {given.seed}, {given.dialect}, {given.mode}, {given.master}; {folder}")
    started = time.monotonic()
    with served(given) as subject:
        campaign = _Campaign(subject, folder, Random(given.seed), given.master)
        campaign.switch(given.switches)
        campaign.run(given.kills)
        seconds, committed = time.monotonic() - started, subject.committed()
        official = subject.sample if subject.is_official else None
        manifests = assert_delivered(folder / "spool", committed, value_capture_type=subject.capture, official=official)
    done = ", ".join(f"{count} {what}" for what, count in sorted(campaign.done.items()))
    writers = len({manifest.writer for manifest in manifests})
    _say(
        f"{len(committed)} mods once and in order, {len(manifests)} epochs of {writers} writers,"
        f" {seconds:.0f} s; {done or 'undisturbed'}"
    )
    shutil.rmtree(folder, ignore_errors=True)
    return 0


@contextmanager
def _scripted(given: argparse.Namespace) -> Iterator[_Subject]:
    ago = _JUST_NOW if given.switches else given.seconds + 30
    scenario = Scenario.generate(
        given.seed,
        origin=time.time_ns() - int(ago * SECOND),
        seconds=given.seconds,
        dialect=given.dialect,
        mode=given.mode,
        transactions=given.transactions,
        churn=given.churn,
        first_partitions=6,
    )
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        history = scenario.history
        yield _Subject(
            sample_of(server),
            history.origin,
            history.horizon,
            lambda: list(scenario.committed),
            scenario.value_capture_type,
            is_official=False,
        )


@contextmanager
def _official(given: argparse.Namespace) -> Iterator[_Subject]:
    with find_or_start(churn_seconds=1) as emulator:
        sample = SampleDatabase.create(emulator.host, dialect=given.dialect)
        workload = Workload(sample, seed=given.seed)
        start = time.time_ns()
        options = {"seconds": given.seconds - 2, "rate": given.transactions * 5 / given.seconds}
        loading = threading.Thread(target=workload.run, kwargs=options, name="load")
        loading.start()
        end = start + int(given.seconds * SECOND)
        try:
            yield _Subject(sample, start, end, lambda: workload.committed, "NEW_ROW", is_official=True)
        finally:
            loading.join()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.reading.windows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=300, help="of commit time")
    parser.add_argument("--churn", type=int, default=60)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--switches", type=int, default=0, help="between one process and executors")
    parser.add_argument("--official", action="store_true", help="the official emulator")
    parser.add_argument("--dialect", choices=get_args(Dialect), default="googlesql")
    parser.add_argument("--mode", choices=get_args(PartitionMode), default="IMMUTABLE_KEY_RANGE")
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    return parser.parse_args()


class _Campaign:
    """Runs of one configuration, kills and switches."""

    def __init__(self, subject: _Subject, folder: Path, random: Random, master: str) -> None:
        self._folder = folder
        self._random = random
        self._spool = folder / "spool"
        self._configs = {reader: self._config(reader, subject, master) for reader in ("process", "executors")}
        self._runs = 0
        self.done: Counter[str] = Counter()

    def _config(self, reader: str, subject: _Subject, master: str) -> Path:
        folder = self._folder / reader
        folder.mkdir()
        return configuration(
            folder,
            subject.sample,
            source={
                "reader": reader,
                "start": format_rfc3339(subject.start),
                "end": format_rfc3339(subject.end),
            },
            spool={"path": str(self._spool)},
            spark={"master": master, "config": {"spark.driver.memory": "768m"}},
        )

    def switch(self, switches: int) -> None:
        """Lets one process and executors take turns, and stops each at a random time."""
        for number in range(switches):
            reader = ("process", "executors")[number % 2]
            with self._start(reader) as reading:
                self._await_progress(reading)
                assert reading.process.poll() is None, f"it has ended, --seconds is too little: {reading.said}"
                if reader == "executors":
                    self._compete(reading)
                ended = reading.stop(SIGTERM, timeout=_LONGEST_WAIT)
            assert ended.code == 0, ended.err
            self.done["switches"] += 1
            _say(f"switch {number + 1}: {reader} has ended, after epoch {self._epoch()}")

    def _compete(self, reading: Background) -> None:
        """Starts a second driver while the first is stopped, and lets the first continue."""
        reading.signal(SIGSTOP)
        with self._start("executors") as second:
            refused = second.wait(timeout=_LONGEST_WAIT)
        reading.signal(SIGCONT)
        assert refused.code == 1, refused.err
        assert "is written by another daemon" in refused.err
        before = self._epoch()
        reading.until(lambda: self._epoch() > before, "an epoch of the first", timeout=_LONGEST_WAIT)
        self.done["second drivers refused"] += 1

    def run(self, kills: int) -> None:
        """Kills so many processes while the history is read, and reads it to its end."""
        reading = self._start("executors")
        deadline = time.monotonic() + _PATIENCE
        try:
            while reading.process.poll() != 0:
                assert time.monotonic() < deadline, f"it has not ended: {reading.said}"
                if reading.process.poll() is not None:
                    reading = self._start("executors")
                if self._killed < kills:
                    self._await_progress(reading)
                    self._kill(reading)
                time.sleep(0.5)
        finally:
            kill(process_tree(reading.process.pid))

    @property
    def _killed(self) -> int:
        return sum(count for what, count in self.done.items() if what.endswith(" killed"))

    def _start(self, reader: str) -> Background:
        self._runs += 1
        return Background("read", self._configs[reader], log=self._folder / f"read-{self._runs}.log")

    def _await_progress(self, reading: Background) -> None:
        """Waits until this run has sealed a window, or for a while, and then a little more."""
        before, deadline = self._epoch(), time.monotonic() + _LONGEST_WAIT
        while self._epoch() == before and reading.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(self._random.uniform(0, 4))

    def _epoch(self) -> int:
        return Spool.at(self._spool).latest() if (self._spool / "spool.json").exists() else 0

    def _kill(self, reading: Background) -> None:
        if reading.process.poll() is not None:
            return
        tree = process_tree(reading.process.pid)
        kinds = {
            "driver": tree[:1],
            "JVM": [one for one in tree if is_jvm(one)],
            "executor": [one for one in tree if "CoarseGrainedExecutorBackend" in command(one)],
            "worker": [one for one in tree if is_worker(one)],
        }
        what = self._random.choice([name for name, found in kinds.items() if found])
        kill([self._random.choice(kinds[what])])
        self.done[f"{what} killed"] += 1
        _say(f"kill {self._killed}: {what}, after epoch {self._epoch()}")
        if what == "driver":
            reading.process.wait()
            kill(tree[1:])  # Spark's own processes end later; a next driver must do with them or without


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    sys.exit(main())
