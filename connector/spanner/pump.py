"""Reads the messages of a gRPC call ahead, and returns many of them at a time.

Messages that arrive together are decoded together, which costs much less than decoding one after another. So while
messages are frequent they are taken every :data:`GATHER` seconds, or when there are :data:`ENOUGH` bytes; a message
that arrives alone is returned at once. If too many bytes wait to be taken no more is read, and gRPC's flow control
stops the server.

There are two ways to read. A task awaits a call of grpc.aio. A pump iterates a call with the option
SingleThreadedUnaryStream in a thread, which takes a third of the processor time: so a query with a backlog is read by a
pump. The thread and the loop share one interpreter lock, and waking the loop costs more than a message. So the taker
sets the number of bytes that it waits for, and is woken once, when they are there.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor

import grpc
import grpc.aio

GATHER = 0.02
"""Seconds between two takings of frequent messages, unless there are enough bytes before.

It equals the interval at which the reader moves its watermark; a shorter one costs processor time.
"""
ENOUGH = 256 * 1024
"""Bytes that are worth decoding together."""

MOST_OF_A_PUMP = 512 * 1024
MOST_OF_A_TASK = 128 * 1024
"""Bytes that may wait to be taken; the message that exceeds this limit is the last before a pause."""

MESSAGE = 64
"""Bytes of memory that a message takes in addition to its own."""


class GatheredMessages:
    """The messages that are read and not yet taken; the base of both ways to read.

    Args:
        cancel: cancels the call that is read.
        most: bytes that may wait to be taken.
    """

    def __init__(self, cancel: Callable[[], object], most: int) -> None:
        self._cancel = cancel
        self._ending = False
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._enough = min(most, ENOUGH)
        self._messages: list[bytes] = []
        self._bytes = 0
        self._wanted = sys.maxsize
        """Bytes at which the taker is woken, once."""
        self._shared = threading.Condition()
        """Guards the three above."""
        self._waiter: asyncio.Future[None] | None = None
        self._taken = 0.0
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def take(self) -> list[bytes]:
        """Waits for a message and returns all that have arrived, in order; none when the call has ended with OK.

        Raises:
            grpc.RpcError: the call has failed; raised after its messages were taken.
        """
        while not self._messages and not self._done.done():
            await self._wait_for(1)
        rest = self._taken + GATHER - self._loop.time()
        if rest > 0:
            await self._wait_for(self._enough, rest)
        with self._shared:
            messages, self._messages, self._bytes = self._messages, [], 0
        self._taken = self._loop.time()
        self._has_room()
        if not messages:
            self._done.result()
        return messages

    async def end(self) -> None:
        """Cancels the call if it still runs, and returns when nothing reads it any more."""
        self._ending = True
        self._cancel()
        self._has_room()
        await asyncio.wait((self._done,))  # cancelling a task within read() would leak a message

    async def _wait_for(self, wanted: int, seconds: float | None = None) -> None:
        """Waits until there are so many bytes, so many seconds have passed, or the call has ended."""
        with self._shared:
            if self._bytes >= wanted or self._done.done():
                return
            self._wanted = wanted
        self._waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._wanted = sys.maxsize
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _add(self, message: bytes, wake: Callable[[], object]) -> bool:
        """Adds a message that was read; returns whether more may be read."""
        with self._shared:
            self._messages.append(message)
            self._bytes += len(message) + MESSAGE
            if self._bytes >= self._wanted:
                self._wanted = sys.maxsize
                wake()
            return self._bytes < self._most

    def _has_room(self) -> None:
        """Lets the reading continue."""

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ended(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # raised to the taker; marked as retrieved, so that asyncio does not complain without one
        self._wake()


class Awaited(GatheredMessages):
    """Awaits a call of grpc.aio in a task, from now until it ends or :meth:`end`."""

    def __init__(self, call: grpc.aio.UnaryStreamCall) -> None:
        super().__init__(call.cancel, MOST_OF_A_TASK)
        self._call = call
        self._room = asyncio.Event()
        self._done = self._loop.create_task(self._read(), name="a stream")
        self._done.add_done_callback(self._ended)

    def _has_room(self) -> None:
        self._room.set()

    async def _read(self) -> None:
        while not self._ending and (message := await self._call.read()) is not grpc.aio.EOF:
            if not self._add(message, self._wake) and not self._ending:
                self._room.clear()
                await self._room.wait()


class Pump(GatheredMessages):
    """Iterates a call in one of the ``threads``, from now until it ends or :meth:`end`; its messages stay bytes."""

    def __init__(self, call: grpc.Call, threads: Executor) -> None:
        super().__init__(call.cancel, MOST_OF_A_PUMP)
        self._call = call
        self._done = self._loop.run_in_executor(threads, self._read)
        self._done.add_done_callback(self._ended)

    def _has_room(self) -> None:
        with self._shared:
            self._shared.notify()

    def _read(self) -> None:
        for message in self._call:
            if not self._add(message, self._wake_from_thread):
                with self._shared:
                    self._shared.wait_for(lambda: self._bytes < self._most or self._ending)

    def _wake_from_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._wake)
