"""Runs the sinks' own commands, ``dead-letters`` among them, in a process: the connector imports no sink."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from connector.log import style_arguments


def run(config: Path, *arguments: str) -> int:
    """Runs the command with these arguments; returns its exit code, as :func:`run_module` does."""
    return run_module("spark_sink.dead_letters_command", arguments, "--", str(config))


def run_module(module: str, arguments: Sequence[str], *operands: str) -> int:
    """Runs a module of the sinks in a process; returns its exit code, or 128 and the signal that killed it.

    The style of the logs is added after ``arguments``. SIGINT and SIGTERM are passed on to it.
    """
    command = [sys.executable, "-P", "-m", module, *arguments, *style_arguments(), *operands]
    # Its own session: a Ctrl-C at the terminal would reach it twice.
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - no shell, and the program is Python
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
