"""A clock on the wall that is set while a process runs; the clock that counts seconds goes on.

`time.time` stays as it is: gRPC makes deadlines of it and compares them with the system's own clock, which no step of
ours reaches.
"""

import time
from collections.abc import Callable, Sequence

_nanoseconds = time.time_ns
_began = time.monotonic()
_steps: list[tuple[float, int]] = []
_stepped: set[int] = set()
_tell: list[Callable[[int], object]] = []
_still: list[tuple[float, float]] = []


def time_ns() -> int:
    """Stands in for `time.time_ns`; a function of a module, so that Spark can hand it on."""
    past = time.monotonic() - _began
    for number, (after, _) in enumerate(_steps):
        if past >= after and number not in _stepped:
            _stepped.add(number)
            for tell in _tell:
                tell(number)
    return _nanoseconds() - _behind(past) + sum(_steps[number][1] for number in _stepped)


def _behind(past: float) -> int:
    """How far a clock that stands still is behind by now, in nanoseconds; afterwards it is right again."""
    for after, seconds in _still:
        if after <= past < after + seconds:
            for tell in _tell:
                tell(STILL)
            return int((past - after) * 1e9)
    return 0


STILL = -1
"""What is told where the clock stands still."""


def set_by(
    steps: Sequence[tuple[float, int]], tell: Callable[[int], object], still: Sequence[tuple[float, float]] = ()
) -> None:
    """Sets this process's clock: each step by so many nanoseconds, after so many seconds; `tell` gets its number.

    It stands `still` for so many seconds, after so many.
    """
    _steps[:] = steps
    _still[:] = still
    _tell[:] = [tell]
    time.time_ns = time_ns
