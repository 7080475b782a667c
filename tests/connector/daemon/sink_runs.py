"""A stub of the sink's process, which ends as a test says, and coroutines as tests."""

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ParamSpec

from connector.core.timestamps import SECOND
from connector.daemon.sink_process import Patience, SinkProcess
from connector.errors import REASON_TO
from connector.reader.stopping import StopRequest
from connector.telemetry.metrics import ReaderMetrics

HASTE = Patience(attempts=4, first=0.01, most=0.02)
STUB = """
import os, signal, sys
from pathlib import Path

folder = Path(sys.argv[1])
runs = folder / "runs"
number = len(runs.read_text()) if runs.exists() else 0
runs.open("a").write("x")
codes = (folder / "codes").read_text().split()
code = codes[min(number, len(codes) - 1)]
if code.startswith("waits"):
    while os.read(0, 4096):
        pass
    code = code.removeprefix("waits")
if code.startswith("left"):
    code = code.removeprefix("left")
    os.write(int(os.environ["%s"]), b"something is left\\n")
if code.startswith("unanswered"):
    code = code.removeprefix("unanswered")
    os.write(int(os.environ["%s"]), b"unanswered\\n")
if code == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "deaf").write_text(str(os.getpid()))
    code = "hangs"
if code == "hangs":
    signal.pause()
if code == "killed":
    os.kill(os.getpid(), 9)
if code != "0":
    os.write(int(os.environ["%s"]), f"reason {number}".encode())
sys.exit(int(code))
"""
"""A sink that ends with the codes of a file in turn, the last of them for ever."""


class Runs:
    """A sink whose processes end with `codes`; `epochs` is how far it is before and after each.

    After code 0 it `is_done`.
    """

    def __init__(
        self, folder: Path, *codes: str | int, epochs: Callable[[], int] = lambda: 0, is_done: bool = True
    ) -> None:
        (folder / "codes").write_text(" ".join(map(str, codes)))
        (folder / "stub.py").write_text(STUB % (REASON_TO, REASON_TO, REASON_TO))
        self.folder = folder
        self.command = [sys.executable, str(folder / "stub.py"), str(folder)]
        self.stop = StopRequest(drain_timeout=60 * SECOND)
        self.metrics = ReaderMetrics()
        self.progress = epochs
        self.is_done = is_done

    def process(self, patience: Patience = HASTE, *, drain: float = 60.0) -> SinkProcess:
        return SinkProcess(
            self.command,
            progress=self.progress,
            stop=self.stop,
            drain=drain,
            metrics=self.metrics,
            patience=patience,
            is_done=lambda: self.is_done,
        )

    @property
    def number(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text()) if path.exists() else 0


Parameters = ParamSpec("Parameters")


def in_a_loop(test: Callable[Parameters, Coroutine[object, object, None]]) -> Callable[Parameters, None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Parameters.args, **fixtures: Parameters.kwargs) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return run


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - what another process does
        await asyncio.sleep(0.005)
