"""Sets the wall clock of a process while it runs; the monotonic clock is not changed.

`time.time` is not changed either: gRPC derives deadlines from it and compares them with the system's own clock.
"""

import time
from collections.abc import Callable, Sequence

_nanoseconds = time.time_ns
_began = time.monotonic()
_steps: list[tuple[float, int]] = []
_stepped: set[int] = set()
_reports: list[Callable[[int], object]] = []
_stops: list[tuple[float, float]] = []


def time_ns() -> int:
    """Replaces `time.time_ns`; it is a module's function, so that Spark can pickle it."""
    past = time.monotonic() - _began
    for number, (after, _) in enumerate(_steps):
        if past >= after and number not in _stepped:
            _stepped.add(number)
            for report in _reports:
                report(number)
    return _nanoseconds() - _behind(past) + sum(_steps[number][1] for number in _stepped)


def _behind(past: float) -> int:
    """Returns how far a stopped clock is behind, in nanoseconds; it is right again afterwards."""
    for after, seconds in _stops:
        if after <= past < after + seconds:
            for report in _reports:
                report(STOPPED)
            return int((past - after) * 1e9)
    return 0


STOPPED = -1
"""Reported while the clock is stopped, instead of a step's number."""


def set_by(
    steps: Sequence[tuple[float, int]], report: Callable[[int], object], stops: Sequence[tuple[float, float]] = ()
) -> None:
    """Sets this process's clock.

    Args:
        steps: seconds after the start, and nanoseconds by which the clock is set.
        report: called with the number of a step, or :data:`STOPPED`.
        stops: seconds after the start, and seconds for which the clock is stopped.
    """
    _steps[:] = steps
    _stops[:] = stops
    _reports[:] = [report]
    time.time_ns = time_ns
