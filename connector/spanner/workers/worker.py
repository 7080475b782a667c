"""A worker: a process that reads partitions for its coordinator, ``python -m connector.spanner.workers.worker``.

Its standard input is one end of a socket pair, whose other end only the coordinator holds. Requests arrive there, and
when the coordinator closes it or dies, the worker ends too. A worker knows nothing of the partition graph: it is
requested to read a query, and sends the rows that the query returns. Rows that arrive together are sent in one frame. A
query whose unacknowledged rows have reached a number of bytes is not pulled from until some are acknowledged. So the
coordinator's backpressure reaches Spanner; meanwhile the query's timeout does not run.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from connector import log
from connector.errors import SpannerCdcError
from connector.process import collect_rarely
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.spanner.workers.failures import failure_of
from connector.spanner.workers.framed_socket import FramedSocket
from connector.spanner.workers.frames import (
    Ack,
    Alive,
    BytesLike,
    Cancel,
    Ended,
    Failed,
    FailureFrame,
    Packer,
    Ready,
    StartFrame,
    WorkerSetup,
    framed,
    size_of,
)

ALIVE_INTERVAL = 5.0
"""Seconds between two heartbeats to the coordinator."""

_GATHERING = 0.005
"""Seconds after a frame in which rows are gathered for the next one."""

_MUCH = 256 * 1024
"""Bytes that are sent without gathering more."""

_MOST_UNACKNOWLEDGED = 4 * 1024 * 1024
_LEAST_UNACKNOWLEDGED = 64 * 1024
_UNACKNOWLEDGED_IN_ALL = 16 * 1024 * 1024
"""Bytes that a query may have returned without an acknowledgement: a share of what all may have, within bounds.

Enough for workers to read on while the coordinator makes an epoch of 32 MB.
"""

_PATIENCE = 10
"""Seconds that closing may take."""


_log = log.Log("connector.spanner.workers.worker")  # the module runs as __main__


@dataclass(slots=True)
class _Running:
    """A query that is being read."""

    number: int
    task: asyncio.Task[None] | None = None
    unsent: list[Item] = field(default_factory=list)
    unsent_size: int = 0
    unacknowledged: int = 0
    """Bytes that were received from Spanner, sent or not, and not acknowledged."""
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    failure: FailureFrame | None = None

    def end(self) -> None:
        """Cancels the query."""
        if self.task is not None:
            self.task.cancel()


class Worker:
    """Reads the queries that the coordinator requests.

    Args:
        connection: to the coordinator.
        queries: sends the queries.
    """

    def __init__(self, connection: FramedSocket, queries: PartitionQueries) -> None:
        self._connection = connection
        self._queries = queries
        self._packer = Packer()
        self._running: dict[int, _Running] = {}
        self._due: dict[int, _Running] = {}
        self._something = asyncio.Event()

    async def run(self) -> None:
        """Serves the coordinator until it closes the connection."""
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(self._send_on(), name="sender")
            await self._serve(tasks)
            sender.cancel()
            for running in self._running.values():
                running.end()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        while (frame := await self._connection.receive()) is not None:
            match frame.message:
                case StartFrame() as start:
                    running = self._running[start.query] = _Running(start.query)
                    running.task = tasks.create_task(self._read(running, start), name=f"query {start.query}")
                case Ack(query, size):
                    if query in self._running:
                        self._running[query].unacknowledged -= size
                        self._running[query].acknowledged.set()
                case Cancel(query):
                    cancelled = self._running.pop(query, None)
                    self._due.pop(query, None)
                    if cancelled is not None:
                        cancelled.end()

    async def _read(self, running: _Running, start: StartFrame) -> None:
        end = None if start.end is None else int(start.end)
        query = PartitionQuery(start.token, int(start.start), end, start.timeouts)
        try:
            async with aclosing(self._queries.read(query)) as received:
                async for items in received:
                    size = sum(map(size_of, items))
                    running.unsent += items
                    running.unsent_size += size
                    running.unacknowledged += size
                    self._is_due(running)
                    while running.unacknowledged >= self._most_unacknowledged:
                        running.acknowledged.clear()
                        await running.acknowledged.wait()
        except Exception as error:  # noqa: BLE001 - the coordinator decides about every error
            running.failure = failure_of(error)
        running.ended = True
        self._is_due(running)

    @property
    def _most_unacknowledged(self) -> int:
        return max(
            _LEAST_UNACKNOWLEDGED, min(_MOST_UNACKNOWLEDGED, _UNACKNOWLEDGED_IN_ALL // max(len(self._running), 1))
        )

    def _is_due(self, running: _Running) -> None:
        if self._running.get(running.number) is running:
            self._due[running.number] = running
            self._something.set()

    async def _send_on(self) -> None:
        """Sends what is due, and heartbeats while nothing is."""
        with suppress(ConnectionError):  # the receiver notices the end too
            while True:
                try:
                    async with asyncio.timeout(ALIVE_INTERVAL):
                        await self._something.wait()
                except TimeoutError:
                    await self._connection.send(framed(Alive()))
                self._something.clear()
                if await self._send_due() < _MUCH:
                    await asyncio.sleep(_GATHERING)

    async def _send_due(self) -> int:
        """Sends what queries have returned; returns the number of bytes."""
        sent = size = 0
        buffers: list[BytesLike] = []
        while self._due:
            running = self._due.pop(next(iter(self._due)))
            size += running.unsent_size
            buffers += self._frames(running)
            if size >= _MUCH:
                await self._connection.send(buffers)
                sent, size, buffers = sent + size, 0, []
        await self._connection.send(buffers)
        return sent + size

    def _frames(self, running: _Running) -> list[BytesLike]:
        """The unsent items of a query, as frames."""
        items, size = running.unsent, running.unsent_size
        running.unsent, running.unsent_size = [], 0
        frames: list[BytesLike] = []
        try:
            frames += self._packer.rows(running.number, items, size) if items else []
        except Exception as error:  # noqa: BLE001 - handled like an error of reading
            running.end()
            running.ended, running.failure = True, failure_of(error)
        if running.ended:
            frames += framed(Ended(running.number, running.failure))
            self._running.pop(running.number, None)
        return frames


async def serve(connected: socket.socket) -> None:
    """Serves the coordinator at the other end, until that closes the connection."""
    connection = FramedSocket(connected)
    first = await connection.receive()
    if first is None:
        return
    assert isinstance(first.message, WorkerSetup)
    setup = first.message
    log.configure(json=setup.json_logs, verbose=setup.verbose)
    _log.debug("a worker reads", change_stream=setup.stream.change_stream, pid=os.getpid())
    client = setup.stream.client()
    try:
        async with client.connected():
            await connection.send(framed(Ready()))
            await Worker(connection, setup.stream.queries(client)).run()
            signal.alarm(_PATIENCE)  # ends the process if closing hangs
    except SpannerCdcError as error:
        await connection.send(framed(Failed(failure_of(error))))


def main() -> None:
    """The process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the coordinator drains, and ends the worker afterwards
    collect_rarely()
    try:
        asyncio.run(serve(socket.socket(fileno=sys.stdin.fileno())))
    except ConnectionError:
        pass  # the coordinator is gone, so that there is no one to report to
    except Exception as error:  # noqa: BLE001 - its text might hold a row's values
        _log.error("internal error in a worker", where=log.whereabouts(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
