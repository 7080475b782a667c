"""``spanner-cdc dead-letters``: runs the sinks' own command in a process, for the connector imports no sink."""

import signal
import subprocess
import sys
from pathlib import Path

from connector import log


def run(config: Path, *arguments: str, verbose: bool) -> int:
    """Runs the command with these arguments; returns its exit code, or 128 and the signal that killed it.

    SIGINT and SIGTERM are passed on to it.
    """
    as_json, _ = log.style()
    style = ["--log-format", "json" if as_json else "text", *(["--verbose"] if verbose else [])]
    command = [sys.executable, "-P", "-m", "spark_sink.dead_letters_command", *arguments, *style, "--", str(config)]
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
