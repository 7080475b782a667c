"""Blocking work in a thread, which has ended when the call returns."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Runs ``work`` in a thread, and waits for its end even when cancelled, because a thread cannot be cancelled.

    Raises:
        Exception: whatever ``work`` raises.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it
        raise
