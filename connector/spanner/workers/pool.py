"""Reads partition queries in worker processes, with the same results as in this process.

A query goes to the worker with the fewest queries. The graph, the watermark and the seal stay with the coordinator,
which is this process: a worker holds nothing that could be lost. A worker that dies is replaced. Its queries end with a
transient error, after which they are sent again from the partitions' progress.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from connector.log import Log
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQuery
from connector.spanner.workers.failures import error_of, failure_of
from connector.spanner.workers.frames import FailureFrame, WorkerSetup
from connector.spanner.workers.worker_process import WorkerProcess
from connector.telemetry.metrics import ReaderMetrics

COMMAND = (sys.executable, "-P", "-m", "connector.spanner.workers.worker")
"""Starts a worker; ``-P`` keeps a folder named ``connector`` in the working directory from being run."""

SHORT_RUN = 60.0
"""Seconds. After runs as short as that, the pauses before the next grow."""

MOST_FAILED_RUNS = 5
"""After so many short runs in a row that have returned nothing, no more workers are started."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0

_LOOK_ABOVE = "Its own log lines above say why. If there are none, the machine may be out of memory."

_log = Log(__name__)


@dataclass(slots=True)
class _Slot:
    """Holds one worker after another."""

    worker: WorkerProcess
    queries: int = 0
    """The number of its queries, including those that wait for its next worker."""
    pausing: bool = False
    """True if the next worker is not started yet."""


class Workers:
    """Reads queries in worker processes; used inside ``async with workers.running()``.

    Args:
        setup: what the workers read.
        number: how many workers there are.
        metrics: counts workers and restarts.
        command: starts a worker.
    """

    def __init__(
        self, setup: WorkerSetup, number: int, metrics: ReaderMetrics, *, command: Sequence[str] = COMMAND
    ) -> None:
        self._setup = setup
        self._metrics = metrics
        self._command = command
        self._slots = [_Slot(self._next()) for _ in range(number)]
        self._error: FailureFrame | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Workers"]:
        """Starts the workers, and ends them.

        Raises:
            SpannerCdcError: a worker cannot be started.
        """
        keepers = {
            asyncio.create_task(self._keep(slot), name=f"worker {number}") for number, slot in enumerate(self._slots, 1)
        }
        try:
            for slot in self._slots:
                while not slot.worker.ready and self._error is None:
                    await slot.worker.started.wait()
            if self._error is not None:
                raise error_of(self._error)
            _log.info("workers have started", pids=" ".join(str(slot.worker.pid) for slot in self._slots))
            yield self
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.wait(keepers)
            self._metrics.workers = 0  # the next reader may be one process

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As :meth:`connector.spanner.partition_query.PartitionQueries.read`, in a worker.

        Raises:
            grpc.RpcError: the call failed; UNAVAILABLE where the worker has died.
            SilentStreamError: no message came in time.
            UnknownRecordError: a row is not a change record of a known format.
            SpannerCdcError: there are no workers any more.
        """
        if self._error is not None:
            raise error_of(self._error)
        slot = min(self._slots, key=lambda slot: (slot.pausing, slot.queries))
        slot.queries += 1
        try:
            async with aclosing(slot.worker.read(query)) as received:
                async for items in received:
                    yield items
        finally:
            slot.queries -= 1

    def _next(self) -> WorkerProcess:
        return WorkerProcess(self._setup, self._report)

    def _report(self) -> None:
        self._metrics.workers = sum(slot.worker.ready for slot in self._slots)

    async def _keep(self, slot: _Slot) -> None:
        """Supervises a slot; when it ends, no query is read any more."""
        try:
            failure = await self._supervise(slot)
        except Exception as error:  # noqa: BLE001 - the readers of its queries have to get it
            failure = failure_of(error)
        self._error = failure
        for each in self._slots:
            each.worker.end_queries(failure)

    async def _supervise(self, slot: _Slot) -> FailureFrame:
        """Runs workers in a slot, one after another; returns why there is no next one."""
        loop = asyncio.get_running_loop()
        runs = short = failed = 0
        while True:
            worker, started = slot.worker, loop.time()
            end = await worker.run(self._command)
            runs += 1
            is_short = loop.time() - started < SHORT_RUN
            short = short + 1 if is_short else 0
            failed = failed + 1 if is_short and not worker.has_returned else 0
            if runs == 1 and not worker.started.is_set() and not worker.was_killed:
                return worker.refusal or FailureFrame("known", f"a worker {end}", hint=_LOOK_ABOVE)
            if failed == MOST_FAILED_RUNS:
                more = f", and {failed - 1} before it returned nothing either"
                return worker.refusal or FailureFrame("known", f"a worker {end}{more}", hint=_LOOK_ABOVE)
            pause = min(_FIRST_PAUSE * 2 ** (short - 2), _LONGEST_PAUSE) if short > 1 else 0.0
            _log.warning(
                "a worker has died and is replaced; its queries are sent again",
                pid=worker.pid,
                end=end,
                queries=worker.queries,
                pause_s=pause,
            )
            slot.worker, slot.pausing = self._next(), pause > 0
            worker.end_queries(FailureFrame("worker", f"the worker that read it {end}"))
            self._metrics.worker_restarts += 1
            self._report()
            await asyncio.sleep(pause)
            slot.pausing = False
