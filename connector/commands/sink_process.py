"""The Spark sink's process, and its next one where an error may have been Spark's alone.

``python -m spark_sink CONFIG`` is a process of its own, so that Spark's threads and the reader's do not share an
interpreter. Its standard input is its lifeline: when it ends, whether by us or because we were killed, the sink
delivers what is sealed and ends too. Its exit code says what an error was: with
:data:`connector.errors.TRANSIENT`, or where a signal killed it, another process may get on, and is started after a
pause; any other code is final. A process goes on from its checkpoint, so that nothing is delivered twice.
"""

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from connector.errors import REASON_TO, TRANSIENT, SpannerCdcError
from connector.log import Log
from connector.reader.stopping import Stop
from connector.telemetry.metrics import ReaderMetrics

_LONGEST_REASON = 4096
"""Bytes; a pipe takes these at once."""

_log = Log(__name__)


class SinkError(SpannerCdcError):
    """The Spark sink ended with an error; it has said which on stderr."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a sink is started that makes no progress, and the pauses before, in seconds; each is twice the last."""

    attempts: int = 10
    first: float = 1.0
    most: float = 30.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after an attempt, which counts from 1."""
        return min(self.first * 2.0 ** (attempt - 1), self.most)


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    reason: str

    @property
    def is_transient(self) -> bool:
        return self.code == TRANSIENT or self.code < 0


class SinkProcess:
    """Runs a sink's process, again and again if need be.

    Args:
        command: the program and its arguments.
        environment: its environment.
        progress: how far the sink has come, as a number that grows; asked in a thread.
        stop: a wish to stop; from then on nothing is started again.
        drain: seconds that the sink has after a stop, once its lifeline is cut.
        metrics: what is counted.
        patience: for a sink that does not get on.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        progress: Callable[[], int],
        stop: Stop,
        drain: float,
        metrics: ReaderMetrics,
        patience: Patience,
    ) -> None:
        self._command = command
        self._environment = environment
        self._progress = progress
        self._stop = stop
        self._drain = drain
        self._metrics = metrics
        self._patience = patience
        self._is_last = asyncio.Event()
        self._given_up = asyncio.Event()

    def finish(self, *, again: bool) -> None:
        """Cuts the lifeline: the sink delivers what is left; with ``again``, in another process if need be."""
        self._is_last.set()
        if not again:
            self._given_up.set()

    async def run(self) -> None:
        """Runs until the sink ends with code 0, or a stop comes between two processes.

        Raises:
            SinkError: it ended with an error that is final, or too often without progress.
        """
        attempt = 0
        while True:
            before = await asyncio.to_thread(self._progress)
            ended = await self._run_once()
            if ended.code == 0:
                return
            attempt = 1 if await asyncio.to_thread(self._progress) > before else attempt + 1
            if not ended.is_transient or self._is_over() or attempt >= self._patience.attempts:
                raise _error(ended, attempt)
            self._metrics.sink_restarts += 1
            pause = self._patience.pause(attempt)
            _log.warning(
                "the Spark sink has ended with an error that may be over soon, and is started again",
                attempt=attempt,
                of=self._patience.attempts,
                code=ended.code,
                reason=ended.reason or "none given",
                pause_s=pause,
            )
            await self._wait(pause)
            if self._is_over():
                return

    def _is_over(self) -> bool:
        return self._stop.asked or self._given_up.is_set()

    async def _wait(self, seconds: float) -> None:
        """Waits, but not longer than until there is nothing to wait for any more."""
        waiting = [
            asyncio.create_task(event(), name="sink's pause") for event in (self._stop.wait, self._given_up.wait)
        ]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    async def _run_once(self) -> _Ended:
        reading, writing = os.pipe()
        try:
            try:
                # Its own session: a Ctrl-C at the terminal is ours to hand on, once the daemon has drained.
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    env={**self._environment, REASON_TO: str(writing)},
                    pass_fds=[writing],
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            code = await self._attended(process)
            return _Ended(code, _read(reading))
        finally:
            os.close(reading)

    async def _attended(self, process: Process) -> int:
        """Cuts the lifeline when it is time; returns the exit code. A process is killed if this is cancelled."""
        ended = asyncio.create_task(process.wait(), name="sink")
        last = asyncio.create_task(self._is_last.wait(), name="sink's last epochs")
        try:
            await asyncio.wait({ended, last}, return_when=asyncio.FIRST_COMPLETED)
            assert process.stdin is not None
            process.stdin.close()
            await self._drained(process, ended)
        finally:
            last.cancel()
            if not ended.done():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.wait({ended})
        return ended.result()

    async def _drained(self, process: Process, ended: "asyncio.Task[int]") -> None:
        """Waits for the sink, whose lifeline is cut; after a stop so many seconds only for the batch under way."""
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({ended}, timeout=self._drain)
            if not ended.done():
                _log.warning("the sink's drain took too long; what is not delivered is delivered next time")
                with suppress(ProcessLookupError):
                    process.terminate()
                await asyncio.wait({ended}, timeout=self._drain)
        finally:
            stopping.cancel()


def _read(reading: int) -> str:
    """What the sink has written; a process that it left behind may hold the other end."""
    os.set_blocking(reading, False)
    with suppress(BlockingIOError):
        return os.read(reading, _LONGEST_REASON).decode(errors="replace").strip()
    return ""


def _error(ended: _Ended, attempt: int) -> SinkError:
    often = f" {attempt} times without getting on, at last" if attempt > 1 else ""
    if ended.reason:
        return SinkError(f"the Spark sink ended{often} with code {ended.code}: {ended.reason}")
    return SinkError(f"the Spark sink ended{often} with code {ended.code}", hint="Its own lines above say why.")
