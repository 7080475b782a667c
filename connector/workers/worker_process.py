"""A worker as its coordinator has it: a process, what was asked of it, what it has brought and nobody has taken."""

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

from connector.decoding.decoder import Item
from connector.log import Log
from connector.spanner.partition_query import PartitionQuery
from connector.workers.failures import error_of
from connector.workers.framed_socket import FramedSocket
from connector.workers.frames import (
    Ask,
    Brought,
    Buffer,
    Ended,
    Failed,
    Failure,
    Frame,
    Leave,
    Message,
    Ready,
    Setup,
    Taken,
    Unpacker,
    framed,
)

SILENCE = 60.0
"""Seconds without a sign of life after which a worker is killed."""

_LOOKS = 12
"""How often is looked for one in that time."""

_PATIENCE = 5.0
"""Seconds that a worker may take to end."""

_TAKEN_AT_ONCE = 32 * 1024
"""Bytes that are taken before the worker is told."""

_log = Log(__name__)


class WorkerProcess:
    """One life of a worker.

    Args:
        setup: what it reads.
        changed: called when it is ready.
    """

    def __init__(self, setup: Setup, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._outbox: list[Buffer] = framed(setup)
        self._posted = asyncio.Event()
        self._posted.set()
        self._numbers = count(1)
        self._inboxes: dict[int, asyncio.Queue[Frame]] = {}
        self._unpacker = Unpacker()
        self._heard = 0
        self.begun = asyncio.Event()
        """It is ready, or has died before it was."""
        self.ready = False
        self.has_brought = False
        self.refusal: Failure | None = None
        """Why it cannot begin, if it has said so."""
        self.pid = 0
        self.was_killed = False
        """Whether a signal has ended it."""
        self._failure: Failure | None = None

    @property
    def queries(self) -> int:
        """How many it was asked for that have not ended."""
        return len(self._inboxes)

    async def live(self, command: Sequence[str]) -> str:
        """From its start to its end; returns how it has ended, as the end of a sentence."""
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
            return f"cannot begin: {self.refusal.message}"
        return _end_of(process.returncode or 0)

    def over(self, failure: Failure) -> None:
        """There is no more to come: its queries end with this, and those that are asked of it later."""
        self._failure = failure
        self.ready = False
        self.begun.set()
        for number, inbox in self._inboxes.items():
            inbox.put_nowait(Frame(Ended(number, failure), None))

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """As of :class:`connector.workers.pool.Workers`."""
        await self.begun.wait()
        if self._failure is not None:
            raise error_of(self._failure)
        number = next(self._numbers)
        inbox = self._inboxes[number] = asyncio.Queue()
        end = None if query.end is None else str(query.end)
        self._post(Ask(number, query.token, str(query.start), end, query.timeouts))
        taken = 0
        try:
            while True:
                frame = await inbox.get()
                match frame.message:
                    case Brought() as brought:
                        yield self._unpacker.items(brought, frame.body)
                        taken += brought.size
                    case Ended(failure=failure):
                        if failure is not None:
                            raise error_of(failure)
                        return
                if taken >= _TAKEN_AT_ONCE:
                    self._post(Taken(number, taken))
                    taken = 0
        finally:
            del self._inboxes[number]
            self._post(Leave(number))

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
                        self.begun.set()
                        self._changed()
                    case Failed(failure):
                        self.refusal = failure
                    case Brought(query) | Ended(query):
                        self.has_brought = True
                        if query in self._inboxes:  # else nobody wants it any more
                            self._inboxes[query].put_nowait(frame)
            for task in others:
                task.cancel()

    def _post(self, message: Message) -> None:
        self._outbox += framed(message)
        self._posted.set()

    async def _send_on(self, connection: FramedSocket) -> None:
        with suppress(ConnectionError):  # the receiver meets the end, too
            while True:
                await self._posted.wait()
                self._posted.clear()
                buffers, self._outbox = self._outbox, []
                await connection.send(buffers)

    async def _watch(self, process: Process) -> None:
        silent = 0
        while silent < _LOOKS:  # in several steps, for it may be this process that stood still
            heard = self._heard
            await asyncio.sleep(SILENCE / _LOOKS)
            silent = silent + 1 if heard == self._heard else 0
        _log.warning("a worker gives no sign of life and is killed", pid=self.pid, seconds=SILENCE)
        process.kill()


def _environment() -> dict[str, str]:
    """This process's, so that what it has imported from is where a worker does, and nowhere else."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}


async def _ended(process: Process) -> None:
    """Waits for a process that has been left, and kills it where it does not end."""
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
    """How a process has ended, by its exit code."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
