"""The commands of a self-test as processes that are forked with their imports done, which take most of their time."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from spark_sink.self_test import commands
from tests.forked import Forked


class ForkedCommand(Forked):
    """A command; it ends with the process of the tests, and so needs no lifeline."""

    stdin = None

    def __init__(self, command: Sequence[str], *, stdout: IO[bytes] | int, stderr: IO[bytes], **_: object) -> None:
        arguments = [one for one in command[len(commands.PROGRAM) :] if one != "--stdin-lifeline"]
        with Path(os.devnull).open("wb") as nowhere:
            out = nowhere if isinstance(stdout, int) else stdout
            super().__init__(arguments, os.environ, out.fileno(), stderr.fileno())


def fork_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the commands of self-tests from now on."""
    monkeypatch.setattr(commands, "subprocess", _Subprocess)


class _Subprocess:
    """The part of the module that starts commands."""

    Popen = ForkedCommand
    PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired
