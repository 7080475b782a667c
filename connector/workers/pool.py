"""Reads partition queries in worker processes, as they would be read in this one.

A query goes to the worker with the fewest. The graph, the watermark and the seal stay with the coordinator, which is
this process: a worker holds nothing that could be lost. One that dies is replaced, and its queries end with an error
after which the scheduler asks again, from the partitions' progress.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from connector.decoding.decoder import Item
from connector.log import Log
from connector.spanner.partition_query import PartitionQuery
from connector.telemetry.metrics import ReaderMetrics
from connector.workers.failures import error_of, failure_of
from connector.workers.frames import Failure, Setup
from connector.workers.worker_process import WorkerProcess

COMMAND = (sys.executable, "-P", "-m", "connector.workers.worker")
"""Starts a worker; a folder of the same name where the user happens to be is not what is run."""

SHORT_LIFE = 60.0
"""Seconds. After lives as short as that, pauses before the next grow."""

MOST_IN_VAIN = 5
"""So many short lives in a row that have brought nothing, and there is no next one."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0

_LOOK_ABOVE = "Its own lines above say why; where there are none, memory may be short."

_log = Log(__name__)


@dataclass(slots=True)
class _Seat:
    """Where a worker is, one after the other."""

    worker: WorkerProcess
    queries: int = 0
    """How many there are, those that wait for its next worker among them."""
    resting: bool = False
    """Whether the next worker is not started yet."""


class Workers:
    """Reads queries in worker processes; used inside ``async with workers.running()``.

    Args:
        setup: what they read.
        number: how many there are.
        metrics: what is counted.
        command: starts one.
    """

    def __init__(self, setup: Setup, number: int, metrics: ReaderMetrics, *, command: Sequence[str] = COMMAND) -> None:
        self._setup = setup
        self._metrics = metrics
        self._command = command
        self._seats = [_Seat(self._next()) for _ in range(number)]
        self._failure: Failure | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Workers"]:
        """Starts the workers, and ends them.

        Raises:
            SpannerCdcError: one cannot begin.
        """
        keepers = {
            asyncio.create_task(self._keep(seat), name=f"worker {number}") for number, seat in enumerate(self._seats, 1)
        }
        try:
            for seat in self._seats:
                while not seat.worker.ready and self._failure is None:
                    await seat.worker.begun.wait()
            if self._failure is not None:
                raise error_of(self._failure)
            _log.info("workers have begun", pids=" ".join(str(seat.worker.pid) for seat in self._seats))
            yield self
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.wait(keepers)

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As :meth:`connector.spanner.partition_query.PartitionQueries.read`, in a worker.

        Raises:
            grpc.RpcError: as there; UNAVAILABLE where the worker has died.
            SilentStreamError: as there.
            UnknownRecordError: as there.
            SpannerCdcError: there are no workers any more.
        """
        if self._failure is not None:
            raise error_of(self._failure)
        seat = min(self._seats, key=lambda seat: (seat.resting, seat.queries))
        seat.queries += 1
        try:
            async with aclosing(seat.worker.read(query)) as brought:
                async for items in brought:
                    yield items
        finally:
            seat.queries -= 1

    def _next(self) -> WorkerProcess:
        return WorkerProcess(self._setup, self._report)

    def _report(self) -> None:
        self._metrics.workers = sum(seat.worker.ready for seat in self._seats)

    async def _keep(self, seat: _Seat) -> None:
        """Keeps a worker in the seat; where that cannot be, no query is read any more."""
        try:
            failure = await self._lives(seat)
        except Exception as error:  # noqa: BLE001 - whoever reads has to know it
            failure = failure_of(error)
        self._failure = failure
        for each in self._seats:
            each.worker.over(failure)

    async def _lives(self, seat: _Seat) -> Failure:
        """Workers, one after the other; returns why there is no next one."""
        loop = asyncio.get_running_loop()
        lives = short = in_vain = 0
        while True:
            worker, began = seat.worker, loop.time()
            how = await worker.live(self._command)
            lives += 1
            is_short = loop.time() - began < SHORT_LIFE
            short = short + 1 if is_short else 0
            in_vain = in_vain + 1 if is_short and not worker.has_brought else 0
            if lives == 1 and not worker.begun.is_set() and not worker.was_killed:
                return worker.refusal or Failure("ours", f"a worker {how}", hint=_LOOK_ABOVE)
            if in_vain == MOST_IN_VAIN:
                more = f", and {in_vain - 1} before it brought nothing either"
                return worker.refusal or Failure("ours", f"a worker {how}{more}", hint=_LOOK_ABOVE)
            pause = min(_FIRST_PAUSE * 2 ** (short - 2), _LONGEST_PAUSE) if short > 1 else 0.0
            _log.warning(
                "a worker has died and is replaced; its queries are sent again",
                pid=worker.pid,
                end=how,
                queries=worker.queries,
                pause_s=pause,
            )
            seat.worker, seat.resting = self._next(), pause > 0
            worker.over(Failure("call", f"the worker that read it {how}", code="UNAVAILABLE"))
            self._metrics.worker_restarts += 1
            self._report()
            await asyncio.sleep(pause)
            seat.resting = False
