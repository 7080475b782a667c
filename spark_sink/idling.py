"""The wait of a sink's process for the event that ends it; while no micro-batch runs it looks at intervals."""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TypeVar

from connector.errors import SpoolError
from connector.spool.storage.store import FileStore

INTERVAL = 2.0
"""Seconds between two looks."""

_INTERVALS_OF_A_BUCKET = 5
"""The factor by which a look comes later in Cloud Storage, which bills reads: it reads all records of backfills."""

E = TypeVar("E")


def interval_of(storage: FileStore) -> float:
    """Seconds between two looks that read a spool in this storage."""
    return INTERVAL * (_INTERVALS_OF_A_BUCKET if storage.rewrite_interval else 1)


def awaited(events: "SimpleQueue[E]", busy: Lock, *looks: Callable[[], None]) -> E:
    """Waits for an event; meanwhile looks at intervals, unless a micro-batch runs.

    A spool that cannot be read just now must not end a sink that has nothing to do: a micro-batch says so.

    Args:
        events: of the sink's process.
        busy: is held while a micro-batch runs.
        looks: look for work that is due, and do it.

    Raises:
        PySparkException, Py4JError: from a look.
    """
    while True:
        with suppress(Empty):
            return events.get(timeout=INTERVAL)
        if busy.acquire(blocking=False):
            try:
                for look in looks:
                    with suppress(SpoolError, OSError):
                        look()
            finally:
                busy.release()
