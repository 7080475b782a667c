"""Supervises the process of the Spark sink, and starts another one after a transient error.

``python -m spark_sink CONFIG`` is a process of its own, so that Spark's threads and the reader's do not share an
interpreter. Its standard input is its lifeline: when that ends, because it is closed or because this process was
killed, the sink delivers what is sealed and ends too. Its exit code classifies an error: after
:data:`connector.errors.TRANSIENT`, or a signal, another process is started after a pause; any other code is final.
After code 0 another one is started, too, if nothing had asked the process to end: SIGTERM lets it end so.
A process continues from Spark's checkpoint, so that nothing is delivered twice.
"""

import asyncio
import os
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from connector.core.health.retries import LASTING, SINK, Cause
from connector.core.timestamps import SECOND
from connector.errors import (
    FAILED_PERMANENTLY,
    REASON_TO,
    TRANSIENT,
    UNANSWERED,
    ConfigurationError,
    DataLostError,
    SpannerCdcError,
)
from connector.log import Log
from connector.reader.stopping import StopRequest
from connector.spool.reading import Spool
from connector.spool.sink_report import record_restart
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.retrying import RetryReporter
from connector.threads import first_of, in_background

_PROOF = 90 * SECOND
"""A restarted sink has made progress by then: it passes an epoch each minute, even if nothing is committed."""

_LOOK = 5.0
"""Seconds between two looks at its progress."""

_HINT = "The line or the log names the error. It continues by itself once the destination accepts rows again."

_UNASKED = "it was not asked to end: another program has sent SIGTERM to it"

_LONGEST_REASON = 4096
"""Bytes; a pipe accepts as many in one write."""

_log = Log(__name__)


class SinkProcessError(SpannerCdcError):
    """The Spark sink ended with an error, which it has printed on stderr."""


class SinkConfigurationError(SinkProcessError):
    """The Spark sink has refused the configuration."""

    exit_code = ConfigurationError.exit_code


class SinkFailedPermanentlyError(SinkProcessError):
    """The Spark sink has ended with an error that every restart meets again."""

    exit_code = FAILED_PERMANENTLY


class SinkDataLostError(SinkProcessError):
    """A Spark application that also reads has ended because Spanner no longer retains what it has to read next."""

    exit_code = DataLostError.exit_code


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of starts of a sink without progress, and the pauses between them, in seconds; each pause doubles."""

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
    is_unanswered: bool = False

    @property
    def is_transient(self) -> bool:
        return self.code in (TRANSIENT, 0) or self.code < 0


@dataclass(frozen=True, slots=True)
class ReportedAs:
    """The name of a process, and the place where its failures are reported.

    Attributes:
        name: of the process, for messages.
        what: names the alarm of a process that fails again and again.
        spool: the stream's, in which it is reported to others, such as a daemon elsewhere; None for no report.
        subject: the sink.
        part: distinguishes it from other processes of that kind, which may fail, or work, at the same time.
    """

    name: str = "the Spark sink"
    what: str = SINK
    spool: Spool | None = None
    subject: str = ""
    part: str = ""


@dataclass(slots=True)
class BothHalves:
    """The progress of a process that reads and delivers.

    What it has read counts only while there is nothing to deliver: it reads on after each start, also if its
    destination is down.
    """

    _read: int = 0

    def progress(self, *, delivered: int, read: int, is_idle: bool) -> int:
        """The progress as a number that grows.

        Args:
            delivered: the last epoch that is delivered.
            read: a number that grows with what is read.
            is_idle: whether there is nothing to deliver.
        """
        if is_idle:
            self._read = read
        return delivered + self._read


class SinkProcess:
    """Runs a sink's process, and restarts it after transient errors.

    Args:
        command: the program and its arguments.
        progress: the sink's progress, as a number that grows; called in a thread.
        stop: once it is requested nothing is restarted.
        drain: seconds that the sink has to end after a stop, once its lifeline is cut.
        metrics: counts restarts, and knows that the process fails until it makes progress again.
        patience: with a sink that makes no progress.
        is_done: whether a process that has ended with code 0 has done all that it was to do; called in a thread. If
            not, it is restarted, unless it was asked to end.
        reported_as: its name, and where its failures are reported.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        progress: Callable[[], int],
        stop: StopRequest,
        drain: float,
        metrics: ReaderMetrics,
        patience: Patience,
        is_done: Callable[[], bool] = lambda: False,
        reported_as: ReportedAs = ReportedAs(),
    ) -> None:
        self._command = command
        self._progress = progress
        self._stop = stop
        self._drain = drain
        self._metrics = metrics
        self._patience = patience
        self._is_done = is_done
        self._as = reported_as
        spool, what, log = reported_as.spool, reported_as.what, metrics.failing
        self._reporter = None if spool is None else RetryReporter(spool, what, reported_as.subject, log=log, only=what)
        self._is_last = asyncio.Event()
        self._given_up = asyncio.Event()
        self._is_limited = asyncio.Event()
        self._was_cut = False
        self._is_replaced = asyncio.Event()
        self._is_away = asyncio.Event()
        self._is_away.set()

    async def restart(self) -> None:
        """Has another process take over, which reads the configuration as it is now; returns once the first has ended.

        That one finishes its micro-batch, for as long as a drain may take; else the next one delivers it. One that is
        being started counts: it may have read the configuration by now.
        """
        if not self._is_away.is_set():
            self._is_replaced.set()
            await self._is_away.wait()

    def finish(self, *, again: bool, limited: bool = False) -> None:
        """Cuts the lifeline: the sink delivers what is left.

        Args:
            again: whether it is restarted if need be.
            limited: whether it has no longer for that than after a stop.
        """
        self._is_last.set()
        if not again:
            self._given_up.set()
        if limited:
            self._is_limited.set()

    async def run_until_stopped(self) -> None:
        """As :meth:`run`; after a stop is requested the sink delivers the sealed epochs and is not restarted."""
        self._stop.reading = True
        running = asyncio.create_task(self.run(), name=self._as.name)
        try:
            await first_of(self._stop.wait(), tasks={running})
            self.finish(again=False)
            await running
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def run(self) -> None:
        """Runs until the sink ends with code 0 and is done or was to end, or a stop is requested between two processes.

        One that drains too long is ended, with a warning: the next run delivers the rest.

        Raises:
            SinkProcessError: it ended with a final error, or too often without progress.
        """
        try:
            await self._run()
        finally:
            self._healed()
            if self._reporter is not None:
                await asyncio.to_thread(self._reporter.withdraw)

    async def _run(self) -> None:
        attempt = 0
        while True:
            before = await asyncio.to_thread(self._progress)
            healing = in_background(self._heal(before), name="progress of the sink") if attempt else nullcontext()
            async with healing:
                ended = await self._run_once()
            if self._was_cut:
                return
            if self._was_replaced() and ended.is_transient:
                if self._is_over():  # since: the next run delivers the rest
                    return
                continue
            if ended.code == 0:
                if self._is_over() or (not ended.reason and await self._is_whole()):
                    return
                ended = _Ended(0, _UNASKED)
            attempt = 1 if await asyncio.to_thread(self._progress) > before else attempt + 1
            if ended.code == 0 and self._is_over():  # since
                return
            if not ended.is_transient or self._is_over() or attempt >= self._patience.attempts:
                raise _error(self._as.name, ended, attempt)
            why = ended.reason or f"code {ended.code}, and no reason was given"
            self._metrics.sink_restarted(why)
            if self._as.spool is not None and self._as.what == SINK:  # no process of the sink writes its report now
                await asyncio.to_thread(record_restart, self._as.spool, self._as.subject, time.time_ns(), why)
            cause = Cause(
                f"{self._as.name} ends with errors and is restarted", f"code {ended.code}", ended.reason, _HINT
            )
            self._failed(cause, lasted=LASTING if ended.is_unanswered else 0)
            await asyncio.to_thread(self._report)
            pause = self._patience.pause(attempt)
            _log.warning(
                f"{self._as.name} has ended with a transient error, and is restarted",
                action="process_restarted",
                attempt=attempt,
                of=self._patience.attempts,
                code=ended.code,
                reason=ended.reason or "none given",
                pause_s=pause,
            )
            await first_of(self._stop.wait(), self._given_up.wait(), within=pause)
            if self._is_over():
                return

    def _failed(self, cause: Cause, *, lasted: int) -> None:
        """Notes that the process has failed, which is an alarm at once if it had not worked for long before."""
        now = time.time_ns()
        for at in (now - lasted, now) if lasted else (now,):
            self._metrics.failing.failed(
                self._as.what, cause, at, subject=self._as.subject, part=self._as.part, proof=_PROOF
            )

    async def _heal(self, before: int) -> None:
        """Ends the alarm of a process that fails, once the next one has made progress."""
        while await asyncio.to_thread(self._progress) <= before:
            await asyncio.to_thread(self._report)
            await asyncio.sleep(_LOOK)
        self._healed()
        await asyncio.to_thread(self._report)

    def _healed(self) -> None:
        self._metrics.failing.healed(self._as.what, subject=self._as.subject, part=self._as.part)

    def _report(self) -> None:
        if self._reporter is not None:
            self._reporter.look()

    async def _is_whole(self) -> bool:
        """True if a process that has ended without an error, and says of nothing that it is left, was to end."""
        return self._is_last.is_set() or await asyncio.to_thread(self._is_done)

    def _was_replaced(self) -> bool:
        """True if the process has ended because another one is to take over; once for each such end."""
        was_replaced = self._is_replaced.is_set()
        self._is_replaced.clear()
        return was_replaced

    def _is_over(self) -> bool:
        return self._stop.requested or self._given_up.is_set()

    async def _run_once(self) -> _Ended:
        reading, writing = os.pipe()
        self._is_away.clear()
        try:
            try:
                # Its own session: a Ctrl-C at the terminal must not reach it before the daemon has drained.
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    env={**os.environ, REASON_TO: str(writing)},
                    pass_fds=[writing],
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            code = await self._supervised(process)
            return _Ended(code, *_read(reading))
        finally:
            self._is_away.set()
            os.close(reading)

    async def _supervised(self, process: Process) -> int:
        """Cuts the lifeline once :meth:`finish` is called; returns the exit code. Kills the process if cancelled."""
        ended = asyncio.create_task(process.wait(), name="sink")
        try:
            await first_of(self._is_last.wait(), self._is_replaced.wait(), tasks={ended})
            if self._is_replaced.is_set() and not self._is_last.is_set():
                await self._batch_finished(process, ended)
            else:
                assert process.stdin is not None
                process.stdin.close()
                await self._drained(process, ended)
        finally:
            if not ended.done():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.wait({ended})
        return ended.result()

    async def _batch_finished(self, process: Process, ended: "asyncio.Task[int]") -> None:
        """Waits for the end of a process that another one replaces: SIGTERM lets its micro-batch finish."""
        _log.info(
            f"{self._as.name} is restarted with the configuration as it is now", action="restarted_for_a_configuration"
        )
        with suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait({ended}, timeout=self._drain)  # then it is killed: the next one starts the batch over

    async def _drained(self, process: Process, ended: "asyncio.Task[int]") -> None:
        """Waits for the sink, whose lifeline is cut; it is terminated if it drains too long and that is limited."""
        await first_of(self._stop.wait(), self._is_limited.wait(), tasks={ended})
        await asyncio.wait({ended}, timeout=self._drain)
        if not ended.done():
            _log.warning(
                f"draining {self._as.name} took too long; what is not delivered is delivered by the next run",
                action="drain_too_slow",
            )
            self._was_cut = True
            with suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait({ended}, timeout=self._drain)


def _read(reading: int) -> tuple[str, bool]:
    """The reason that the sink has written, and whether it got no answer for long.

    Does not block, because a child of the sink may still hold the other end.
    """
    os.set_blocking(reading, False)
    with suppress(BlockingIOError):
        before, _, reason = os.read(reading, _LONGEST_REASON).decode(errors="replace").strip().rpartition("\n")
        return reason, before.rpartition("\n")[2] == UNANSWERED
    return "", False


def _error(name: str, ended: _Ended, attempt: int) -> SinkProcessError:
    often = f" {attempt} times without progress, at last" if attempt > 1 else ""
    kinds = (SinkConfigurationError, SinkDataLostError, SinkFailedPermanentlyError)
    kind = next((kind for kind in kinds if kind.exit_code == ended.code), SinkProcessError)
    if ended.reason:
        return kind(f"{name} ended{often} with code {ended.code}: {ended.reason}")
    return kind(f"{name} ended{often} with code {ended.code}", hint="Its own lines above have the reason.")
