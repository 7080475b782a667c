"""Runs work to completion even if the caller is cancelled, or in the background of a context until that ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=Exception)


@asynccontextmanager
async def in_background(work: Coroutine[object, object, None], name: str) -> AsyncIterator[None]:
    """Runs ``work`` as a task of that name while the context is open; its end cancels the task, and waits for it."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def first_of(
    *events: Coroutine[object, object, object], tasks: Collection[asyncio.Task[T]] = (), within: float | None = None
) -> set[asyncio.Task[T]]:
    """Waits until an event has happened, a task has ended, or seconds have passed; returns the tasks that have ended.

    The waiting for events is cancelled then, and the tasks run on.
    """
    waiting = {asyncio.create_task(event, name="event") for event in events}
    try:
        await asyncio.wait({*tasks, *waiting}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return {task for task in tasks if task.done()}


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs ``work`` with its arguments in a thread to completion, even if the caller is cancelled.

    A thread cannot be cancelled, and one that still writes must not outlive the lock of the spool.

    Raises:
        Exception: as :func:`to_its_end`.
    """
    return await to_its_end(asyncio.to_thread(work, *args, **kwargs))


async def tried_in_thread(error: type[E], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | E:
    """As :func:`in_thread`, but an error of that type is returned.

    Whoever handles such an error uses this: if it were raised while the caller is cancelled, handling it would undo the
    cancellation.
    """

    def tried() -> T | E:
        try:
            return work(*args, **kwargs)
        except error as found:
            return found

    return await in_thread(tried)


async def to_its_end(work: Awaitable[T]) -> T:
    """Runs ``work`` to completion, even if the caller is cancelled; the cancellation takes effect after that end.

    Raises:
        Exception: whatever ``work`` raises, also if the caller was cancelled once meanwhile.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise


async def ended(task: asyncio.Future[T]) -> None:
    """Waits for the end of a task, however often this is cancelled meanwhile; its error counts as retrieved.

    Raises:
        asyncio.CancelledError: this was cancelled; the task has ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
    if cancelled is not None:
        raise cancelled
