"""Runs measured work in a separate process, so that memory, caches and threads of others do not affect it.

The process lasts for all rounds of a benchmark: what it imports and builds once is not measured, only the work of each
round. Processor time includes all processes that it has started, whether they still run or not.
"""

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from benchmarks.measure.process import cpu_below, peak_of

Work = Callable[..., int]
"""A function that returns how many events it processed."""

_POLL = 0.02


class FailedError(Exception):
    """The measured work failed."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The cost of a round: seconds of wall clock and of processor time, and the process's peak of memory so far."""

    events: int
    wall: float
    cpu: float
    peak_bytes: int


class Measuring(Protocol):
    """Does work, and measures it."""

    def run(self, work: Work, *arguments: object) -> Measure:
        """Measures ``work``."""
        ...


class Here:
    """Does work in this process, for tests."""

    def run(self, work: Work, *arguments: object) -> Measure:
        """Measures ``work``."""
        return _measured(work, arguments)


class Subject:
    """A process that does work; see `subject`."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self.pid = pid

    def run(self, work: Work, *arguments: object) -> Measure:
        """Measures ``work``, a function of a module.

        Raises:
            FailedError: with its traceback.
        """
        self.start(work, *arguments)
        return self.finish()

    def start(self, work: Work, *arguments: object) -> None:
        """Starts ``work``; `finish` waits for it."""
        self._pipe.send((work, arguments))

    def until(self, reached: Callable[[], bool]) -> None:
        """Waits until ``reached`` returns true, as an effect of the started work.

        Raises:
            FailedError: the work failed or ended before that.
        """
        while not reached():
            if self._pipe.poll(_POLL):
                raise FailedError(str(self._pipe.recv()))

    def finish(self) -> Measure:
        """Waits for the started work and returns its measure.

        Raises:
            FailedError: with its traceback.
        """
        found = self._pipe.recv()
        if isinstance(found, Measure):
            return found
        raise FailedError(found)


@contextmanager
def subject() -> Iterator[Subject]:
    """A process that runs while the context is open."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_serve, args=(far,))  # not a daemon process: it may have children
    process.start()
    far.close()
    try:
        assert process.pid is not None
        yield Subject(near, process.pid)
    finally:
        near.close()  # which ends it
        process.join(10)
        process.kill()


def _serve(pipe: Connection) -> None:
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_measured(work, arguments))
        except Exception:  # noqa: BLE001 - every error is reported to the caller
            pipe.send(traceback.format_exc())


def prepared() -> None:
    """Starts the measurement: the work so far does not count."""
    _MARKS[:] = [_mark()]


def done() -> None:
    """Ends the measurement: the work from now on does not count."""
    _MARKS.append(_mark())


_MARKS: list[tuple[float, float]] = []
"""Wall clock and processor time at the start of the measurement and at its end."""


def _measured(work: Work, arguments: tuple[object, ...]) -> Measure:
    prepared()
    events = work(*arguments)
    done()
    (started, used_before), (ended, used), *_ = _MARKS
    return Measure(events, ended - started, used - used_before, peak_of("self"))


def _mark() -> tuple[float, float]:
    return time.perf_counter(), _cpu()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + cpu_below(os.getpid())
