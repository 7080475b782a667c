"""Hands what a coroutine makes to a caller outside of its event loop, which a thread runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Handover(Generic[_Item, _Result]):
    """Runs a coroutine in a thread of its own, at most one item ahead of the caller.

    Args:
        produce: is given a function that takes an item, and returns when the caller has taken it.
        name: the thread's.
    """

    def __init__(
        self, produce: Callable[[Callable[[_Item], Awaitable[None]]], Coroutine[Any, Any, _Result]], name: str
    ) -> None:
        self._produce = produce
        self._items: SimpleQueue[tuple[_Item] | None] = SimpleQueue()
        self._taken = asyncio.Event()
        self._started = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._result: Future[_Result] = Future()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def items(self) -> Iterator[_Item | _Result]:
        """The items in their order, and the coroutine's result last; what it raises is raised."""
        while (item := self._items.get()) is not None:
            self._call(self._taken.set)
            yield item[0]
        yield self._result.result()

    def close(self) -> None:
        """Cancels the coroutine, if it has not ended, and waits until its thread has ended."""
        self._started.wait()
        self._call(lambda: self._task.cancel())
        self._thread.join()

    def _call(self, function: Callable[[], object]) -> None:
        if self._loop is None:
            return  # it could not be started
        with suppress(RuntimeError):  # it is closed: the coroutine has ended
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        try:
            self._result.set_result(asyncio.run(self._main()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            self._result.set_exception(error)
        self._started.set()
        self._items.put(None)

    async def _main(self) -> _Result:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._produce(self._hand_on))
        self._started.set()
        return await self._task

    async def _hand_on(self, item: _Item) -> None:
        self._taken.clear()
        self._items.put((item,))
        await self._taken.wait()
