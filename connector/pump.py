"""Reads a call of gRPC's in a thread, and hands its messages to the event loop many at a time.

A thread that iterates a call of the option SingleThreadedUnaryStream takes a third of the processor time of a call
that asyncio waits for, and what comes together is decoded together, which is cheaper still. So a query that has much
to catch up with is read by a pump.

The thread and the loop share one interpreter lock, and every message that wakes the loop costs more than the message.
So the loop says how many bytes it waits for, and the thread wakes it once, when they are there: a message that comes
alone is handed over at once, and while messages come densely the loop takes them every :data:`GATHER` seconds, or
when :data:`ENOUGH` bytes are there. Beyond :data:`MOST` bytes the thread stops reading, and gRPC's flow control holds
the server back.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Protocol

GATHER = 0.005
"""Seconds between two takings of messages, unless there are enough before."""

ENOUGH = 256 * 1024
"""Bytes that are worth decoding together."""

MOST = 512 * 1024
"""Bytes that may wait to be taken; the message that passes this limit is the last before a pause."""

MESSAGE = 64
"""Bytes that a message takes beside its own."""


class Call(Protocol):
    """A call of gRPC's synchronous interface, its messages left as bytes."""

    def __iter__(self) -> Iterator[bytes]: ...

    def cancel(self) -> object:
        """Ends the iteration with CANCELLED, in whatever thread it is."""


class Pump:
    """Reads ``call`` in one of the ``threads``, from now until it ends or :meth:`end`."""

    def __init__(self, call: Call, threads: Executor) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._messages: list[bytes] = []
        self._bytes = 0
        self._wanted = sys.maxsize
        """Bytes at which the thread wakes the loop; it does so once."""
        self._ending = False
        self._shared = threading.Condition()
        """Guards the four above; the thread waits for it while there is too much."""
        self._waiter: asyncio.Future[None] | None = None
        self._taken = 0.0
        self._done = self._loop.run_in_executor(threads, self._read)
        self._done.add_done_callback(self._ended)

    async def take(self) -> list[bytes]:
        """The messages that have come, in order; waits for one; none at all when the call has ended with OK.

        Raises:
            grpc.RpcError: how the call ended, once its messages were taken.
        """
        rest = self._taken + GATHER - self._loop.time()
        if rest > 0:
            await self._hold(ENOUGH, self._loop.call_later(rest, self._wake))
        while not self._messages and not self._done.done():
            await self._hold(1)
        with self._shared:
            messages, self._messages, self._bytes = self._messages, [], 0
            self._shared.notify()
        self._taken = self._loop.time()
        if not messages:
            self._done.result()
        return messages

    async def end(self) -> None:
        """Cancels the call if it goes on, and returns when the thread reads no more."""
        self._call.cancel()
        with self._shared:
            self._ending = True
            self._shared.notify()
        await asyncio.wait((self._done,))

    async def _hold(self, wanted: int, timer: asyncio.TimerHandle | None = None) -> None:
        """Waits until so many bytes are there, the timer has woken it, or the thread has ended."""
        self._waiter = self._loop.create_future()
        try:
            with self._shared:
                enough = self._bytes >= wanted or self._done.done()
                self._wanted = sys.maxsize if enough else wanted
            if not enough:
                await self._waiter
        finally:
            self._waiter = None
            self._wanted = sys.maxsize
            if timer is not None:
                timer.cancel()

    def _ended(self, done: asyncio.Future[None]) -> None:
        done.exception()  # it is told to whoever takes; where nobody does, asyncio is not to complain
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self) -> None:
        shared = self._shared
        for message in self._call:
            with shared:
                self._messages.append(message)
                self._bytes += len(message) + MESSAGE
                if self._bytes >= self._wanted:
                    self._wanted = sys.maxsize
                    self._loop.call_soon_threadsafe(self._wake)
                while self._bytes >= MOST and not self._ending:
                    shared.wait()
