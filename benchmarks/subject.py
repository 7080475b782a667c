"""A process of its own for what is measured, so that one's memory, caches and threads are not another's.

It lives through the rounds of a benchmark: what it imports and builds once is not measured, what each round does is.
Processor time is that of the process and of every process it has waited for.
"""

import multiprocessing
import re
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from os import sysconf
from pathlib import Path

Work = Callable[..., int]
"""Returns how many events it has dealt with."""


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
        self._pipe.send((work, arguments))
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


def _measured(work: Work, arguments: tuple[object, ...]) -> Measure:
    cpu, wall = _cpu(), time.perf_counter()
    events = work(*arguments)
    wall = time.perf_counter() - wall
    return Measure(events, wall, _cpu() - cpu, peak_of("self"))


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_of(pid: int | str) -> int:
    """The most memory that a living process has used, in bytes; that of its parent before it began does not count."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def cpu_of(pid: int) -> float:
    """The processor time that a living process has used, in seconds."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / sysconf("SC_CLK_TCK")
