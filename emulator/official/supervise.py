"""Runs a program and ends its whole process group when its owner ends.

`gateway_main` starts `emulator_main` and leaves it behind when it is killed, and an owner that is killed by SIGKILL
cannot clean up. So this small program runs between them. It is started as a script (`python -I -S supervise.py
OWNER_PID PROGRAM ARGUMENT...`, standard library only, for a quick start), and its standard input is a pipe that only
the owner holds. It ends the group when that pipe is closed, on SIGTERM, or when the program ends by itself. It also
does when the owner is no longer its parent: a forked child of the owner may hold the pipe too. On Linux it adopts the
group's orphans, so that it knows when all of them have ended. The supervisor leads the group, and the owner ends the
group itself if the supervisor was killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TERM_SECONDS = 2.0


def _prctl(option: int, value: int) -> None:
    """Sets an attribute of this process; does nothing where the system is not Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_supervisor() -> None:
    """Makes the child end with the supervisor; runs in the child between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _all_ended(seconds: float) -> bool:
    """Reap children, adopted ones included, until none is left, for at most the given time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return True
    return False


def _end_group() -> None:
    """Ends every other process of the group by SIGTERM; if some do not end in time, the whole group by SIGKILL."""
    os.killpg(0, signal.SIGTERM)
    if not _all_ended(_TERM_SECONDS):
        os.killpg(0, signal.SIGKILL)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: list[str]) -> int:
    """Runs the program until it or its owner ends; returns the program's exit code, or 0 if the owner ended first.

    This process must lead its process group, because it ends the whole group.
    """
    assert os.getpgrp() == os.getpid(), "the supervisor ends its whole process group, so it must lead the group"
    owner, command = int(arguments[0]), arguments[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program = subprocess.Popen(  # noqa: S603 - the command comes from the launcher
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_supervisor,
    )
    try:
        while os.getppid() == owner and program.poll() is None:
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0.25)
            if readable and not os.read(sys.stdin.fileno(), 1):
                return 0
        return program.returncode or 0
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _end_group()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
