"""A campaign: gives seeds to worker processes, supervises them, and collects the outcomes.

A worker that does not answer in time is killed with all its descendants, its seed fails, and another worker replaces
it. So the campaign ends whatever hangs.
"""

import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from tests.soak.process_tree import kill, process_tree, session
from tests.soak.seed import SPARK_SECONDS, Kind, Outcome
from tests.soak.worker import Job, work

IN_ONE_PROCESS = 10
"""Seeds in one process for each seed in real processes: they take about a tenth of the time."""

_PATIENCE = SPARK_SECONDS + 120.0
_SPAWN = multiprocessing.get_context("spawn")


class Enough(Protocol):
    """Returns, before each seed with real processes, whether the started ones are enough."""

    def __call__(self, started: int) -> bool: ...


class Campaign:
    """Runs seeds from `first` on, some with real processes, some in one process.

    Args:
        first: the first seed.
        enough: whether no more seeds are started.
        workers: how many seeds run at a time.
        folder: for files; those of seeds that passed are deleted.
        report: called with each outcome, from any thread.
        kills: the most runs of a seed that are killed; None for all that are planned.
    """

    def __init__(
        self,
        first: int,
        enough: Enough,
        *,
        workers: int,
        folder: Path,
        report: Callable[[Job, Outcome], None],
        kills: int | None = None,
    ) -> None:
        self._enough = enough
        self._workers = workers
        self._folder = folder
        self._report = report
        self._kills = kills
        self._jobs = self._drawn(first)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._running: list[_Worker] = []
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """Runs until enough seeds were started and all of them have ended; no worker is left in any case."""
        with ThreadPoolExecutor(self._workers, thread_name_prefix="worker") as threads:
            serving = [threads.submit(self._serve, number) for number in range(self._workers)]
            try:
                for served in serving:
                    served.result()
            except BaseException:
                self._over.set()
                for worker in self._running:
                    worker.kill()
                raise

    def _drawn(self, first: int) -> Iterator[Job]:
        for number in count():
            if self._enough(number):
                return
            seed = first + number
            yield Job(seed, self._folder / f"seed-{seed}", self._kills)
            for small in range(IN_ONE_PROCESS):
                yield Job(seed * IN_ONE_PROCESS + small, None)

    def _serve(self, number: int) -> None:
        worker = _Worker(self._folder / f"worker-{number}.log")
        self._running.append(worker)
        try:
            while True:
                with self._lock:
                    job = next(self._jobs, None)
                if job is None:
                    return
                outcome = worker.run(job)
                if self._over.is_set():
                    return
                worker.restart_if_dead()
                if not outcome.failure and job.folder is not None:
                    shutil.rmtree(job.folder, ignore_errors=True)
                with self._lock:
                    self.outcomes.append(outcome)
                    self._report(job, outcome)
        finally:
            worker.end()


class _Worker:
    def __init__(self, log: Path) -> None:
        self._log = log
        self._start()

    def _start(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        self._pipe: Connection = ours
        self._process = _SPAWN.Process(target=work, args=(theirs, self._log))
        self._process.start()
        theirs.close()

    def run(self, job: Job) -> Outcome:
        """Runs a job; one without an answer in time has failed."""
        began = time.monotonic()
        try:
            self._pipe.send(job)
            if self._pipe.poll(_PATIENCE):
                outcome = self._pipe.recv()
                assert isinstance(outcome, Outcome)
                return outcome
            failure = f"no answer within {_PATIENCE:.0f} s"
        except (EOFError, OSError):
            failure = "the worker died"
        lines = self._log.read_text(errors="replace").splitlines()[-20:]
        self.kill()
        kind: Kind = "one process" if job.folder is None else "real processes"
        return Outcome(kind, job.seed, time.monotonic() - began, "\n".join([failure, *lines]))

    def restart_if_dead(self) -> None:
        """Starts another process if this one is dead."""
        if not self._process.is_alive():
            self._pipe.close()
            self._start()

    def end(self) -> None:
        """Lets the worker end by itself, and kills it if it does not."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(30.0)
        self.kill()

    def kill(self) -> None:
        """Sends SIGKILL to the worker and its descendants."""
        assert self._process.pid is not None
        leader = self._process.pid
        kill([*process_tree(leader), *session(leader)] if self._process.is_alive() else session(leader))
        self._process.join()
