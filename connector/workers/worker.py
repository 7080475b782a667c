"""A worker: a process that reads partitions for its coordinator, ``python -m connector.workers.worker``.

Its standard input is one end of a socket pair, whose other end only the coordinator holds: what it is to do comes from
there, and when that ends, be the coordinator done or dead, it ends too. It knows nothing of the partition graph: it
is asked for a query, and sends what the query brings. What has come together goes in one frame. A query that has
brought a certain number of bytes which nobody has taken is not pulled from until some are, so that the coordinator's
flow control reaches Spanner; meanwhile the watchdog sleeps.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from connector import log
from connector.core.dialects import GOOGLESQL, POSTGRESQL
from connector.decoding.decoder import Item, decoder
from connector.errors import SpannerCdcError
from connector.process import collect_rarely
from connector.spanner.client import SpannerClient
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.workers.failures import failure_of
from connector.workers.framed_socket import FramedSocket
from connector.workers.frames import (
    Alive,
    Ask,
    Buffer,
    Ended,
    Failed,
    Failure,
    Leave,
    Packer,
    Ready,
    Setup,
    Taken,
    framed,
    size_of,
)

ALIVE_INTERVAL = 5.0
"""Seconds between two signs of life."""

_GATHERING = 0.005
"""Seconds after a frame in which what comes goes into the next one."""

_MUCH = 256 * 1024
"""Bytes that are sent without gathering more."""

_MOST_UNTAKEN = 4 * 1024 * 1024
_LEAST_UNTAKEN = 64 * 1024
_UNTAKEN_IN_ALL = 16 * 1024 * 1024
"""Bytes that a query may have brought and nobody has taken: a share of what all may have, within bounds.

So much that workers read on while the coordinator makes an epoch of 32 MB: with a quarter of it two workers had two
thirds of the processor time that there was.
"""

_PATIENCE = 10
"""Seconds that closing may take."""


_log = log.Log("connector.workers.worker")  # the module runs as __main__


@dataclass(slots=True)
class _Running:
    """A query that is being read."""

    number: int
    task: asyncio.Task[None] | None = None
    unsent: list[Item] = field(default_factory=list)
    unsent_size: int = 0
    untaken: int = 0
    """Bytes that were brought, sent or not, and not taken."""
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    failure: Failure | None = None

    def end(self) -> None:
        """Ends the query."""
        if self.task is not None:
            self.task.cancel()


class Worker:
    """Reads what it is asked for.

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
        """Until the coordinator is gone."""
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(self._send_on(), name="sender")
            await self._heed(tasks)
            sender.cancel()
            for running in self._running.values():
                running.end()

    async def _heed(self, tasks: asyncio.TaskGroup) -> None:
        while (frame := await self._connection.receive()) is not None:
            match frame.message:
                case Ask() as asked:
                    running = self._running[asked.query] = _Running(asked.query)
                    running.task = tasks.create_task(self._read(running, asked), name=f"query {asked.query}")
                case Taken(query, size):
                    if query in self._running:
                        self._running[query].untaken -= size
                        self._running[query].taken.set()
                case Leave(query):
                    left = self._running.pop(query, None)
                    self._due.pop(query, None)
                    if left is not None:
                        left.end()

    async def _read(self, running: _Running, asked: Ask) -> None:
        end = None if asked.end is None else int(asked.end)
        query = PartitionQuery(asked.token, int(asked.start), end, asked.timeouts)
        try:
            async with aclosing(self._queries.read(query)) as brought:
                async for items in brought:
                    size = sum(map(size_of, items))
                    running.unsent += items
                    running.unsent_size += size
                    running.untaken += size
                    self._is_due(running)
                    while running.untaken >= self._most_untaken:
                        running.taken.clear()
                        await running.taken.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, the coordinator is to know
            running.failure = failure_of(error)
        running.ended = True
        self._is_due(running)

    @property
    def _most_untaken(self) -> int:
        return max(_LEAST_UNTAKEN, min(_MOST_UNTAKEN, _UNTAKEN_IN_ALL // max(len(self._running), 1)))

    def _is_due(self, running: _Running) -> None:
        if self._running.get(running.number) is running:
            self._due[running.number] = running
            self._something.set()

    async def _send_on(self) -> None:
        """Sends what is due, or now and then a sign of life."""
        with suppress(ConnectionError):  # the receiver meets the end, too
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
        """Sends what queries have brought; returns how many bytes it was."""
        sent = size = 0
        buffers: list[Buffer] = []
        while self._due:
            running = self._due.pop(next(iter(self._due)))
            size += running.unsent_size
            buffers += self._frames(running)
            if size >= _MUCH:
                await self._connection.send(buffers)
                sent, size, buffers = sent + size, 0, []
        await self._connection.send(buffers)
        return sent + size

    def _frames(self, running: _Running) -> list[Buffer]:
        """What is unsent of a query, as frames."""
        items, size = running.unsent, running.unsent_size
        running.unsent, running.unsent_size = [], 0
        frames: list[Buffer] = []
        try:
            frames += self._packer.brought(running.number, items, size) if items else []
        except Exception as error:  # noqa: BLE001 - as of one that is met while it is read
            running.end()
            running.ended, running.failure = True, failure_of(error)
        if running.ended:
            frames += framed(Ended(running.number, running.failure))
            self._running.pop(running.number, None)
        return frames


async def serve(connected: socket.socket) -> None:
    """Works for the coordinator at the other end, until it is gone."""
    connection = FramedSocket(connected)
    first = await connection.receive()
    if first is None:
        return
    assert isinstance(first.message, Setup)
    setup = first.message
    log.configure(json=setup.json_logs, verbose=setup.verbose)
    _log.debug("a worker reads", change_stream=setup.change_stream, pid=os.getpid())
    client = SpannerClient(
        setup.database,
        emulator_host=setup.emulator_host,
        endpoint=setup.endpoint,
        database_role=setup.database_role,
        rpc_priority=setup.rpc_priority,
    )
    try:
        async with client.connected():
            await connection.send(framed(Ready()))
            await Worker(connection, _queries(setup, client)).run()
            signal.alarm(_PATIENCE)  # whatever closing meets
    except SpannerCdcError as error:
        await connection.send(framed(Failed(failure_of(error))))


def _queries(setup: Setup, client: SpannerClient) -> PartitionQueries:
    dialect = {dialect.name: dialect for dialect in (GOOGLESQL, POSTGRESQL)}[setup.dialect]
    return PartitionQueries(
        client,
        dialect,
        setup.change_stream,
        setup.partition_mode,
        heartbeat=setup.heartbeat,
        decoder=decoder(dialect, setup.partition_mode),
        clock=time.time_ns,
    )


def main() -> None:
    """The process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the coordinator drains, and ends us afterwards
    collect_rarely()
    try:
        asyncio.run(serve(socket.socket(fileno=sys.stdin.fileno())))
    except ConnectionError:
        pass  # the coordinator is gone, and with it whoever would be told
    except Exception as error:  # noqa: BLE001 - its text might hold a row's values
        _log.error("a fault of this program, in a worker", where=log.whereabouts(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
