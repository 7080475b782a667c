"""A process of its own for what is measured, so that one's memory, caches and threads are not another's.

It lives through the rounds of a benchmark: what it imports and builds once is not measured, what each round does is.
Processor time is that of the process and of all it has started, whether they live or not.
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

from benchmarks.measure.process import cpu_below, peak_of

Work = Callable[..., int]
"""Returns how many events it has dealt with."""

_POLL = 0.02


class FailedError(Exception):
    """What was measured did not do its work."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a round took: seconds of wall clock and of processor time; ``peak_bytes`` is the process's so far."""

    events: int
    wall: float
    cpu: float
    peak_bytes: int


class Subject:
    """A process that does work; see :func:`subject`."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self.pid = pid

    def run(self, work: Work, *arguments: object) -> Measure:
        """Measures ``work``, a function of a module.

        Raises:
            FailedError: with its traceback.
        """
        self.begin(work, *arguments)
        return self.finish()

    def begin(self, work: Work, *arguments: object) -> None:
        """Begins it; :meth:`finish` waits for it."""
        self._pipe.send((work, arguments))

    def until(self, reached: Callable[[], bool]) -> None:
        """Waits for something that what was begun brings about.

        Raises:
            FailedError: it has failed meanwhile, or ended without.
        """
        while not reached():
            if self._pipe.poll(_POLL):
                raise FailedError(str(self._pipe.recv()))

    def finish(self) -> Measure:
        """The measure of what was begun.

        Raises:
            FailedError: with its traceback.
        """
        found = self._pipe.recv()
        if isinstance(found, Measure):
            return found
        raise FailedError(found)


@contextmanager
def subject() -> Iterator[Subject]:
    """A process for as long as the context is open."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_serve, args=(far,))  # no daemon: it may have children
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
        except Exception:  # noqa: BLE001 - whatever it is, whoever asked is told
            pipe.send(traceback.format_exc())


def prepared() -> None:
    """What the process has done of its work up to now is not measured."""
    _MARKS[:] = [_mark()]


def done() -> None:
    """What the process does of its work from now on is not measured."""
    _MARKS.append(_mark())


_MARKS: list[tuple[float, float]] = []
"""Wall clock and processor time: of the begin of what is measured, and of its end."""


def _measured(work: Work, arguments: tuple[object, ...]) -> Measure:
    prepared()
    events = work(*arguments)
    done()
    (begun, used_before), (ended, used), *_ = _MARKS
    return Measure(events, ended - begun, used - used_before, peak_of("self"))


def _mark() -> tuple[float, float]:
    return time.perf_counter(), _cpu()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + cpu_below(os.getpid())
