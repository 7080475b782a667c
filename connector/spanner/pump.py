"""Reads a call of gRPC's ahead, and hands its messages to whoever takes them, many at a time.

What comes together is decoded together, which costs a fifth of decoding one message after the other. So while
messages come densely they are taken every :data:`GATHER` seconds, or when :data:`ENOUGH` bytes are there; one that
comes alone is handed over at once. Where too much waits to be taken no more is read, and gRPC's flow control holds
the server back.

There are two ways to read. A task awaits a call of grpc.aio. A pump iterates a call of the option
SingleThreadedUnaryStream in a thread, which takes a third of the processor time: so a query that has much to catch up
with is read by a pump. The thread and the loop share one interpreter lock, and a message that wakes the loop costs
more than the message: so whoever takes says how many bytes he waits for, and is woken once, when they are there.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Protocol

import grpc.aio

GATHER = 0.02
"""Seconds between two takings of messages that come densely, unless there are enough before.

As long as the reader needs to move its watermark. With 0.005 ten awaited streams took 1.1 to 1.4 times as long.
"""
ENOUGH = 256 * 1024
"""Bytes that are worth decoding together."""

MOST_OF_A_PUMP = 512 * 1024
MOST_OF_A_TASK = 128 * 1024
"""Bytes that may wait to be taken; the message that passes this limit is the last before a pause."""

MESSAGE = 64
"""Bytes that a message takes beside its own."""


class Gathered:
    """The messages that were read and not taken; both ways to read fill it.

    Args:
        most: bytes that may wait to be taken.
    """

    def __init__(self, most: int) -> None:
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
        """The messages that have come, in order; waits for one; none at all when the call has ended with OK.

        Raises:
            grpc.RpcError: how the call ended, once its messages were taken.
        """
        while not self._messages and not self._done.done():
            await self._hold(1)
        rest = self._taken + GATHER - self._loop.time()
        if rest > 0:
            await self._hold(self._enough, rest)
        with self._shared:
            messages, self._messages, self._bytes = self._messages, [], 0
        self._taken = self._loop.time()
        self._has_room()
        if not messages:
            self._done.result()
        return messages

    async def _hold(self, wanted: int, seconds: float | None = None) -> None:
        """Waits until so many bytes are there, so many seconds have passed, or the call has ended."""
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
        """Adds what has been read; returns whether more may be."""
        with self._shared:
            self._messages.append(message)
            self._bytes += len(message) + MESSAGE
            if self._bytes >= self._wanted:
                self._wanted = sys.maxsize
                wake()
            return self._bytes < self._most

    def _has_room(self) -> None:
        """Lets whoever reads go on."""

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ended(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # it is told to whoever takes; where nobody does, asyncio is not to complain
        self._wake()


class Awaited(Gathered):
    """Awaits a call of grpc.aio in a task, from now until it ends or :meth:`end`."""

    def __init__(self, call: grpc.aio.UnaryStreamCall) -> None:
        super().__init__(MOST_OF_A_TASK)
        self._call = call
        self._ending = False
        self._room = asyncio.Event()
        self._done = self._loop.create_task(self._read(), name="a stream")
        self._done.add_done_callback(self._ended)

    async def end(self) -> None:
        """Cancels the call if it goes on, and returns when the task has ended."""
        self._ending = True
        self._call.cancel()
        self._has_room()
        await asyncio.wait((self._done,))  # a task that is cancelled within read() leaks the message under way

    def _has_room(self) -> None:
        self._room.set()

    async def _read(self) -> None:
        while not self._ending and (message := await self._call.read()) is not grpc.aio.EOF:
            if not self._add(message, self._wake) and not self._ending:
                self._room.clear()
                await self._room.wait()


class Call(Protocol):
    """A call of gRPC's synchronous interface, its messages left as bytes."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cancel(self) -> object:
        """Ends the iteration with CANCELLED, in whatever thread it is."""


class Pump(Gathered):
    """Iterates a call in one of the ``threads``, from now until it ends or :meth:`end`."""

    def __init__(self, call: Call, threads: Executor) -> None:
        super().__init__(MOST_OF_A_PUMP)
        self._call = call
        self._ending = False
        self._done = self._loop.run_in_executor(threads, self._read)
        self._done.add_done_callback(self._ended)

    async def end(self) -> None:
        """Cancels the call if it goes on, and returns when the thread reads no more."""
        self._call.cancel()
        self._ending = True
        self._has_room()
        await asyncio.wait((self._done,))

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
