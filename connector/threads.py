"""Work that cannot be taken back once it has started: whoever waits for it waits for its end, even when cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def finished_in_thread(work: Callable[[], T]) -> T:
    """Runs ``work`` in a thread, and waits for its end even when cancelled.

    A thread cannot be cancelled, and one that still writes must not outlive the lock of the spool.

    Raises:
        Exception: what ``work`` raises, also where this was cancelled once meanwhile.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended(task)
        if (error := task.exception()) is not None:
            raise error from None
        raise


async def in_thread(work: Callable[[], T]) -> T:
    """Runs ``work`` in a thread, and waits for its end even when cancelled, because a thread cannot be cancelled.

    Raises:
        Exception: whatever ``work`` raises.
    """
    return await to_its_end(asyncio.to_thread(work))


async def to_its_end(work: Awaitable[T]) -> T:
    """Waits for the end of ``work``; if this is cancelled meanwhile, it is so only after that end.

    Raises:
        Exception: whatever ``work`` raises, unless this was cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended(task)
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
