"""Runs a program and ends its whole process group once its owner is gone.

`gateway_main` starts `emulator_main` and leaves it behind when it is killed, and an owner that is killed by SIGKILL
can clean up nothing. So this small program stands between them: it is run as a file of its own
(`python -I -S supervise.py OWNER_PID PROGRAM ARGUMENT...`, standard library only, for a quick start), and its
standard input is a pipe that only the owner holds. It ends the group when that pipe reaches its end, when the owner is
no longer its parent (a forked child of the owner may hold the pipe too), on SIGTERM, or when the program ends by
itself. On Linux it adopts the group's orphans, so that "the group is empty" can be known.
"""

from __future__ import annotations

import contextlib
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
_KILL_SECONDS = 5.0


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process; does nothing where the system is not Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_supervisor() -> None:
    """Run in the child between fork and exec: no supervisor, no gateway."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _group_is_empty(group: int, seconds: float) -> bool:
    """Reap what ended until nothing of the group is left, for at most the given time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def end_group(group: int) -> None:
    """End every process of the group: SIGTERM first, SIGKILL for what is left after two seconds."""
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        if _group_is_empty(group, seconds):
            return


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: list[str]) -> int:
    """Run the program until it or its owner ends; returns the program's exit code, 0 when the owner went first."""
    owner, command = int(arguments[0]), arguments[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program = subprocess.Popen(  # noqa: S603 - the launcher's own command
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
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
        end_group(program.pid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
