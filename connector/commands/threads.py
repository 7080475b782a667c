"""Blocking work on the spool, in threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def finished_in_thread(work: Callable[[], T]) -> T:
    """Runs ``work`` in a thread, and waits for its end even when cancelled.

    A thread cannot be cancelled, and one that still writes must not outlive the lock of the spool.

    Raises:
        Exception: what ``work`` raises, also where this was cancelled meanwhile.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if (error := task.exception()) is not None:
            raise error from None
        raise
