"""A worker as its coordinator sees it: a process, its running queries, and rows received that are not read yet."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from connector.log import Log
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQuery
from connector.spanner.workers.failures import error_of
from connector.spanner.workers.framed_socket import FramedSocket
from connector.spanner.workers.frames import (
    Ack,
    BytesLike,
    Cancel,
    Ended,
    Failed,
    FailureFrame,
    Frame,
    Message,
    Ready,
    RowsFrame,
    StartFrame,
    Unpacker,
    WorkerSetup,
    framed,
)

SILENCE = 60.0
"""Seconds without a frame after which a worker is killed."""

_CHECKS = 12
"""The number of checks in that time."""

_PATIENCE = 5.0
"""Seconds that a worker may take to end."""

_ACK_BYTES = 32 * 1024
"""Bytes that are read before they are acknowledged to the worker."""

_log = Log(__name__)


class WorkerProcess:
    """One worker process, from its start to its end.

    Args:
        setup: what the worker reads.
        changed: called when the worker is ready.
    """

    def __init__(self, setup: WorkerSetup, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._outbox: list[BytesLike] = framed(setup)
        self._posted = asyncio.Event()
        self._posted.set()
        self._numbers = count(1)
        self._inboxes: dict[int, asyncio.Queue[Frame]] = {}
        self._unpacker = Unpacker()
        self._heard = 0
        self.started = asyncio.Event()
        """It is ready, or has died before that."""
        self.ready = False
        self.has_returned = False
        """True if a query has returned anything, be it an error."""
        self.refusal: FailureFrame | None = None
        """The reason why it cannot start, if it has reported one."""
        self.pid = 0
        self.was_killed = False
        """True if a signal has ended it."""
        self._error: FailureFrame | None = None

    @property
    def queries(self) -> int:
        """The number of queries that were requested and have not ended."""
        return len(self._inboxes)

    async def run(self, command: Sequence[str]) -> str:
        """Runs the process from its start to its end; returns how it ended, as the end of a sentence."""
        near, far = socket.socketpair()
        with near, far:
            try:
                # Its own session: Ctrl-C at the terminal is for the coordinator, which drains, and ends it afterwards.
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=far.fileno(), stdout=DEVNULL, env=_environment(), start_new_session=True
                )
            except OSError as error:
                return f"cannot be started: {error.strerror}"
            far.close()
            self.pid = process.pid
            try:
                await self._serve(FramedSocket(near), process)
            finally:
                near.close()
                await _ended(process)
        self.was_killed = process.returncode is not None and process.returncode < 0
        if self.refusal is not None:
            return f"cannot start: {self.refusal.message}"
        return _end_of(process.returncode or 0)

    def end_queries(self, failure: FailureFrame) -> None:
        """The worker has ended: its queries end with this error, and so do those that are requested later."""
        self._error = failure
        self.ready = False
        self.started.set()
        for number, inbox in self._inboxes.items():
            inbox.put_nowait(Frame(Ended(number, failure), None))

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As :meth:`connector.spanner.workers.pool.Workers.read`."""
        await self.started.wait()
        if self._error is not None:
            raise error_of(self._error)
        number = next(self._numbers)
        inbox = self._inboxes[number] = asyncio.Queue()
        end = None if query.end is None else str(query.end)
        self._post(StartFrame(number, query.token, str(query.start), end, query.timeouts))
        unacknowledged = 0
        try:
            while True:
                frame = await inbox.get()
                match frame.message:
                    case RowsFrame() as rows:
                        yield self._unpacker.items(rows, frame.body)
                        unacknowledged += rows.size
                    case Ended(failure=failure):
                        if failure is not None:
                            raise error_of(failure)
                        return
                if unacknowledged >= _ACK_BYTES:
                    self._post(Ack(number, unacknowledged))
                    unacknowledged = 0
        finally:
            del self._inboxes[number]
            self._post(Cancel(number))

    async def _serve(self, connection: FramedSocket, process: Process) -> None:
        async with asyncio.TaskGroup() as tasks:
            others = (
                tasks.create_task(self._send_on(connection), name="sender"),
                tasks.create_task(self._watch(process), name="watch"),
            )
            while (frame := await connection.receive()) is not None:
                self._heard += 1
                match frame.message:
                    case Ready():
                        self.ready = True
                        self.started.set()
                        self._changed()
                    case Failed(failure):
                        self.refusal = failure
                    case RowsFrame(query) | Ended(query):
                        self.has_returned = True
                        if query in self._inboxes:  # or it was cancelled
                            self._inboxes[query].put_nowait(frame)
            for task in others:
                task.cancel()

    def _post(self, message: Message) -> None:
        self._outbox += framed(message)
        self._posted.set()

    async def _send_on(self, connection: FramedSocket) -> None:
        with suppress(ConnectionError):  # the receiver notices the end too
            while True:
                await self._posted.wait()
                self._posted.clear()
                buffers, self._outbox = self._outbox, []
                await connection.send(buffers)

    async def _watch(self, process: Process) -> None:
        silent = 0
        while silent < _CHECKS:  # in several steps, because this process may have been suspended
            heard = self._heard
            await asyncio.sleep(SILENCE / _CHECKS)
            silent = silent + 1 if heard == self._heard else 0
        _log.warning("a worker does not respond and is killed", pid=self.pid, seconds=SILENCE)
        process.kill()


def _environment() -> dict[str, str]:
    """This process's environment, with its import path, so that a worker imports from the same folders."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}


async def _ended(process: Process) -> None:
    """Waits for a process whose connection is closed, and kills it if it does not end in time."""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _end_of(code: int) -> str:
    """A description of how a process ended, by its exit code."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
