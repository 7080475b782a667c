"""Runs work of Spark in a thread that is only waited for up to a limit.

A stop cancels the work. Spark then returns at once, even where a Python worker of a task hangs. If it does not, because
the JVM itself is stalled, the thread is abandoned: nothing that it does is sealed.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import TypeVar

from connector.log import Log

PATIENCE = 15.0
"""Seconds within which cancelled work must end."""

SLOW = 60.0
"""Seconds after which work is reported as slow; then after twice as long, and so on."""

_POLL = 0.25

_log = Log(__name__)

T = TypeVar("T")


async def result_or_stop(
    work: Callable[[], T],
    cancel: Callable[[], object],
    stopping: asyncio.Event,
    *,
    slow: Callable[[float], None],
) -> T | None:
    """The result of work; None where a stop was requested and cancelled work did not end in time.

    Args:
        work: runs in a thread.
        cancel: makes ``work`` end soon; called repeatedly, since Spark forgets a request that precedes the job.
        stopping: is set by a stop.
        slow: called with the seconds that the work has taken, each time that it is reported as slow.

    Raises:
        Exception: what ``work`` raises.
    """
    result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _start(work, result)
    ended = Event()
    started = time.monotonic()
    limit = SLOW
    try:
        while not result.done() and not stopping.is_set():
            await asyncio.wait({result}, timeout=_POLL)
            if not result.done() and time.monotonic() - started >= limit:
                slow(time.monotonic() - started)
                limit *= 2
    except asyncio.CancelledError:
        await _cancelled(result, cancel, ended)
        raise
    else:
        await _cancelled(result, cancel, ended)
        return result.result() if result.done() else None
    finally:
        ended.set()


def _start(work: Callable[[], T], result: asyncio.Future[T]) -> None:
    loop = result.get_loop()
    result.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, also if abandoned

    def run() -> None:
        try:
            finish = partial(result.set_result, work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            finish = partial(result.set_exception, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish)

    Thread(target=run, name="window", daemon=True).start()


async def _cancelled(result: asyncio.Future[T], cancel: Callable[[], object], ended: Event) -> None:
    """Cancels work that has not ended, and waits for its end for a while."""
    if result.done():
        return

    def keep_cancelling() -> None:
        while not ended.is_set():
            cancel()
            ended.wait(_POLL)

    Thread(target=keep_cancelling, name="cancel", daemon=True).start()
    await asyncio.wait({result}, timeout=PATIENCE)
    if not result.done():
        _log.warning("Spark has not ended a cancelled window in time; it is abandoned", seconds=PATIENCE)
